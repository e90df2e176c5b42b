"""Gradients in the records against gradients that are found by other means: steps and passes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from gradients import (
    Skip,
    X,
    assert_parameter_gradients,
    grads,
    parameter_gradients,
    sgd,
    squared,
    train_once,
)
from recording import assert_row_holds, clone_instrumented, norms, record
from torch import Tensor, nn

from tensorboard_torchexplorer.schema import HEALTH, Status


@pytest.mark.parametrize("to_none", [True, False])
def test_parameter_gradients_are_those_of_the_same_step(to_none):
    model, wanted = Skip(), []
    model.first.weight.requires_grad_(False)

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = sgd(model, 1e-6)
        for scale in (1, 10, 100):
            (model(X * scale)).square().mean().backward()
            wanted.append(grads(model))
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)

    recorded = record(train)
    assert_parameter_gradients(recorded, wanted)
    assert recorded.status("first", "param", "grad", "weight") == Status.FROZEN
    assert recorded.status("first", "param", "value", "weight") == Status.OK


@pytest.mark.parametrize("log_freq", [1, 3])
def test_accumulation_makes_one_record_with_the_sum(log_freq):
    model, wanted, steps = Skip(), [], 5

    def train(writer):
        writer.watch(model, log_freq=log_freq, sample_n=None)
        optimizer = sgd(model)
        for step in range(steps):
            for part in range(4):
                model(X * (part + 1)).square().mean().backward()
            if step % log_freq == 0:
                wanted.append(grads(model))
            optimizer.step()
            optimizer.zero_grad()

    recorded = record(train)
    assert recorded.steps == list(range(0, steps, log_freq))
    for at, gradients in enumerate(wanted):
        for name, row in parameter_gradients(recorded, at).items():
            assert_row_holds(row, gradients[name])
    assert recorded.history.infos[0].forwards == 4
    # Of the four batches the first is the one whose tensors are kept.
    assert_row_holds(recorded.row(".", "input", "value", "x"), X)


def test_two_forwards_and_one_backward_belong_to_the_first():
    model, other = Skip(), X * 3
    twin = copy.deepcopy(model)
    truth = clone_instrumented(twin)
    (twin(X) + twin(other)).square().sum().backward()

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = sgd(model)
        (model(X) + model(other)).square().sum().backward()
        optimizer.step()

    recorded = record(train)
    assert recorded.steps == [0]
    for path in ("first", "second", "last"):
        # Backward meets the second forward first.
        first = truth[path, "output", 0][-1]
        assert_row_holds(recorded.row(path, "output", "grad", "output"), norms(first), rel=1e-5)
        assert_row_holds(recorded.row(path, "input", "value", "input"), _inputs_of(twin, path)[0])
    assert_row_holds(parameter_gradients(recorded, 0)["last.weight"], twin.last.weight.grad, rel=1e-5)


def _inputs_of(model: nn.Module, path: str) -> list[Tensor]:
    """The inputs of a module in a fresh forward of X."""
    found: list[Tensor] = []
    handle = model.get_submodule(path).register_forward_pre_hook(lambda _m, args: found.append(args[0]))
    model(X)
    handle.remove()
    return found


def test_an_evaluation_between_forward_and_backward_changes_nothing():
    model = Skip()
    twin = copy.deepcopy(model)
    squared(twin).backward()

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = sgd(model)
        loss = squared(model)
        model.eval()
        with torch.no_grad():
            model(X * 100)
        model.train()
        loss.backward()
        optimizer.step()
        squared(model).backward()
        optimizer.step()

    recorded = record(train)
    assert recorded.steps == [0, 1]
    assert_row_holds(recorded.row(".", "input", "value", "x", 0), X)
    assert_row_holds(recorded.row("last", "param", "grad", "weight", 0), twin.last.weight.grad, rel=1e-5)


def test_two_passes_through_one_graph_are_both_in_the_record():
    model = Skip()
    out = model(X)
    once = torch.autograd.grad(out.sum(), out, retain_graph=True)[0]
    twice = torch.autograd.grad(out.square().mean(), out)[0]

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = sgd(model)
        out = model(X)
        out.sum().backward(retain_graph=True)
        out.square().mean().backward()
        train.sum = model.last.weight.grad.clone()
        optimizer.step()

    recorded = record(train)
    both = torch.cat([norms(once), norms(twice)])
    assert_row_holds(recorded.row(".", "output", "grad", "output"), both)
    assert_row_holds(recorded.row("last", "output", "grad", "output"), both)
    assert_row_holds(recorded.row("last", "param", "grad", "weight"), train.sum)


def test_a_gradient_penalty_records_the_gradient_of_the_loss():
    model = Skip()
    x = X.clone().requires_grad_()

    def penalised(m: nn.Module) -> Tensor:
        out = m(x)
        (inner,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return out.mean() + (inner.norm(dim=1) - 1).square().mean()

    twin = copy.deepcopy(model)
    penalised(twin).backward()
    recorded = train_once(model, penalised)
    # d loss / d out: the penalty does not depend on out itself, only on the weights.
    assert_row_holds(recorded.row("last", "output", "grad", "output"), norms(torch.full((6, 3), 1 / 18)))
    for name, parameter in twin.named_parameters():
        path, _, leaf = name.rpartition(".")
        if parameter.grad is not None:
            assert_row_holds(recorded.row(path, "param", "grad", leaf), parameter.grad, rel=1e-5)


def test_lbfgs_makes_one_record_per_step():
    model = Skip()

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)

        def closure():
            optimizer.zero_grad()
            loss = squared(model)
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
            train.last = grads(model)

    recorded = record(train)
    assert recorded.steps == [0, 1]
    assert recorded.history.infos[0].forwards > 1
    for name, row in parameter_gradients(recorded, 1).items():
        assert_row_holds(row, train.last[name])


@pytest.mark.parametrize("accumulated", [0, 1])
def test_a_closure_shows_parameters_before_the_update_and_gradients_as_they_were_used(accumulated):
    """As Lightning steps: backward and clipping run inside of the optimizer's step."""
    model, before, used = Skip(), {}, {}

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = sgd(model)

        def closure():
            loss = 3 * squared(model)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            return loss

        for step in range(2):
            before[step] = {name: p.detach().clone() for name, p in model.named_parameters()}
            for _ in range(accumulated):
                squared(model).backward()
            optimizer.step(closure)
            used[step] = grads(model)
            optimizer.zero_grad()

    recorded = record(train)

    assert recorded.steps == [0, 1]
    assert recorded.history.infos[1].forwards == 1 + accumulated
    for step in range(2):
        for name, row in parameter_gradients(recorded, step).items():
            assert_row_holds(row, used[step][name])
            path, _, leaf = name.rpartition(".")
            assert_row_holds(recorded.row(path, "param", "value", leaf, step), before[step][name])
        node = recorded.graph.nodes.index(recorded.node("last"))
        wanted = max(
            float(0.1 * used[step][f"last.{name}"].norm() / before[step][f"last.{name}"].norm())
            for name in ("weight", "bias")
        )
        update = recorded.history.health()[step, node, HEALTH.index("update")]
        assert update == pytest.approx(wanted, rel=0.01)


def test_a_gan_has_two_histories():
    maker, critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 1))
    noise, wanted = torch.randn(6, 4), []

    def train(writer):
        writer.watch(maker, "maker", log_freq=1, sample_n=None)
        writer.watch(critic, "critic", log_freq=1, sample_n=None)
        for_maker, for_critic = sgd(maker), sgd(critic)
        for _ in range(3):
            for_critic.zero_grad()
            (critic(maker(noise).detach()).mean() - critic(X).mean()).backward()
            critic_gradients = grads(critic)
            for_critic.step()
            for_maker.zero_grad()
            (-critic(maker(noise)).mean()).backward()
            wanted.append((grads(maker), critic_gradients))
            for_maker.step()

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        made = record(train, model_name="maker", logdir=folder)
        from recording import read_back

        judged = read_back(folder, "critic")
    assert_parameter_gradients(made, [pair[0] for pair in wanted])
    assert_parameter_gradients(judged, [pair[1] for pair in wanted])


def test_without_an_optimizer_each_backward_is_a_step():
    model, wanted = Skip(), []

    def train(writer):
        writer.watch(model, log_freq=2, sample_n=None)
        for step in range(5):
            squared(model).backward()
            if step % 2 == 0:
                wanted.append(grads(model))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None

    recorded = record(train)
    assert recorded.steps == [0, 2, 4]
    for at, gradients in enumerate(wanted):
        for name, row in parameter_gradients(recorded, at).items():
            assert_row_holds(row, gradients[name])


def test_two_optimizers_of_one_model_share_a_step():
    model, wanted = Skip(), []

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        one, two = sgd(model.first), torch.optim.Adam([*model.second.parameters(), *model.last.parameters()])
        for _ in range(3):
            squared(model).backward()
            wanted.append(grads(model))
            one.step()
            two.step()
            one.zero_grad()
            two.zero_grad()

    assert_parameter_gradients(record(train), wanted)


class Clipped(torch.optim.AdamW):
    """Does something before the step of its base; the second of its steps fails within that."""

    calls = 0

    def step(self, closure: Any = None) -> Any:
        self.calls += 1
        if self.calls == 2:
            self.param_groups[0]["lr"] = "fails"
            try:
                return super().step(closure)
            finally:
                self.param_groups[0]["lr"] = 1e-3
        return super().step(closure)


def test_the_step_of_a_base_class_is_no_step_of_its_own():
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # torch puts hooks around a class with its first
    model, wanted = Skip(), []

    def train(writer):
        watch = writer.watch(model, log_freq=1, sample_n=None)
        optimizer = Clipped(model.parameters(), lr=1e-3)
        for step in range(4):
            squared(model).backward()
            if step == 1:
                with pytest.raises(TypeError):
                    optimizer.step()
            else:
                wanted.append(grads(model))
                optimizer.step()
                assert watch.step == len(wanted)
            optimizer.zero_grad()

    assert_parameter_gradients(record(train), wanted)


def test_frozen_layers_unfrozen_and_adapters_added_later():
    model, wanted = Skip(), []
    model.first.requires_grad_(False)

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        for step in range(3):
            if step == 1:
                model.first.requires_grad_(True)
            if step == 2:
                model.second = nn.Sequential(model.second, nn.Linear(8, 8))
                model.last.weight = nn.Parameter(torch.ones(3, 8))
            optimizer = sgd(model)
            squared(model).backward()
            wanted.append(grads(model))
            optimizer.step()
            optimizer.zero_grad()

    recorded = record(train)
    assert recorded.steps == [0, 1, 2]
    frozen = recorded.series["first", "param", "grad", "weight"]
    assert [int(row["status"]) for row in frozen] == [Status.FROZEN, Status.OK, Status.OK]
    assert_row_holds(frozen[1], wanted[1]["first.weight"])
    added = recorded.series["second.1", "param", "grad", "weight"]
    assert [int(row["status"]) for row in added] == [Status.NOT_RUN, Status.NOT_RUN, Status.OK]
    assert_row_holds(added[2], wanted[2]["second.1.weight"])
    assert_row_holds(recorded.row("last", "param", "value", "weight"), torch.ones(3, 8))
