"""Real data that needs no download, in batches behind a progress bar.

Handwritten digits come with scikit-learn, texts with Python: the docstrings of its standard library.
"""

from __future__ import annotations

import ast
import sysconfig
from itertools import chain, islice, repeat
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


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


def docstrings() -> list[str]:
    """The docstrings of the standard library's top-level modules, about 0.9 MB of English about Python.

    They are read from the source files; nothing is imported.
    """
    texts = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    texts.append(text)
    return texts


def as_bytes(text: str, length: int) -> Tensor:
    """The UTF-8 bytes of `text` as int64 of shape [length]: cut there, or padded with zeros."""
    data = text.encode()[:length]
    return torch.tensor(list(data) + [0] * (length - len(data)))


def batches(loader: DataLoader, steps: int, name: str) -> tqdm:
    """The first `steps` batches of `loader`, epoch after epoch, behind a progress bar called `name`."""
    endless = chain.from_iterable(repeat(loader))
    return tqdm(islice(endless, steps), name, total=steps, unit="step")
