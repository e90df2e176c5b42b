"""Gradient checkpointing: the same records as without it, in both modes, also nested."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

from tensorboard_torchexplorer.schema import Status
from tests.recording import Recorded, assert_row_holds, record

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.one(x).tanh()
        return x + self.two(hidden) * hidden


class Net(nn.Module):
    """`how` wraps each block; `inner` is applied inside of the second one as well."""

    def __init__(self, how) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = self.how(self.blocks[0], x)
        x = self.how(lambda y: self.how(self.blocks[1].two, self.blocks[1].one(y)) + y, x)
        return self.last(x)


def plain(function, x):
    return function(x)


def reentrant(function, x):
    return checkpoint(function, x, use_reentrant=True)


def not_reentrant(function, x):
    return checkpoint(function, x, use_reentrant=False)


def wrapped(function, x):
    """For `net`: no call of `checkpoint` in the forward, but torch's wrapper around modules."""
    return function(x)


def net(how) -> Net:
    torch.manual_seed(0)
    model = Net(how)
    if how is wrapped:
        model.blocks[0] = checkpoint_wrapper(model.blocks[0])
        model.blocks[1].two = checkpoint_wrapper(model.blocks[1].two)
    return model


def trained(how, steps: int = 2) -> tuple[Recorded, nn.Module]:
    model = net(how)

    def train(writer):
        watch = writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            model(X).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert not watch.faults.list()

    return record(train), model


@pytest.mark.parametrize("how", [reentrant, not_reentrant, wrapped])
def test_checkpointed_gradients_equal_those_without(how):
    unwatched = net(how)
    optimizer = torch.optim.SGD(unwatched.parameters(), lr=0.1)
    for _ in range(2):
        unwatched(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    wanted, _ = trained(plain)
    found, model = trained(how)
    for one, other in zip(unwatched.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert found.steps == wanted.steps == [0, 1]
    assert found.ids() == wanted.ids()
    checked = 0
    for key, rows in wanted.series.items():
        for one, other in zip(rows, found.series[key], strict=True):
            assert one["status"] == other["status"] or other["status"] == Status.OK, key
            if one["status"] == Status.OK:
                checked += key.kind == "grad"
                for name in ("min", "max", "mean", "std"):
                    assert other[name] == pytest.approx(one[name], rel=1e-4, abs=1e-7), (key, name)
    assert checked > 30


def test_without_an_optimizer_a_checkpointed_backward_is_one_step():
    model = Net(reentrant)
    twin = copy.deepcopy(model)
    twin(X).square().mean().backward()

    def train(writer):
        watch = writer.watch(model, log_freq=1, sample_n=None)
        for _ in range(3):
            model(X).square().mean().backward()
            model.zero_grad()
        assert watch.step == 3

    recorded = record(train)
    assert recorded.steps == [0, 1, 2]
    assert_row_holds(recorded.row("first", "param", "grad", "weight", 2), twin.first.weight.grad)


def test_no_hooks_stay_after_the_step():
    model = Net(reentrant)

    def train(writer):
        writer.watch(model, log_freq=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(X).square().mean()
        loss.backward()
        optimizer.step()
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())

    record(train)
