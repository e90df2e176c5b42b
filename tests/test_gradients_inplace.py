"""Gradients in the records against gradients that are found by other means: where tensors are written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gradients import (
    X,
    compare_with_clones,
    squared,
    train_once,
)
from recording import assert_row_holds, norms
from torch import Tensor, nn


class HandsThrough(nn.Module):
    """Returns its argument beside what it makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, self.side(x * 2)


class UsesThenWrites(nn.Module):
    """Writes to its argument after it has used it, by an operator that does not need it in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        side = self.side(x * 2)
        x.mul_(3)
        return x.tanh() + side + x


class Around(nn.Module):
    """`middle` between two layers; what it has returned is written to if `then` says so."""

    def __init__(self, middle: nn.Module, then: Callable[[Tensor], Any] = lambda h: None) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 8), middle, nn.Linear(8, 3)
        self.then = then

    def forward(self, x: Tensor) -> Tensor:
        h = self.middle(self.first(x))
        h, side = h if isinstance(h, tuple) else (h, 0)
        self.then(h)
        return self.last(h + side)


@pytest.mark.parametrize("shape", [(6, 8), (3, 2, 8)], ids=["plain", "views of the matrix product"])
@pytest.mark.parametrize(
    "middle",
    [
        lambda: nn.Dropout(0.0),
        lambda: nn.Sequential(nn.Sequential(nn.Identity()), nn.Sequential()),
        lambda: nn.Sequential(nn.Identity(), HandsThrough()),
        UsesThenWrites,
    ],
    ids=["dropout of nothing", "nested", "beside another result", "written to inside"],
)
@pytest.mark.parametrize("then", [lambda h: None, lambda h: h[..., 1:3].zero_()], ids=["", "zero_"])
def test_gradients_of_what_is_handed_through_and_written_to(middle, then, shape):
    x = X.reshape(shape)
    compare_with_clones(lambda: Around(middle(), then), lambda m: m(x).square().mean())


class InPlace(nn.Module):
    """`out += identity` and in-place activations, on convolution outputs and on linear views."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        identity = self.first(x)
        out = self.second(identity)
        out += identity
        return self.relu(out)


@pytest.mark.parametrize("shape", [(6, 8), (3, 2, 8)], ids=["plain", "views of the matrix product"])
def test_in_place_residual_and_activation(shape):
    torch.manual_seed(0)
    model, x = InPlace(), X.reshape(shape)
    first = model.first(x)
    second = model.second(first)
    total = second + first
    out = total.relu()
    loss = out.square().mean()
    wanted = torch.autograd.grad(loss, [first, second, total, out])

    recorded = train_once(model, lambda m: m(x).square().mean())

    assert_row_holds(recorded.row("relu", "output", "grad", "output"), norms(wanted[3]))
    assert_row_holds(recorded.row("relu", "input", "grad", "input"), norms(wanted[2]))
    assert_row_holds(recorded.row("second", "output", "grad", "output"), norms(wanted[1]))
    assert_row_holds(recorded.row("first", "output", "grad", "output"), norms(wanted[0]))
    # Values are those before the next module overwrites them, and after it has.
    assert_row_holds(recorded.row("second", "output", "value", "output"), second)
    assert_row_holds(recorded.row("relu", "input", "value", "input"), total)
    assert_row_holds(recorded.row("relu", "output", "value", "output"), out)


def test_a_slice_write_changes_the_gradient_of_what_it_overwrote():
    class Write(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.patch = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.base(x)
            y[:, 2:5] = self.patch(x)
            return y

    torch.manual_seed(0)
    model = Write()
    base, patch = model.base(X), model.patch(X)
    loss = torch.cat([base[:, :2], patch, base[:, 5:]], 1).square().mean()
    wanted = torch.autograd.grad(loss, [base, patch])

    recorded = train_once(model, squared)

    assert_row_holds(recorded.row("base", "output", "grad", "output"), norms(wanted[0]))
    assert_row_holds(recorded.row("patch", "output", "grad", "output"), norms(wanted[1]))
