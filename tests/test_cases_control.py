"""The rows of the public faults about control flow: recursion, branches, loops, custom functions."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from cases import Lambda, X, edges, train
from recording import Recorded, assert_row_holds, norms
from torch import Tensor, nn

from tensorboard_torchexplorer.capture.graph import MAX_DEPTH
from tensorboard_torchexplorer.schema import Status


class Tree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, depth: int) -> Tensor:
        return self(torch.tanh(self.l(x)), depth - 1) if depth else x


def test_c61_recursion():
    recorded = recursed(5)

    assert recorded.ids()[1] == "tree"
    assert [i for i in recorded.ids() if i.endswith("tree")] == ["tree" + "/^tree" * k for k in range(6)]
    deepest = "tree" + "/^tree" * 4
    assert edges(recorded, deepest) == {"input0 l", "l ^tree", "^tree output0"}
    assert recorded.status(f"{deepest}/l", "output", "grad", "output") == Status.OK


def recursed(depth: int) -> Recorded:
    torch.manual_seed(0)
    return train(Lambda(lambda m, x: m.tree(x, depth), tree=Tree()))


def test_c61_a_root_that_calls_itself():
    class Tree(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.leaf = Leaf()

        def forward(self, x, depth=2):
            x = self.l(x)
            return self.leaf(x) if depth == 0 else self(x, depth - 1) + x

    class Leaf(nn.Module):
        def forward(self, x):
            return x if self.root is None else self.root(x, 1)

    model = Tree()
    object.__setattr__(model.leaf, "root", None)
    seen = train(model)

    assert seen.ids() == [".", "l", "^", "^/l", "^/^", "^/^/l", "^/^/leaf"]
    assert all(seen.status(node, "output", "grad", "output") == Status.OK for node in seen.ids()[1:])


def test_c61_deep_recursion_is_cut_with_a_count():
    recorded = recursed(150)

    deepest = max(recorded.graph.nodes, key=lambda node: node.id.count("/"))
    assert deepest.id.count("/") == MAX_DEPTH - 1
    last = recorded.node("tree" + "/^tree" * (MAX_DEPTH - 1))
    # Of the 301 calls of trees and layers, those of 64 trees and 63 layers are kept.
    assert last.notes == [f"recursion cut at depth {MAX_DEPTH}: {151 + 150 - 64 - 63} more calls below"]
    assert edges(recorded)  # levels above are whole
    assert_row_holds(
        recorded.row(".", "output", "grad", "output"), norms(recorded_gradient(recorded)), rel=1e-3
    )


def recorded_gradient(recorded: Recorded) -> Tensor:
    """d mean(out ** 2) / d out of the deep tree, trained afresh."""
    torch.manual_seed(0)
    model = Tree()
    out = model(X, 150).detach()
    return 2 * out / out.numel()


def test_c61_mutual_recursion():
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.other: list[nn.Module] = []

        def forward(self, x: Tensor, left: int) -> Tensor:
            x = self.l(x)
            return self.other[0](x, left - 1) if left else x

    a, b = Half(), Half()
    model = Lambda(lambda m, x: m.a(x, 3), a=a, b=b)
    a.other, b.other = [b], [a]

    recorded = train(model)

    assert [i for i in recorded.ids() if not i.endswith("l")] == [".", "a", "a/^b", "a/^b/^a", "a/^b/^a/^b"]
    assert edges(recorded, "a/^b") == {"input0 l", "l ^a", "^a output0"}


def test_c62_branches_and_growing_loops():
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd, self.even, self.loop = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.steps = 0

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            x = self.odd(x) if self.steps % 2 else self.even(x)
            for _ in range(self.steps):
                x = self.loop(x)
            return x

    recorded = train(Changing(), steps=6, rate=1e-3)

    ran = {node: count(recorded, node) for node in recorded.ids()}
    loops = {"loop": 6, "loop#1": 5, "loop#2": 4, "loop#3": 3, "loop#4": 2, "loop#5": 1}
    assert ran == {".": 6, "odd": 3, "even": 3, **loops}
    # Both branches have values at their own steps, and edges although neither was there from the start.
    ok = recorded.series["odd", "output", "value", "output"]["status"] == Status.OK
    assert list(ok) == [True, False, True, False, True, False]
    gradient = recorded.series["even", "output", "grad", "output"]["status"] == Status.OK
    assert list(gradient) == [False, True, False, True, False, True]
    assert {"input0 odd", "input0 even", "odd loop", "even loop", "loop loop#1", "loop#1 loop#2"} <= edges(
        recorded
    )


def count(recorded: Recorded, node: str) -> int:
    """In how many logged steps a node ran."""
    index = recorded.ids().index(node)
    return sum(any(first <= index < first + n for first, n in info.ran) for info in recorded.history.infos)


def test_c62_stochastic_depth_reaches_every_layer():
    random.seed(0)
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        for layer in m.layers:
            x = layer(x) if random.random() < 0.5 else x
        return x + m.last(x)

    recorded = train(Lambda(forward, layers=layers, last=nn.Linear(4, 4)), steps=12, rate=1e-3)

    assert {f"layers.{k}" for k in range(4)} <= set(recorded.ids())
    for k in range(4):
        ok = (recorded.series[f"layers.{k}", "output", "grad", "output"]["status"] == Status.OK).sum()
        assert ok == count(recorded, f"layers.{k}") < 12


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


@pytest.mark.parametrize(("function", "factor"), [(StraightThrough, 1), (Same, -1), (Dirty, 3)])
def test_c64_custom_functions(function, factor):
    torch.manual_seed(0)
    model = Lambda(
        lambda m, x: m.b(m.f(m.a(x))),
        a=nn.Linear(4, 4),
        f=Lambda(lambda m, x: function.apply(x)),
        b=nn.Linear(4, 4),
    )
    hidden = model.f(model.a(X)).detach().requires_grad_()
    model.b(hidden).square().mean().backward()
    model.zero_grad()

    recorded = train(model)

    assert edges(recorded) == {"input0 a", "a f", "f b", "b output0"}
    assert_row_holds(recorded.row("b", "input", "value", "input"), hidden)
    assert_row_holds(recorded.row("b", "input", "grad", "input"), norms(hidden.grad), rel=1e-5)
    assert_row_holds(recorded.row("f", "output", "grad", "output"), norms(hidden.grad), rel=1e-5)
    assert_row_holds(recorded.row("a", "output", "grad", "output"), norms(hidden.grad * factor), rel=1e-5)
