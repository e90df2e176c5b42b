"""Several optimizers for one model: what each uses and does is recorded, in one record for each step."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gradients import Skip, X, sgd, squared
from recording import Recorded, assert_row_holds, record
from torch import Tensor, nn

from tensorboard_torchexplorer.schema import HEALTH, Status

RATES = {"first": 0.1, "second": 0.02, "last": 0.02}
STEPS = 4


class Truth:
    """What the optimizers of a model use, by parameter, at each of their steps: value, gradient, and the
    length of the update over that of the value."""

    def __init__(self, model: nn.Module) -> None:
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        self.steps: list[dict[str, tuple[Tensor, Tensor]]] = [{}]

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.register_step_pre_hook(self.note)

    def note(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for p in group["params"]:
                self.steps[-1][self.names[p]] = (p.detach().clone(), p.grad.detach().clone())

    def next(self) -> None:
        self.steps.append({})


def assert_as_used(recorded: Recorded, truth: Truth, *, alone: bool = False) -> None:
    """Values, gradients and updates, those of SGD. In the first step nobody knows yet of a second optimizer:
    what it uses is read when the first steps, or the backward ends, and its updates are unknown."""
    assert recorded.steps == list(range(len(truth.steps)))
    for step, used in enumerate(truth.steps):
        if step == 0 and not alone:
            continue
        ratios: dict[str, list[float]] = {}
        for name, (value, gradient) in used.items():
            path, _, leaf = name.rpartition(".")
            assert_row_holds(recorded.row(path, "param", "value", leaf, step), value)
            assert_row_holds(recorded.row(path, "param", "grad", leaf, step), gradient)
            ratios.setdefault(path, []).append(float(RATES[path] * gradient.norm() / value.norm()))
        for path, wanted in ratios.items():
            node = recorded.graph.nodes.index(recorded.node(path))
            update = recorded.history.health()[step, node, HEALTH.index("update")]
            assert update == pytest.approx(max(wanted), rel=0.01), (step, path)
            for group in ("input", "output"):
                for port in getattr(recorded.graph.nodes[node], f"{group}s"):
                    if port.requires_grad:
                        assert recorded.status(path, group, "grad", port.name, step) == Status.OK


def two(model: nn.Module, truth: Truth) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    one = torch.optim.SGD(model.first.parameters(), lr=RATES["first"])
    other = torch.optim.SGD([*model.second.parameters(), *model.last.parameters()], lr=RATES["last"])
    truth.follow(one)
    truth.follow(other)
    return one, other


def one_after_the_other(model: nn.Module, truth: Truth) -> None:
    one, other = two(model, truth)
    for step in range(STEPS):
        if step:
            truth.next()
        squared(model).backward()
        one.step()
        nn.utils.clip_grad_norm_(model.second.parameters(), 1e-3)  # what the second uses, not the first
        other.step()
        one.zero_grad()
        other.zero_grad()


def a_backward_for_each(model: nn.Module, truth: Truth) -> None:
    one, other = two(model, truth)
    for step in range(STEPS):
        if step:
            truth.next()
        out = model(X)
        torch.autograd.backward(out.square().mean(), inputs=list(model.first.parameters()), retain_graph=True)
        kept = model.first.weight.grad.clone()
        torch.autograd.backward(
            out.abs().mean(), inputs=[*model.second.parameters(), *model.last.parameters()]
        )
        assert torch.equal(model.first.weight.grad, kept)
        one.step()
        other.step()
        one.zero_grad()
        other.zero_grad()


def test_updates_that_are_not_known_are_blank_and_not_zero():
    model = Skip()

    def train(writer) -> None:
        writer.watch(model, log_freq=1)
        one_after_the_other(model, Truth(model))

    recorded = record(train)
    health = recorded.history.health()[0, :, HEALTH.index("update")]
    assert health[recorded.graph.nodes.index(recorded.node("first"))] > 0
    assert math.isnan(health[recorded.graph.nodes.index(recorded.node("last"))])


@pytest.mark.parametrize("train_with", [one_after_the_other, a_backward_for_each], ids=lambda f: f.__name__)
def test_each_optimizer_counts_with_what_it_uses(train_with: Callable[[nn.Module, Truth], None]):
    model = Skip()
    truth = Truth(model)

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        train_with(model, truth)
        assert watch.step == STEPS
        assert watch.faults.list() == []

    assert_as_used(record(train), truth)


def test_an_optimizer_that_no_longer_steps_holds_nothing_up():
    """A record waits for the second optimizer at most until the next forward, or the end."""
    model = Skip()

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1)
        one, other = two(model, Truth(model))
        for step in range(STEPS):
            squared(model).backward()
            one.step()
            if step < 2:
                other.step()
            model.zero_grad()
        assert watch.step == STEPS
        squared(model).backward()
        one.step()

    recorded = record(train)
    assert recorded.steps == list(range(STEPS + 1))
    for step in range(STEPS + 1):
        assert recorded.status("last", "param", "grad", "weight", step) == Status.OK


def test_the_same_optimizer_once_more_is_a_new_step():
    model = Skip()

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1)
        one, other = two(model, Truth(model))
        for _ in range(2):
            squared(model).backward()
            one.step()
            other.step()
        squared(model).backward()
        one.step()
        assert watch.step == 2, "it waits for the other"
        one.step()
        assert watch.step == 4

    assert record(train).steps == [0, 1, 2, 3]


@pytest.mark.parametrize("log_freq", [1, 3])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_an_optimizer_for_each_parameter_that_steps_within_the_backward(log_freq, checkpointed):
    """Saves the memory of gradients: each is used and dropped as soon as it is complete."""
    torch.manual_seed(0)
    model = Skip()
    if checkpointed:
        inner = model.second.forward
        model.second.forward = lambda x: torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)
    truth = Truth(model)
    optimizers = {
        parameter: torch.optim.SGD([parameter], lr=RATES[name.split(".")[0]])
        for name, parameter in model.named_parameters()
    }

    def use(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter, optimizer in optimizers.items():
        truth.follow(optimizer)
        parameter.register_post_accumulate_grad_hook(use)

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=log_freq, sample_n=None)
        for step in range(STEPS):
            if step:
                truth.next()
            squared(model).backward()
            assert watch.step == step + 1
        assert watch.faults.list() == []

    recorded = record(train)
    assert recorded.steps == list(range(0, STEPS, log_freq))
    truth.steps = truth.steps[::log_freq]
    recorded = recorded._replace(steps=list(range(len(truth.steps))))
    assert_as_used(recorded, truth, alone=True)


@pytest.mark.parametrize("chosen", [False, True], ids=["both", "only the first counts"])
def test_one_optimizer_of_a_part_within_the_backward_and_one_after_it(chosen):
    torch.manual_seed(0)
    model = Skip()
    truth = Truth(model)
    early, late = two(model, truth)
    pending = set(model.first.parameters())

    def use(parameter: Tensor) -> None:
        pending.discard(parameter)
        if not pending:
            early.step()
            early.zero_grad()
            pending.update(model.first.parameters())

    for parameter in model.first.parameters():
        parameter.register_post_accumulate_grad_hook(use)

    def train(writer) -> None:
        writer.watch(model, log_freq=1, sample_n=None, optimizer=early if chosen else None)
        for step in range(STEPS):
            if step:
                truth.next()
            squared(model).backward()
            late.step()
            late.zero_grad()

    recorded = record(train)
    assert recorded.steps == list(range(STEPS))
    for step, used in enumerate(truth.steps):
        for name in ("first.weight", "last.weight"):
            path, _, leaf = name.rpartition(".")
            assert_row_holds(recorded.row(path, "param", "grad", leaf, step), used[name][1])


def test_sharpness_aware_steps_are_recorded_as_two():
    """Two backward passes for a step, of which the first only looks around: its base steps once."""
    model = Skip()
    optimizer = sgd(model)

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1)
        for _ in range(3):
            squared(model).backward()
            moved = [(p, 0.05 * p.grad) for p in model.parameters()]
            with torch.no_grad():
                for parameter, by in moved:
                    parameter.add_(by)
            optimizer.zero_grad()
            squared(model).backward()
            with torch.no_grad():
                for parameter, by in moved:
                    parameter.sub_(by)
            optimizer.step()
            optimizer.zero_grad()
        assert watch.faults.list() == []

    recorded = record(train)
    assert recorded.steps == [0, 1, 2]
    assert [info.forwards for info in recorded.history.infos] == [2, 2, 2]


class Asked(torch.optim.SGD):
    """Lets `meanwhile` happen when it is first asked, by another thread than that of the training, what it
    holds."""

    meanwhile: Callable[[], None] | None = None

    @property
    def param_groups(self) -> Any:
        happening, trains = self.meanwhile, threading.current_thread() is threading.main_thread()
        if happening is not None and not trains:
            self.meanwhile = None
            happening()
        return self.__dict__["param_groups"]

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        self.__dict__["param_groups"] = groups


def test_a_backward_that_ends_while_another_looks_for_optimizers():
    """In threads of their own: the step is that of the optimizer all the same, and has both gradients."""
    model = nn.ModuleDict({"a": nn.Linear(8, 3), "b": nn.Linear(8, 2)})
    model.forward = lambda x: (model["a"](x), model["b"](x))
    asked = []

    def in_a_thread(backward: Callable[[], None]) -> None:
        thread = threading.Thread(target=backward)
        thread.start()
        thread.join()

    def train(writer: Any) -> None:
        watch = writer.watch(model, log_freq=1)
        optimizer = Asked(model.parameters(), 0.1)
        first, second = (out.square().sum() for out in model(X))
        optimizer.meanwhile = lambda: (asked.append(True), in_a_thread(second.backward))
        in_a_thread(first.backward)
        optimizer.step()
        assert watch.faults.list() == []

    recorded = record(train)
    assert asked
    assert recorded.steps == [0]
    for side in model:
        row = recorded.row(side, "output", "grad", "output")
        assert row["status"] == Status.OK, side
        assert row["mean"] > 0
