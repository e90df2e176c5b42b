"""Gradients in the records against gradients that are found by other means."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gradients import (
    Skip,
    X,
    compare_with_clones,
    sgd,
    squared,
    train_once,
)
from recording import assert_row_holds, norms, record
from torch import Tensor, nn
from torch.nn import functional as F

from tensorboard_torchexplorer.schema import Status


class Shared(nn.Module):
    """One module called three times, at two levels."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(8, 8)
        self.inner = nn.Sequential(nn.Tanh(), self.shared)

    def forward(self, x: Tensor) -> Tensor:
        return self.shared(self.inner(self.shared(x).sigmoid()))


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, flag: bool = True) -> dict[str, Any]:
        y = self.linear(x)
        return {"a": y, "b": [self.scale(y, factor=y.exp()), None, "text"], "flag": flag}


class Scale(nn.Module):
    def forward(self, x: Tensor, *, factor: Tensor) -> Tensor:
        return x * factor


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.LSTM(8, 5, batch_first=True), nn.LSTM(5, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out, (_, cell) = self.one(x.unsqueeze(1).repeat(1, 3, 1))
        out, (hidden, _) = self.two(out, (cell.tanh(), cell))
        return out.sum(1) + hidden[0]


class Slices(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x[:, :4], x[:, 4:]
        return torch.cat([self.left(left), self.right(right) * left], 1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1).repeat(1, 3, 1)
        y, weights = self.attention(x + 1, x * 2, x - 1, need_weights=False)
        assert weights is None
        return self.norm(x + y)


def of_dict(model: nn.Module) -> Tensor:
    out = model(x=X, flag=False)
    return out["a"].sum() + out["b"][0].square().mean()


MODELS = {
    "chain": (lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), squared),
    "skip connection": (Skip, squared),
    "shared module": (Shared, squared),
    "keywords, dict result": (Keywords, of_dict),
    "recurrent states": (Recurrent, squared),
    "slices of the input": (Slices, squared),
    "attention without weights": (Attention, squared),
    "convolutions, channels last": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Flatten()
        ).to(memory_format=torch.channels_last),
        squared,
    ),
    "dropout": (lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3)), squared),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_those_of_a_cloned_twin(name):
    compare_with_clones(*MODELS[name])


def test_gradients_equal_autograd_grad_on_a_skip_connection():
    torch.manual_seed(0)
    model = Skip()
    first = model.first(X)
    hidden = first.tanh()
    second = model.second(hidden)
    out = model.last(hidden + second)
    loss = out.square().mean()
    wanted = torch.autograd.grad(loss, [first, hidden, second, out], retain_graph=True)
    through_second = torch.autograd.grad(second, hidden, wanted[2], retain_graph=True)[0]

    recorded = train_once(model, squared)

    assert_row_holds(recorded.row("first", "output", "grad", "output"), norms(wanted[0]))
    assert_row_holds(recorded.row("second", "output", "grad", "output"), norms(wanted[2]))
    assert_row_holds(recorded.row("last", "output", "grad", "output"), norms(wanted[3]))
    # Through this invocation only: the skip around it carries the rest of d loss / d hidden.
    assert_row_holds(recorded.row("second", "input", "grad", "input"), norms(through_second))
    assert not torch.allclose(norms(through_second), norms(wanted[1]))


def test_a_branch_without_gradient_says_so():
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.cut = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x) + self.cut(x).detach()

    recorded = train_once(Branches(), squared)
    assert recorded.status("cut", "output", "grad", "output") == Status.NO_GRADIENT
    assert recorded.status("cut", "param", "grad", "weight") == Status.NO_GRADIENT
    assert recorded.status("used", "input", "grad", "input") == Status.REQUIRES_NONE
    assert recorded.status(".", "input", "grad", "x") == Status.ROOT_INPUT


def test_integer_inputs_have_values_and_no_gradient():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))
    ids = torch.arange(6)
    recorded = train_once(model, lambda m: m(ids).square().mean())
    assert_row_holds(recorded.row("0", "input", "value", "input"), ids)
    assert recorded.status("0", "input", "grad", "input") == Status.NOT_DIFFERENTIABLE


def test_hooks_of_the_user_run_as_before():
    def run(watched: bool) -> tuple[list[str], Tensor]:
        torch.manual_seed(0)
        model, log = Skip(), []
        model.second.register_forward_hook(lambda *_: log.append("forward"))
        model.second.register_full_backward_hook(lambda *_: log.append("backward"))
        model.last.weight.register_hook(lambda g: g * 2)

        def train(writer):
            if watched:
                writer.watch(model, log_freq=1, sample_n=None)
            optimizer = sgd(model)
            squared(model).backward()
            optimizer.step()

        if watched:
            recorded = record(train)
            assert recorded.status("second", "output", "grad", "output") == Status.OK
            assert recorded.status("second", "input", "grad", "input") == Status.OK
        else:
            train(None)
        return log, model.last.weight.detach()

    plain, watched = run(False), run(True)
    assert plain[0] == watched[0] == ["forward", "backward"]
    assert torch.equal(plain[1], watched[1])


def test_loss_functions_as_part_of_the_model():
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 3)

        def forward(self, x: Tensor, target: Tensor) -> Tensor:
            return F.cross_entropy(self.linear(x), target)

    target = torch.tensor([0, 1, 2, 0, 1, 2])
    model = WithLoss()
    logits = model.linear(X)
    (wanted,) = torch.autograd.grad(F.cross_entropy(logits, target), logits)
    recorded = train_once(model, lambda m: m(X, target))
    assert_row_holds(recorded.row("linear", "output", "grad", "output"), norms(wanted))
    assert_row_holds(recorded.row(".", "output", "grad", "output"), torch.ones(1))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, *, more: dict[str, Any]) -> Tensor:
        x += 1  # a forward may write to its input
        return self.linear(x) * more["scale"] + more["ids"]


def test_gradients_of_the_models_inputs_are_recorded_on_request():
    torch.manual_seed(0)
    model, scale, ids = TwoInputs(), torch.rand(6, 1), torch.arange(8)
    x, factor = X.clone().requires_grad_(), scale.clone().requires_grad_()
    loss = (model.linear(x + 1) * factor + ids).square().mean()
    wanted = torch.autograd.grad(loss, [x, factor])
    losses = []

    def loss_of(m: nn.Module) -> Tensor:
        result = m(X.clone(), more={"scale": scale, "ids": ids}).square().mean()
        losses.append(result)
        return result

    recorded = train_once(model, loss_of, root_input_grad=True)
    assert torch.equal(losses[0], loss)
    assert_row_holds(recorded.row(".", "input", "grad", "x"), norms(wanted[0]))
    assert_row_holds(recorded.row(".", "input", "grad", "more.scale"), norms(wanted[1]))
    assert recorded.status(".", "input", "grad", "more.ids") == Status.NOT_DIFFERENTIABLE
    assert_row_holds(recorded.row(".", "input", "value", "x"), X)
    assert not scale.requires_grad


class Unclonable(Tensor):
    """A class of the user's that refuses to be copied."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.clone:
            raise TypeError("not to be copied")
        return super().__torch_function__(function, types, args, kwargs or {})


def test_inputs_that_can_require_no_gradient_are_left_as_they_are():
    """Those under a transform of torch.func, and those that can't be copied."""

    def loss_at(step: int, model: nn.Module) -> Tensor:
        if step == 1:
            return model(X.as_subclass(Unclonable)).square().mean()
        return torch.vmap(model)(X).square().mean()

    def train(writer) -> list[Tensor]:
        torch.manual_seed(0)
        model, found = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), []
        watch = writer.watch(model, log_freq=1, root_input_grad=True) if writer else None
        optimizer = sgd(model)
        for step in range(3):
            loss_at(step, model).backward()
            found.append(model[0].weight.grad.clone())
            optimizer.step()
            optimizer.zero_grad()
        if watch:
            assert [fault.place for fault in watch.faults.list()] == ["the gradients of the inputs"]
        return found

    watched: list[Tensor] = []
    recorded = record(lambda writer: watched.extend(train(writer)))

    assert all(torch.equal(*pair) for pair in zip(watched, train(None), strict=True))
    assert recorded.steps == [0, 1, 2]
    assert recorded.status("0", "output", "grad", "output", 1) == Status.OK
