"""Gradients in the records against gradients that are found by other means."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorboard_torchexplorer.schema import HEALTH, Status
from tests.recording import Recorded, assert_row_holds, clone_instrumented, norms, record


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)


def train_once(model: nn.Module, loss: Callable[[nn.Module], Tensor], **options: Any) -> Recorded:
    """One watched step with everything sampled."""

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None, **options)
        optimizer = sgd(model)
        loss(model).backward()
        optimizer.step()
        optimizer.zero_grad()

    return record(train)


def compare_with_clones(build: Callable[[], nn.Module], loss: Callable[[nn.Module], Tensor]) -> Recorded:
    """Every recorded gradient equals that of a twin whose tensors are cloned at each module's border, and
    the twin's gradients are all recorded."""
    torch.manual_seed(0)
    model = build()
    twin = copy.deepcopy(model)
    truth = clone_instrumented(twin)
    torch.manual_seed(1)
    loss(twin).backward()
    torch.manual_seed(1)
    recorded = train_once(model, loss)
    seen: dict[tuple[str, str, int], int] = {}
    compared = 0
    for node in recorded.graph.nodes:
        module = recorded.graph.modules[node.module]
        for group, ports in (("input", node.inputs), ("output", node.outputs)):
            for index, port in enumerate(ports):
                key = (module.path, group, index)
                row = recorded.row(node.id, group, "grad", port.name)
                if not port.requires_grad or key not in truth:
                    assert row["status"] != Status.OK, (node.id, group, port.name)
                    continue
                passes = truth[key]
                call = seen.get(key, 0)
                seen[key] = call + 1
                # The backward meets the calls of a module in reverse.
                gradient = passes[len(passes) - 1 - call]
                assert_row_holds(row, norms(gradient), rel=1e-5)
                compared += 1
    assert compared >= len(truth)
    for name, parameter in twin.named_parameters():
        path, _, leaf = name.rpartition(".")
        assert_row_holds(recorded.row(path, "param", "grad", leaf), parameter.grad, rel=1e-5)
    return recorded


X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).tanh()
        return self.last(hidden + self.second(hidden))


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


def squared(model: nn.Module) -> Tensor:
    return model(X).square().mean()


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


class HandsThrough(nn.Module):
    """Returns its argument beside what it makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, self.side(x * 2)


class UsesThenWrites(nn.Module):
    """Writes to its argument after it has used it, by an operator that does not need it in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        side = self.side(x * 2)
        x.mul_(3)
        return x.tanh() + side + x


class Around(nn.Module):
    """`middle` between two layers; what it has returned is written to if `then` says so."""

    def __init__(self, middle: nn.Module, then: Callable[[Tensor], Any] = lambda h: None) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 8), middle, nn.Linear(8, 3)
        self.then = then

    def forward(self, x: Tensor) -> Tensor:
        h = self.middle(self.first(x))
        h, side = h if isinstance(h, tuple) else (h, 0)
        self.then(h)
        return self.last(h + side)


@pytest.mark.parametrize("shape", [(6, 8), (3, 2, 8)], ids=["plain", "views of the matrix product"])
@pytest.mark.parametrize(
    "middle",
    [
        lambda: nn.Dropout(0.0),
        lambda: nn.Sequential(nn.Sequential(nn.Identity()), nn.Sequential()),
        lambda: nn.Sequential(nn.Identity(), HandsThrough()),
        UsesThenWrites,
    ],
    ids=["dropout of nothing", "nested", "beside another result", "written to inside"],
)
@pytest.mark.parametrize("then", [lambda h: None, lambda h: h[..., 1:3].zero_()], ids=["", "zero_"])
def test_gradients_of_what_is_handed_through_and_written_to(middle, then, shape):
    x = X.reshape(shape)
    compare_with_clones(lambda: Around(middle(), then), lambda m: m(x).square().mean())


class InPlace(nn.Module):
    """`out += identity` and in-place activations, on convolution outputs and on linear views."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        identity = self.first(x)
        out = self.second(identity)
        out += identity
        return self.relu(out)


@pytest.mark.parametrize("shape", [(6, 8), (3, 2, 8)], ids=["plain", "views of the matrix product"])
def test_in_place_residual_and_activation(shape):
    torch.manual_seed(0)
    model, x = InPlace(), X.reshape(shape)
    first = model.first(x)
    second = model.second(first)
    total = second + first
    out = total.relu()
    loss = out.square().mean()
    wanted = torch.autograd.grad(loss, [first, second, total, out])

    recorded = train_once(model, lambda m: m(x).square().mean())

    assert_row_holds(recorded.row("relu", "output", "grad", "output"), norms(wanted[3]))
    assert_row_holds(recorded.row("relu", "input", "grad", "input"), norms(wanted[2]))
    assert_row_holds(recorded.row("second", "output", "grad", "output"), norms(wanted[1]))
    assert_row_holds(recorded.row("first", "output", "grad", "output"), norms(wanted[0]))
    # Values are those before the next module overwrites them, and after it has.
    assert_row_holds(recorded.row("second", "output", "value", "output"), second)
    assert_row_holds(recorded.row("relu", "input", "value", "input"), total)
    assert_row_holds(recorded.row("relu", "output", "value", "output"), out)


def test_a_slice_write_changes_the_gradient_of_what_it_overwrote():
    class Write(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.patch = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.base(x)
            y[:, 2:5] = self.patch(x)
            return y

    torch.manual_seed(0)
    model = Write()
    base, patch = model.base(X), model.patch(X)
    loss = torch.cat([base[:, :2], patch, base[:, 5:]], 1).square().mean()
    wanted = torch.autograd.grad(loss, [base, patch])

    recorded = train_once(model, squared)

    assert_row_holds(recorded.row("base", "output", "grad", "output"), norms(wanted[0]))
    assert_row_holds(recorded.row("patch", "output", "grad", "output"), norms(wanted[1]))


def parameter_gradients(recorded: Recorded, at: int) -> dict[str, Any]:
    rows = {}
    for key, series in recorded.series.items():
        if key.group == "param" and key.kind == "grad":
            rows[f"{key.node}.{key.name}" if key.node else key.name] = series[at]
    return rows


def assert_parameter_gradients(recorded: Recorded, wanted: list[dict[str, Tensor]]) -> None:
    assert recorded.steps == list(range(len(wanted)))
    for at, gradients in enumerate(wanted):
        rows = parameter_gradients(recorded, at)
        assert set(gradients) <= set(rows)
        for name, gradient in gradients.items():
            assert_row_holds(rows[name], gradient)


def grads(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


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
        from tests.recording import read_back

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
