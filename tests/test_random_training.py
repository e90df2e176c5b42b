"""Random trees of modules in training: watching changes no bit, and recorded gradients are the true ones."""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from models import mean_square
from neutrality import train
from oracle import tensors
from random_models import CHANGING, OPERATIONS, SHAPE, Leaf, Program, Statement, build, call, programs
from recording import norms, read_back
from torch import Tensor, nn

from tensorboard_torchexplorer.schema import Status
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


Found = dict[tuple[str, int, str, int], Tensor]


def cloned(model: nn.Module) -> Found:
    """Make each module clone what enters and leaves it, so that each has tensors of its own. Gives their
    gradients by (path, number of the call, group, port), filled by the backward."""
    found: Found = {}
    calls: Counter[str] = Counter()
    running: list[tuple[str, int]] = []

    def clones(value: Any, call: tuple[str, int], group: str, count: list[int]) -> Any:
        if isinstance(value, Tensor):
            key = (*call, group, count[0])
            count[0] += 1
            copy = value.clone()
            if not copy.requires_grad:
                return value
            copy.register_hook(lambda g: found.__setitem__(key, g.clone()))
            return copy
        if isinstance(value, (tuple, list)):
            return type(value)(clones(item, call, group, count) for item in value)
        if isinstance(value, dict):
            return {key: clones(item, call, group, count) for key, item in value.items()}
        if dataclasses.is_dataclass(value):
            parts = [clones(getattr(value, f.name), call, group, count) for f in dataclasses.fields(value)]
            return type(value)(*parts)
        return value

    for path, module in model.named_modules():

        def before(_m: nn.Module, args: Any, kwargs: Any, path: str = path) -> Any:
            running.append((path, calls[path]))
            calls[path] += 1
            count = [0]
            return clones(args, running[-1], "input", count), clones(kwargs, running[-1], "input", count)

        def after(_m: nn.Module, args: Any, result: Any) -> Any:
            return clones(result, running.pop(), "output", [0])

        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after)
    return found


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

    calls: Counter[str] = Counter()
    compared = 0
    for node in recorded.graph.nodes:
        path = recorded.graph.modules[node.module].path
        if "not called through __call__" in node.notes:
            continue
        number = calls[path]
        calls[path] += 1
        for group, ports in (("input", node.inputs), ("output", node.outputs)):
            for index, port in enumerate(ports):
                row = recorded.row(node.id, group, "grad", port.name)
                gradient = truth.get((path, number, group, index))
                where = (node.id, group, port.name)
                if gradient is None:
                    assert row["status"] != Status.OK or row["max"] == 0, where
                    continue
                wanted = norms(gradient)
                if row["status"] != Status.OK:
                    assert not wanted.any(), where
                    continue
                tolerance = 1e-5 * float(wanted.max()) + 1e-7
                assert row["max"] == pytest.approx(float(wanted.max()), abs=tolerance), where
                assert row["mean"] == pytest.approx(float(wanted.mean()), abs=tolerance), where
                compared += 1
    assert compared
