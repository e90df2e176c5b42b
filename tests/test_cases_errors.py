"""Public faults of tools like this one, by the rows' numbers: what raises while the model trains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from cases import Lambda, X, edges, squared, train
from recording import Recorded, assert_row_holds, record
from torch import Tensor, nn

from tensorboard_torchexplorer.capture.structure import StructureTracer
from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter


class Fails(nn.Module):
    """Raises at chosen calls."""

    def __init__(self, error: BaseException, at: set[int]) -> None:
        super().__init__()
        self.error, self.at, self.calls = error, at, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls - 1 in self.at:
            raise self.error
        return x


class Interrupted(nn.Module):
    """Catches what no hook is told of, at its first call `within`."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Linear(4, 4), Interrupts())
        self.b, self.shared = nn.Linear(4, 4), nn.ReLU()
        self.c = CallsWhatItIsGiven()

    def forward(self, x: Tensor) -> Tensor:
        try:
            x = self.a(x)
        except KeyboardInterrupt:
            x = self.b(x)
        return self.c(self.shared(x), self.shared)


class Interrupts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyboardInterrupt


class CallsWhatItIsGiven(nn.Module):
    def forward(self, x: Tensor, function: nn.Module) -> Tensor:
        return function(x) * 2


def test_c47_an_interrupt_that_the_model_catches():
    recorded = train(Interrupted(), steps=2)

    assert recorded.ids() == [".", "a", "a/0", "a/1", "b", "shared", "c", "c/^shared"]
    for node in ("b", "shared", "c", "c/^shared"):
        assert recorded.status(node, "output", "grad", "output") == Status.OK
        assert recorded.status(node, "input", "value", recorded.node(node).inputs[0].name) == Status.OK


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("size mismatch"),
        KeyboardInterrupt(),
        StopIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("at", [0, 1], ids=["in the first step", "later"])
def test_c47_an_exception_in_the_forward(error, at):
    def steps(watched: bool) -> tuple[list[Tensor], Recorded | None, nn.Module]:
        torch.manual_seed(0)
        fails = Fails(error, {at})
        inner = nn.Sequential(nn.Linear(4, 4), fails, nn.Linear(4, 4))
        model, weights, caught = nn.Sequential(nn.Linear(4, 4), inner, nn.Dropout(0.5)), [], []

        def run(writer: ExplorerWriter | None) -> None:
            watch = writer.watch(model, log_freq=1, sample_n=None) if writer else None
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                try:
                    loss = model(X).square().mean()
                except type(error):
                    caught.append(step)
                    loss = model(X[:3]).square().mean()  # a smaller batch
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                weights.append(model[0].weight.detach().clone())
            assert caught == [at]
            if watch:
                assert watch.faults.list() == []

        if watched:
            return weights, record(run), model
        run(None)
        return weights, None, model

    plain, _, _ = steps(False)
    weights, recorded, model = steps(True)

    assert all(torch.equal(a, b) for a, b in zip(plain, weights, strict=True))
    assert recorded.steps == [0, 1, 2]
    assert recorded.row(".", "input", "value", "input", at)["size"] == 12  # of the batch that was trained on
    assert recorded.status("1/2", "output", "grad", "output", at) == Status.OK
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_c47_an_exception_in_the_backward():
    class Breaks(torch.autograd.Function):
        broken = True

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            if Breaks.broken:
                raise RuntimeError("in the backward")
            return gradient * 2

    def weights(watched: bool) -> tuple[Tensor, Recorded | None]:
        torch.manual_seed(0)
        Breaks.broken = True
        model = Lambda(lambda m, x: m.b(Breaks.apply(m.a(x))), a=nn.Linear(4, 4), b=nn.Linear(4, 4))

        def run(writer: ExplorerWriter | None) -> None:
            watch = writer.watch(model, log_freq=1, sample_n=None) if writer else None
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with pytest.raises(RuntimeError, match="in the backward"):
                model(X).square().mean().backward()
            optimizer.zero_grad()
            Breaks.broken = False
            for _ in range(2):
                model(X).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            if watch:
                assert watch.faults.list() == []

        if watched:
            recorded = record(run)
            return model.a.weight.detach(), recorded
        run(None)
        return model.a.weight.detach(), None

    plain, _ = weights(False)
    watched, recorded = weights(True)

    assert torch.equal(plain, watched)
    assert recorded.steps == [0, 1]
    assert recorded.status("a", "output", "grad", "output", 0) == Status.OK
    assert recorded.status("a", "output", "grad", "output", 1) == Status.OK


class Stopped(Exception):
    pass


def stop(*_: Any) -> None:
    raise Stopped


HOOKS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], Any]] = {
    "before a module": lambda m, o: m[1].register_forward_pre_hook(stop),
    "after a module": lambda m, o: m[1].register_forward_hook(stop),
    "after the model": lambda m, o: m.register_forward_hook(stop),
    "backward of a module": lambda m, o: m[0].register_full_backward_hook(stop),
    "gradient of a parameter": lambda m, o: m[0].weight.register_hook(stop),
    "gradient was added": lambda m, o: m[2].weight.register_post_accumulate_grad_hook(stop),
    "before the optimizer": lambda m, o: o.register_step_pre_hook(stop),
    "after the optimizer": lambda m, o: o.register_step_post_hook(stop),
}


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """Gives the gradient of the first layer."""
    squared(model).backward()
    gradient = model[0].weight.grad.clone()
    optimizer.step()
    return gradient


@pytest.mark.filterwarnings("ignore:Full backward hook is firing when gradients are computed")
@pytest.mark.parametrize("place", HOOKS)
def test_c47_an_exception_in_a_hook_of_the_user(place):
    """The step is tried again without the hook, as after running out of memory."""

    def run(writer: ExplorerWriter | None) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
        watch = writer.watch(model, log_freq=1, sample_n=None) if writer else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        used = []
        for step in range(3):
            if step == 1:
                handle = HOOKS[place](model, optimizer)
                with pytest.raises(Stopped):
                    one_step(model, optimizer)
                handle.remove()
                optimizer.zero_grad()
            used.append(one_step(model, optimizer))
            optimizer.zero_grad()
        if watch:
            assert watch.faults.list() == []
        return used

    watched: list[Tensor] = []
    recorded = record(lambda writer: watched.extend(run(writer)))

    assert all(torch.equal(*pair) for pair in zip(watched, run(None), strict=True))
    gradients = recorded.series["0", "param", "grad", "weight"]
    assert len(gradients) == 3
    for step, (row, gradient) in enumerate(zip(gradients, watched, strict=True)):
        if (place, step) != ("after the optimizer", 1):  # it had stepped already
            assert_row_holds(row, gradient)


def test_c47_a_generator_that_is_closed_and_a_forward_that_a_hook_ends():
    """`features(x, until=layer)` as it is often written: a hook raises what its caller catches."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.head = nn.Linear(4, 2)

        def states(self, x: Tensor) -> Iterator[Tensor]:
            for layer in self.layers:
                x = layer(x)
                yield x

        def forward(self, x: Tensor) -> Tensor:
            states = self.states(x)
            x = next(states)
            states.close()
            found = []
            handle = self.layers[1].register_forward_hook(lambda m, args, out: found.append(out) or stop())
            try:
                list(self.states(x))
            except Stopped:
                pass
            finally:
                handle.remove()
            return self.head(found[0])

    recorded = train(Model(), steps=2)

    assert recorded.ids()[:5] == [".", "layers.0", "layers.0#1", "layers.1", "head"]
    assert edges(recorded) == {
        "input0 layers.0",
        "layers.0 layers.0#1",
        "layers.0#1 layers.1",
        "layers.1 head",
        "head output0",
    }
    for node in ("layers.0", "layers.0#1", "head"):
        assert recorded.status(node, "output", "grad", "output") == Status.OK


def test_c47_an_interrupt_as_the_tracing_of_a_forward_is_about_to_end(tmp_path):
    """Python raises it where a function begins: before the end has done anything."""
    apply, ends = torch.autograd.Function.__dict__["apply"], StructureTracer.__exit__.__code__
    met: list[int] = []

    def trace(frame, event, argument):
        if event == "call" and frame.f_code is ends and not met:
            met.append(1)
            raise KeyboardInterrupt

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    former = sys.gettrace()
    with ExplorerWriter(tmp_path) as writer:
        watch = writer.watch(model, log_freq=1)
        sys.settrace(trace)
        try:
            with pytest.raises(KeyboardInterrupt):
                model(X)
        finally:
            sys.settrace(former)
        assert torch._C._len_torch_dispatch_stack() == 0
        assert torch.autograd.Function.__dict__["apply"] is apply
        assert not any(module._forward_hooks for module in model.modules())
        model(X).mean().backward()
        assert watch.recorded == 1
        assert watch.faults.list() == []
