"""Conversions of a watched model that exchange its parameters, at every moment of a training."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import torch._dynamo  # where it is loaded, steps are also counted by the backward passes
from torch import Tensor, nn

from tensorboard_torchexplorer import ExplorerWriter
from tests.recording import read_back

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


class Prompted(nn.Module):
    """One parameter is also an argument of a module, another the result of one."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.ones(8))
        self.shift, self.body = Shift(), nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.to(self.prompt.dtype) + self.shift(self.prompt))


class Shift(nn.Module):
    def forward(self, prompt: Tensor) -> Tensor:
        return prompt


@pytest.fixture(autouse=True, params=["swapped", "overwritten", "in place"])
def conversion(request) -> Iterator[str]:
    """How `module.to()` converts: by exchanging what the parameters hold (which torch refuses where anything
    refers to them, also weakly), by new parameters, or by new memory for the old ones."""
    future = torch.__future__
    swaps, overwrites = (
        future.get_swap_module_params_on_conversion(),
        future.get_overwrite_module_params_on_conversion(),
    )
    future.set_swap_module_params_on_conversion(request.param == "swapped")
    future.set_overwrite_module_params_on_conversion(request.param == "overwritten")
    yield request.param
    future.set_swap_module_params_on_conversion(swaps)
    future.set_overwrite_module_params_on_conversion(overwrites)


def train(net: nn.Module, steps: int, before_step=lambda: None) -> list[Tensor]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        loss = net(X).square().mean()
        loss.backward()
        before_step()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def without_optimizer(net: nn.Module) -> list[Tensor]:
    net(X).square().mean().backward()
    net.to(torch.float64)
    return train(net, 2)


def between_steps(net: nn.Module) -> list[Tensor]:
    losses = train(net, 1)
    net.to(torch.float64)
    losses += train(net, 2)
    net.to(torch.float32)
    return losses + train(net, 3)


def before_the_first(net: nn.Module) -> list[Tensor]:
    net.to(torch.float64)
    return train(net, 3)


def between_backward_and_step(net: nn.Module) -> list[Tensor]:
    return train(net, 3, before_step=lambda: net.to(torch.float64))


def after_an_evaluation(net: nn.Module) -> list[Tensor]:
    with torch.no_grad():
        net.eval()(X)
    net.to(torch.float64)
    return train(net.train(), 2)


MOMENTS = [without_optimizer, between_steps, before_the_first, between_backward_and_step, after_an_evaluation]


@pytest.mark.parametrize("log_freq", [1, 2])
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_conversions_work_as_unwatched(moment, log_freq, tmp_path):
    torch.manual_seed(0)
    net = Prompted()
    other = copy.deepcopy(net)

    wanted = moment(other)
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=log_freq, eval_freq=1)
        losses = moment(net)

    assert watch.faults.list() == []
    for one, two in zip(
        [*losses, *net.state_dict().values()], [*wanted, *other.state_dict().values()], strict=True
    ):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)
    assert len(read_back(str(tmp_path)).steps) >= 1
