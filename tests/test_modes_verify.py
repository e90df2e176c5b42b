"""`verify`: what it finds identical, and that it finds what is not."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from tensorboard_torchexplorer import ExplorerWriter, verify
from tensorboard_torchexplorer.capture.values import ValueObserver
from tensorboard_torchexplorer.selftest import _digest
from tests.recording import read_back

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 3)
    )


def loss_of(model, step):
    return model(X + step + np.random.rand() + random.random()).square().mean()


def test_watching_an_ordinary_model_is_found_identical():
    report = verify(model(), loss_of, steps=4)

    assert report.identical
    assert report.verdict == "identical"
    assert (report.recorded, report.faults, report.difference) == (4, [], None)
    assert str(report) == f"identical: {report.compared} values over 4 steps, 4 of them recorded"
    # Six parameters and their gradients, 3 buffers, 6 states of momentum ...
    assert report.compared > 4 * (6 + 6 + 3 + 6)


@pytest.mark.parametrize(
    "optimizer",
    [torch.optim.Adam, torch.optim.LBFGS, lambda p: torch.optim.SGD(p, lr=0.1, nesterov=True, momentum=0.5)],
)
def test_other_optimizers(optimizer):
    if optimizer is torch.optim.LBFGS:
        with pytest.raises(TypeError, match="closure"):
            verify(model(), loss_of, optimizer=optimizer)
    else:
        assert verify(model(), loss_of, optimizer=optimizer, log_freq=2, steps=3).recorded == 2


def test_options_reach_the_watch():
    assert verify(model(), loss_of, exact=True, sample_n=None, root_input_grad=True).identical
    with pytest.raises(ValueError, match="bins=0"):
        verify(model(), loss_of, bins=0)


class Twofold(nn.Module):
    """Holds a tensor that wraps two others, as quantized weights do."""

    def __init__(self, second: float) -> None:
        super().__init__()
        weight = torch.arange(64.0).reshape(8, 8)
        self.scale = nn.Parameter(TwoTensor(weight, weight * second), requires_grad=False)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(x * self.scale.a.sum())


def test_tensors_that_wrap_others_are_compared_by_what_is_in_them():
    """A wrapper itself lets hardly any operator read it."""
    assert _digest(Twofold(1.0).scale) == _digest(Twofold(1.0).scale)
    assert _digest(Twofold(1.0).scale) != _digest(Twofold(2.0).scale)

    report = verify(Twofold(1.0), loss_of)
    assert (report.identical, report.faults) == (True, [])


def test_nothing_of_the_caller_is_changed():
    net = model()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    with torch.no_grad():
        verify(net, loss_of)

        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert random.getstate() == states[2]
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert net.training
    assert "_compiled_call_impl" not in vars(net)


def disturb(monkeypatch, what):
    """Make the recording of values do something that it must never do."""
    original = ValueObserver.leave

    def leave(self, call, tensors):
        if call.path == "0":
            what(tensors)
        original(self, call, tensors)

    monkeypatch.setattr(ValueObserver, "leave", leave)


def change(tensors):
    with torch.no_grad():
        tensors[0].data.view(-1)[0] += 1e-3


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (change, "output output"),
        (lambda tensors: torch.rand(1), "output output"),  # dropout draws other numbers
        (lambda tensors: random.random(), "random numbers of Python"),
    ],
)
def test_a_difference_is_found_and_named(what, name, monkeypatch):
    disturb(monkeypatch, what)
    report = verify(model(), loss_of)

    assert report.verdict == "different"
    assert not report.identical
    assert report.difference.name == name
    assert str(report) == f"different: watching changes {name} at step {report.difference.step}"


def test_a_draw_of_random_numbers_is_found_even_where_nothing_depends_on_it(monkeypatch):
    disturb(monkeypatch, lambda tensors: np.random.rand())
    report = verify(nn.Sequential(nn.Linear(8, 3)), lambda model, step: model(X).sum())

    assert report.difference == (0, "random numbers of numpy")


def test_a_changed_gradient_is_named(monkeypatch):
    disturb(monkeypatch, lambda tensors: tensors[0].register_hook(lambda gradient: gradient * 2))
    report = verify(nn.Sequential(nn.Linear(8, 3)), lambda model, step: model(X).sum())

    assert report.difference == (0, "gradient of 0.weight")


def test_an_attribute_left_on_a_module_is_named(monkeypatch):
    net = nn.Sequential(nn.Linear(8, 3))
    original = ValueObserver.leave

    def leave(self, call, tensors):
        original(self, call, tensors)
        call.module.left_behind = True

    monkeypatch.setattr(ValueObserver, "leave", leave)
    report = verify(net, lambda model, step: model(X).sum())

    assert report.difference == (3, "the attributes of module ''")


def test_training_that_is_not_deterministic_is_told_apart():
    draws = iter(range(100))
    report = verify(model(), lambda model, step: (model(X) * next(draws)).sum())

    assert report.verdict == "not deterministic"
    assert report.difference.name == "the loss"
    assert "two trainings without watching differ in the loss at step 0" in str(report)


def test_what_could_not_be_recorded_is_in_the_report(monkeypatch):
    def broken(tensors):
        raise RuntimeError("no memory left")

    disturb(monkeypatch, broken)
    report = verify(model(), loss_of)

    assert report.identical
    assert [(fault.path, fault.place) for fault in report.faults] == [("0", "the outputs")]
    assert "not recorded: the outputs of 0: RuntimeError: no memory left" in str(report)


def test_all_kinds_of_tensors_are_compared():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(20, 4, sparse=True)
            self.lazy = nn.LazyLinear(4)
            self.small = nn.Linear(4, 2, dtype=torch.bfloat16)
            self.phase = nn.Parameter(torch.randn(4, dtype=torch.complex64))
            self.frozen = nn.Linear(2, 2).requires_grad_(False)
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, ids):
            self.count += 1
            hidden = self.lazy(self.table(ids)) * self.phase.abs()
            return {"out": self.small(hidden.bfloat16()), "conj": self.phase.conj(), "n": 3}

    ids = torch.randint(0, 20, (5,), generator=torch.Generator().manual_seed(0))

    def loss(model, step):
        out = model(ids)
        return out["out"].float().square().mean(), {"extra": out["out"].detach(), "step": step}

    report = verify(Odd(), loss, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    assert report.identical
    assert report.recorded == 3


def test_a_watched_model_can_be_verified(tmp_path):
    net = model()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(net, log_freq=1)
        assert verify(net, loss_of).identical
        net(X).sum().backward()
        torch.optim.SGD(net.parameters(), lr=0.1).step()

    assert read_back(str(tmp_path)).steps == [0]


def test_without_trainable_parameters_and_without_gradients():
    assert verify(nn.Softmax(-1), lambda model, step: model(X).sum(), steps=1).identical


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"model": 3}, "verify: model=3 is not"),
        ({"batch_fn": 3}, "verify: batch_fn=3 is not"),
        ({"steps": 0}, "verify: steps=0 is not"),
        ({"steps": True}, "verify: steps=True is not"),
        ({"batch_fn": lambda model, step: model(X)}, "verify: batch_fn returned a tensor of shape"),
        ({"batch_fn": lambda model, step: 1.0}, "verify: batch_fn returned float"),
    ],
)
def test_wrong_arguments_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        verify(**{"model": model(), "batch_fn": loss_of, **arguments})
