"""Deep and big models: no recursion, and work linear in the number of operators."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from levels import Traced, chains
from test_structure_oracle import gpt2
from torch import Tensor, nn

import tensorboard_torchexplorer.capture.structure as structure


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors of a few elements: more threads only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Diamonds(nn.Module):
    """Each step uses the last result twice: 2**n paths."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        for _ in range(self.steps):
            h = torch.tanh(h) + torch.sin(h)
        return h


class Residuals(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x


def linears(count: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))


def calls_made(model: nn.Module) -> int:
    """How many Python functions of the package run while a model is traced."""
    package = str(Path(structure.__file__).parent)
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(package)

    x = torch.randn(2, 4)

    def run(model: nn.Module) -> Tensor:
        sys.setprofile(profile)
        try:
            return model(x)
        finally:
            sys.setprofile(None)

    assert Traced(model, run).faults == []
    return count


@pytest.mark.parametrize("model", [linears, Diamonds, Residuals])
def test_work_is_linear_in_the_number_of_operators(model: Callable[[int], nn.Module]) -> None:
    once, twice = calls_made(model(200)), calls_made(model(400))

    assert 1000 < once < twice <= 2.05 * once


def test_a_chain_of_1500_modules() -> None:
    model, x = linears(1500), torch.randn(2, 4)
    traced = Traced(model, lambda model: model(x))

    assert traced.faults == []
    path = " > ".join(["in0", *map(str, range(1500)), "out0"])
    assert traced.level(".") == chains(path)


def test_an_operator_chain_deeper_than_the_recursion_limit() -> None:
    traced = Traced(Diamonds(5000), lambda model: model(torch.randn(2, 4)))

    assert traced.faults == []
    assert traced.level(".") == chains("in0 > a > out0")


@pytest.mark.parametrize("steps", [22, 200])
def test_stacked_diamonds(steps: int) -> None:
    """Without memory, the walk through 22 of them takes seconds, through 200 longer than the universe."""
    traced = Traced(Diamonds(steps), lambda model: model(torch.randn(2, 4)))

    assert traced.level(".") == chains("in0 > a > out0")


def test_gpt2_of_12_layers() -> None:
    torch.manual_seed(0)
    model, run = gpt2(layers=12)
    traced = Traced(model, run)

    assert traced.faults == []
    # the residual stream: each block's result reaches every later one through the next alone
    assert traced.level("transformer") >= {f"h.{layer} > h.{layer + 1}" for layer in range(11)}
    assert traced.level("transformer/h.11") == chains(
        """in0 > ln_1 > attn > ln_2 > mlp > out0; in0 > ln_2; in0 > out0; attn > out0
           in1 ..> attn; in2 ..> attn"""
    )
