"""Random trees of modules in training: watching changes no bit, and recorded gradients are the true ones."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from gradients import assert_gradients_of_twin, cloned
from hypothesis import HealthCheck, given, settings
from models import mean_square
from neutrality import train
from oracle import tensors
from random_models import CHANGING, OPERATIONS, SHAPE, Leaf, Program, Statement, build, call, programs
from recording import read_back
from torch import Tensor, nn

from tensorboard_torchexplorer.writer import ExplorerWriter

EXAMPLES = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def loss_of(program: Program, model: nn.Module, differentiable: bool = False) -> Tensor:
    """Something that each result matters to. The inputs are new each time: programs write to them."""
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(SHAPE, generator=generator) for _ in range(program.inputs)]
    for tensor in inputs:
        tensor.requires_grad_(differentiable)
    return mean_square(*(k * t for k, t in enumerate(tensors(call(model, inputs, program.style)), 1)))


@EXAMPLES
@given(programs())
def test_random_training_is_the_same_bit_by_bit(program):
    def made() -> tuple[nn.Module, Any]:
        torch.manual_seed(0)
        return build(program, {}), lambda model: loss_of(program, model)

    plain = train(made, copied=False)
    with tempfile.TemporaryDirectory() as folder, ExplorerWriter(folder) as writer:
        watches: list[Any] = []
        watched = train(
            made,
            lambda m: watches.append(writer.watch(m, log_freq=1)),
            lambda: writer.unwatch(),
            copied=False,
        )

    assert watched.differences(plain) == {}
    assert watches[0].faults.list() == []


# --- Gradients -----------------------------------------------------------------------------------


def without_sharing(program: Program, made: dict[int, Program | Leaf]) -> Program:
    """The same without what makes "the gradient of a tensor" a matter of taste: nothing is written to
    in place, no module returns its own argument."""
    if id(program) in made:
        return made[id(program)]
    children = []
    for child in program.children:
        if isinstance(child, Program):
            children.append(without_sharing(child, made))
        else:
            kind = "linear" if child.kind in ("leaky_", "identity") else child.kind
            children.append(made.setdefault(id(child), Leaf(kind)))
    statements = [s for s in program.statements if s.operation not in CHANGING]
    known = program.inputs + sum(len(s.keep) if s.child >= 0 else 1 for s in statements)
    returns = []
    for number in program.returns:
        if number < program.inputs:
            statements.append(Statement("sin", (number,)))
            number, known = known, known + 1
        returns.append(number)
    result = dataclasses.replace(
        program, children=tuple(children), statements=tuple(statements), returns=tuple(returns)
    )
    return made.setdefault(id(program), result)


@EXAMPLES
@given(programs())
def test_random_gradients_are_those_of_a_cloned_twin(program):
    assert set(OPERATIONS) >= CHANGING
    program = without_sharing(program, {})
    torch.manual_seed(0)
    twin = build(program, {})
    truth = cloned(twin)
    torch.manual_seed(2)
    twin_loss = loss_of(program, twin, differentiable=True)
    if not twin_loss.requires_grad:
        return
    twin_loss.backward()

    torch.manual_seed(0)
    model = build(program, {})
    with tempfile.TemporaryDirectory() as folder:
        with ExplorerWriter(folder) as writer:
            watch = writer.watch(model, log_freq=1, sample_n=None)
            torch.manual_seed(2)
            loss_of(program, model, differentiable=True).backward()
            assert watch.faults.list() == []
        recorded = read_back(folder)

    assert assert_gradients_of_twin(recorded, truth)
