"""Operators that compile what they are given, in eager mode, too: `torch.cond` and its like."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from compiled import WARNINGS, fresh_compiler
from recording import read_back
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from watched import X

from tensorboard_torchexplorer.writer import ExplorerWriter

pytestmark = [
    *WARNINGS,
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    with fresh_compiler():
        yield


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class Net(nn.Module):
    """`first`, then by `way` one of two branches, then `last`."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first, self.left, self.right, self.last = (nn.Linear(8, 8) for _ in range(4))
        self.way = way

    def forward(self, x):
        x = self.first(x)
        positive = x.sum() > 0
        if self.way == "functions":
            x = torch.cond(positive, lambda x: x * 2, lambda x: x - 1, (x,))
        elif self.way == "modules":
            x = torch.cond(positive, lambda x: self.left(x), lambda x: self.right(x), (x,))
        elif self.way == "parameters":
            x = torch.cond(positive, lambda x: x @ self.left.weight, lambda x: x @ self.right.weight, (x,))
        elif self.way == "custom functions":
            x = torch.cond(positive, lambda x: Doubles.apply(x), lambda x: x - 1, (x,))
        elif self.way == "loop":
            with torch.no_grad():
                count, _ = while_loop(
                    lambda count, y: count < 3,
                    lambda count, y: (count + 1, self.left(y)),
                    (torch.tensor(0), x.detach().clone()),
                )
            x = x * count
        return self.last(x)


def _mean_square(out):
    return out.square().mean()


WAYS = ["functions", "modules", "parameters", "custom functions", "loop"]


def run(way, folder=None, *, every=1, watched=lambda model: model, loss=_mean_square, faults=()):
    torch.manual_seed(0)
    model = Net(way)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    facts = []
    with ExplorerWriter(folder) if folder else nullcontext() as writer:
        watch = writer.watch(watched(model), log_freq=every) if writer else None
        for _ in range(4):
            total = loss(model(X))
            total.backward()
            gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
            facts += [total.item(), *gradients]
            optimizer.step()
            optimizer.zero_grad()
        if watch is not None:
            assert [fault.place for fault in watch.faults.list()] == list(faults)
    return facts


def same(one, two) -> bool:
    return len(one) == len(two) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize("first", ["watched", "unwatched"])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_training_is_the_same(way, every, first, tmp_path):
    """Whichever comes first in a process: what one has compiled, or marked not to be, the other finds."""
    before = torch.compile, torch.autograd.Function.__dict__["apply"]
    if first == "watched":
        watched = run(way, tmp_path, every=every)
        plain = run(way)
    else:
        plain = run(way)
        watched = run(way, tmp_path, every=every)
    assert same(plain, watched)
    assert (torch.compile, torch.autograd.Function.__dict__["apply"]) == before
    recorded = read_back(str(tmp_path))
    assert recorded.steps == list(range(0, 4, every))
    assert {"first", "last"} <= set(recorded.ids())
    nodes = {node.id: index for index, node in enumerate(recorded.graph.nodes)}
    pairs = {
        (edge.source.index, edge.target.index): edge.kind
        for edge in recorded.graph.edges
        if edge.source.kind == edge.target.kind == "node"
    }
    assert pairs.get((nodes["first"], nodes["last"])) == "gradient"


def test_in_the_loss_beside_the_model(tmp_path):
    """Where a step that is to be recorded keeps compiled functions eager, also outside of the forward."""

    def loss(out):
        return torch.cond(out.sum() > 0, lambda y: y.square(), lambda y: y.abs(), (out,)).mean()

    assert same(run("functions", loss=loss), run("functions", tmp_path, loss=loss))


def test_a_watched_part_within_a_branch(tmp_path):
    """Nobody sees its calls, being compiled, but its parameters are recorded."""
    watched = run("modules", tmp_path, watched=lambda model: model.left, faults=["forwards"])
    assert same(run("modules"), watched)
    assert len(read_back(str(tmp_path)).steps) > 0


def test_a_stance_of_the_user_holds_for_them_too(tmp_path):
    torch.compiler.set_stance("force_eager")
    try:
        with pytest.raises(TypeError):
            run("functions")
        with pytest.raises(TypeError):
            run("functions", tmp_path)
    finally:
        torch.compiler.set_stance("default")
