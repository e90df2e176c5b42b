"""Small models whose tensors lie in memory in hard ways: layouts, views, subclasses. See models_values.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from models_register import Built, mean_square, on, registering
from torch import Tensor, nn

LAYOUTS: dict[str, Callable[[], Built]] = {}
model = registering(LAYOUTS)


class SparseEmbedding(nn.Module):
    """A vocabulary whose gradient is sparse, as for word vectors and recommenders."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 8, sparse=True)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.embed(tokens).mean(1))


@model
def sparse_gradient() -> Built:
    return SparseEmbedding(), on(torch.randint(1000, (4, 5)))


@model
def sparse_rows() -> Built:
    """Compressed rows, where models.py has coordinates."""
    model = nn.Sequential(TimesSparse(torch.eye(4).to_sparse_csr()), nn.Linear(6, 3))
    return model, on(torch.randn(4, 6))


class TimesSparse(nn.Module):
    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)
        self.look = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.look(self.matrix) @ x


class SparseResult(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * (x > 0)).to_sparse()


@model
def sparse_activation() -> Built:
    x = torch.randn(4, 6)
    model = nn.Sequential(nn.Linear(6, 6), SparseResult(), ToDense(), nn.Linear(6, 3))
    return model, on(x)


class ToDense(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to_dense()


def nested(layout: torch.layout) -> Built:
    rows = [torch.randn(3, 6), torch.randn(5, 6)]

    def run(model: nn.Module) -> Tensor:
        x = torch.nested.nested_tensor(rows, layout=layout)
        return mean_square(*model(x).unbind())

    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), run


@model
def nested_tensors() -> Built:
    return nested(torch.strided)


@model
def jagged_tensors() -> Built:
    return nested(torch.jagged)


@model
def channels_last() -> Built:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(True), nn.Conv2d(8, 2, 1))
    model = model.to(memory_format=torch.channels_last)
    return model, on(torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last))


class Strided(nn.Module):
    """Broadcast, stepped, overlapping and turned views between modules."""

    def __init__(self) -> None:
        super().__init__()
        self.look, self.out = nn.Identity(), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        views = (x[:1].expand(6, 8)[:, ::2], x[::2, 1:5], x.t().flip(0)[:, :4], x.unfold(1, 4, 1)[:, 0])
        return sum(self.out(self.look(view)).sum() for view in views)


@model
def strided_views() -> Built:
    return nn.Sequential(nn.Linear(8, 8), Strided()), on(torch.randn(6, 8))


class Named(Tensor):
    """A user's subclass that counts the functions that it passes."""

    passed = 0

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.passed += 1
        return super().__torch_function__(function, types, args, kwargs or {})


@model
def tensor_subclass() -> Built:
    x = torch.randn(4, 6).as_subclass(Named)
    Named.passed = 0

    def run(model: nn.Module) -> Tensor:
        loss = mean_square(model(x).as_subclass(Tensor))
        # So that a function which watching adds would change the loss.
        return loss * (1 + Named.passed)

    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)), run


class ScaledParameter(nn.Parameter):
    """A parameter class of a library's own."""


@model
def parameter_subclass() -> Built:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    model[0].weight = ScaledParameter(model[0].weight.detach())
    return model, on(torch.randn(4, 6))
