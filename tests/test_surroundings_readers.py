"""What else reads a model or calls it with tensors of another kind: exporters, transforms, summaries."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import Lambda, X, edges, squared, train
from recording import Recorded, assert_row_holds, record
from torch import Tensor, nn

from tensorboard_torchexplorer.writer import ExplorerWriter


def same_as_unwatched(
    use: Callable[[nn.Module], Any], build: Callable[[], nn.Module] | None = None
) -> Recorded:
    """`use(model)` gives the same for a watched model, which then trains and is recorded as ever."""

    def made() -> nn.Module:
        torch.manual_seed(0)
        return build() if build else nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))

    wanted = use(made())
    model = made()

    def run(writer: ExplorerWriter) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        got = use(model)
        if isinstance(wanted, Tensor):
            assert torch.equal(got, wanted)
        else:
            assert got == wanted
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        squared(model).backward()
        optimizer.step()
        assert all(fault.place == "a forward" for fault in watch.faults.list())  # said to be passed by

    recorded = record(run)
    assert_row_holds(recorded.row(".", "input", "value", "input"), X)
    return recorded


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")
def test_tracing_a_watched_model():
    def use(model: nn.Module) -> list[str]:
        traced = torch.jit.trace(model, X)
        assert torch.equal(traced(X), model.forward(X))
        return [node.kind() for node in traced.inlined_graph.nodes()]

    same_as_unwatched(use)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")
def test_scripting_a_watched_model():
    same_as_unwatched(lambda model: torch.jit.script(model)(X).detach())


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")
def test_add_graph_of_a_watched_model():
    def use(model: nn.Module) -> int:
        with tempfile.TemporaryDirectory() as folder, ExplorerWriter(folder) as writer:
            writer.add_graph(model, X)
        return 0

    same_as_unwatched(use)


def test_symbolic_tracing_of_a_watched_model():
    same_as_unwatched(lambda model: torch.fx.symbolic_trace(model).code)


def test_exporting_a_watched_model():
    same_as_unwatched(
        lambda model: [str(node.target) for node in torch.export.export(model, (X,)).graph.nodes]
    )


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    def use(model: nn.Module) -> tuple[int, ...]:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            return tuple(model(mode.from_tensor(X)).shape)

    same_as_unwatched(use)


def test_functional_training():
    """`torch.func.functional_call` under `torch.func.grad`: no `.backward()` and no optimizer at all."""

    def use(model: nn.Module) -> Tensor:
        parameters = {name: p.detach().clone() for name, p in model.named_parameters()}

        def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            return torch.func.functional_call(model, parameters, (x,)).square().mean()

        for _ in range(3):
            gradients = torch.func.grad(loss)(parameters, X)
            parameters = {name: p - 0.1 * gradients[name] for name, p in parameters.items()}
        per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, X)
        return torch.cat([g.sum(0).flatten() for g in per_sample.values()])

    same_as_unwatched(use)


def test_values_and_gradients_inside_a_transform():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    hidden = model[1](model[0](X)).detach().requires_grad_()
    model[2](hidden).square().mean().backward()

    def run(writer: ExplorerWriter) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        torch.func.grad(lambda p: torch.func.functional_call(model, p, (X,)).square().mean())(parameters)
        assert watch.faults.list() == []

    recorded = record(run)

    assert_row_holds(recorded.row("1", "output", "value", "output"), hidden)
    assert_row_holds(recorded.row("1", "output", "grad", "output"), hidden.grad.norm(dim=1), rel=1e-5)


@pytest.mark.parametrize("wrapped", [False, True], ids=["a function of modules", "a module"])
def test_values_and_gradients_of_mapped_modules(wrapped):
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    mapped = (lambda m: m.b) if wrapped else (lambda m: lambda row: m.b(row))
    model = Lambda(
        lambda m, x: m.c(torch.vmap(mapped(m))(m.a(x))), a=nn.Linear(4, 4), b=inner, c=nn.Linear(4, 3)
    )
    before = model.a(X).detach().requires_grad_()
    middle = inner[0](before)
    middle.retain_grad()
    model.c(inner[1](middle)).square().mean().backward()
    model.zero_grad()

    recorded = train(model)

    assert_row_holds(recorded.row("b/0", "output", "value", "output"), middle)
    assert_row_holds(recorded.row("b/0", "output", "grad", "output"), middle.grad.norm(dim=1), rel=1e-5)
    assert_row_holds(recorded.row("b", "input", "grad", "input"), before.grad.norm(dim=1), rel=1e-5)
    assert recorded.node("b").inputs[0].shape == [4]  # what the module sees


def test_summary_tools_that_hook_modules_themselves():
    """Hooks of others, put on during a logged forward and taken off after it."""
    model, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU(True)), []

    def loss(model: nn.Module) -> Tensor:
        handles = [
            m.register_forward_hook(lambda m, a, r: seen.append(tuple(r.shape))) for m in model.modules()
        ]
        value = squared(model)
        for handle in handles:
            handle.remove()
        return value

    recorded = train(model, loss, steps=2)

    assert seen == [(6, 4)] * 6
    assert edges(recorded) == {"input0 0", "0 1", "1 output0"}


def test_hooks_of_the_user_that_replace_values():
    """A pre-hook that changes the arguments, a hook that changes the result: what the module works on, and
    what its caller gets, are recorded."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    model[1].register_forward_pre_hook(lambda m, args: (args[0] * 3,))
    model[1].register_forward_hook(lambda m, args, result: result + 100)
    hidden = model[0](X) * 3
    out = model(X)

    recorded = train(model)

    assert_row_holds(recorded.row("1", "input", "value", "input"), hidden)
    assert_row_holds(recorded.row("1", "output", "value", "output"), out)
    assert_row_holds(recorded.row(".", "output", "value", "output"), out)
    assert edges(recorded) == {"input0 0", "0 1", "1 output0"}
