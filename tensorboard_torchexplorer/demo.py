"""A small language model that learns to write docstrings, watched: something to look at within a minute.

The text is that which comes with Python, the docstrings of its standard library (about 0.9 MB of English), so
nothing is downloaded. Four transformer blocks guess the next byte. After a few hundred steps that is spelling
and indentation, not sense: it is there to be looked at, not to be used.
"""

from __future__ import annotations

import ast
import os
import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from tensorboard_torchexplorer.writer import ExplorerWriter

LENGTH = 64
"""Bytes of an excerpt."""

_BATCH = 16


def docstrings() -> list[str]:
    """The docstrings of the standard library's top-level modules, in the order of their files' names.

    They are read from the source files; nothing is imported. Raises FileNotFoundError where Python came
    without its sources."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for path in sorted(stdlib.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    texts.append(text)
    if not texts:
        raise FileNotFoundError(f"there are no Python sources in {str(stdlib)!r} to learn from")
    return texts


class SelfAttention(nn.Module):
    """Each byte looks at those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return result


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


class ByteModel(nn.Module):
    """int64 [batch, length] of bytes to the logits [batch, length, 256] of the byte that follows each."""

    def __init__(self, width: int = 64, heads: int = 4, blocks: int = 4) -> None:
        super().__init__()
        self.byte = nn.Embedding(256, width)
        self.place = nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256)

    def forward(self, text: Tensor) -> Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        logits: Tensor = self.head(self.norm(self.blocks(self.byte(text) + self.place(places))))
        return logits


def train(logdir: str | os.PathLike[str], steps: int = 300, log_freq: int = 5) -> float:
    """Train the model for `steps` steps, watched into an event file in `logdir`. Prints the loss now and
    then; returns the last one, in nats per byte. Seeds torch's global random generator, and leaves torch one
    thread: for layers this small several wait for each other longer than they work."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = torch.frombuffer(bytearray("\n\n".join(docstrings()).encode()), dtype=torch.uint8).long()
    model = ByteModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    value = float("nan")
    with ExplorerWriter(logdir) as writer:
        writer.watch(model, log_freq=log_freq)
        for step in range(steps):
            starts = torch.randint(len(data) - LENGTH, (_BATCH, 1))
            excerpts = data[starts + torch.arange(LENGTH + 1)]
            logits = model(excerpts[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), excerpts[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

            value = loss.item()
            writer.add_scalar("loss", value, step)
            if step % max(1, steps // 10) == 0 or step == steps - 1:
                print(f"step {step:4d} of {steps}  loss {value:.3f}", flush=True)
    return value
