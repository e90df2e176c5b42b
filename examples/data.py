"""Real data that needs no download, in batches behind a progress bar.

Handwritten digits come with scikit-learn, texts with Python: the docstrings of its standard library.
"""

from __future__ import annotations

from itertools import chain, islice, repeat

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

from tensorboard_torchexplorer.demo import docstrings

__all__ = ["as_bytes", "batches", "digits", "docstrings"]


def digits(size: int = 32, test: int = 297) -> tuple[TensorDataset, TensorDataset]:
    """The 1,797 digits as (image, label) pairs for training, and `test` others that training never sees.

    Images are float32 of shape [1, size, size], about -1 (paper) to 1 (ink), enlarged from 8x8.
    The split is the same in each process and leaves the global random generator alone.
    """
    raw = load_digits()
    images = torch.tensor(raw.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    images = functional.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
    labels = torch.tensor(raw.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, held_out = order[test:], order[:test]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[held_out], labels[held_out])


def as_bytes(text: str, length: int) -> Tensor:
    """The UTF-8 bytes of `text` as int64 of shape [length]: cut there, or padded with zeros."""
    data = text.encode()[:length]
    return torch.tensor(list(data) + [0] * (length - len(data)))


def batches(loader: DataLoader, steps: int, name: str) -> tqdm:
    """The first `steps` batches of `loader`, epoch after epoch, behind a progress bar called `name`."""
    endless = chain.from_iterable(repeat(loader))
    return tqdm(islice(endless, steps), name, total=steps, unit="step")
