"""What tracing does to a model, to memory, to other threads and to time: nothing, or little."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from levels import Traced, chains
from models import CASES
from models_nograd import MarkedNonDifferentiable
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tensorboard_torchexplorer.capture.calls import Call
from tensorboard_torchexplorer.capture.provenance import Provenance
from tensorboard_torchexplorer.capture.structure import StructureTracer
from tensorboard_torchexplorer.schema import End

PLAIN_APPLY = torch.autograd.Function.__dict__["apply"]


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """After each test: no mode, no patch, no hook of ours."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch.autograd.Function.__dict__["apply"] is PLAIN_APPLY


def states() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()


def trained(name: str, traced: bool) -> dict[str, Any]:
    """All that two steps of training leave behind."""
    model, run = CASES[name].build()
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    losses = []
    for _ in range(2):
        if traced:
            forward = Traced(model, run)
            assert forward.faults == []
            loss = forward.result
        else:
            loss = run(model)
        losses.append(None if loss is None else loss.detach().clone())
        if loss is not None and loss.requires_grad:
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.1 * parameter.grad
    state = {f"state {key}": value for key, value in model.state_dict().items()}
    gradients = {f"gradient {key}": parameter.grad for key, parameter in model.named_parameters()}
    return {**state, **gradients, "losses": losses, "random": states()}


def assert_same(ours: Any, theirs: Any, where: str) -> None:
    assert type(ours) is type(theirs), where
    if isinstance(ours, Tensor):
        assert ours.is_meta or torch.equal(ours, theirs), where
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs), where
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{where}[{number}]")
    else:
        assert ours == theirs, where


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("default")  # of torch's older features, which some models are about
def test_training_is_bitwise_the_same(name: str) -> None:
    plain, traced = trained(name, traced=False), trained(name, traced=True)

    assert plain.keys() == traced.keys()
    for key, value in plain.items():
        assert_same(traced[key], value, key)


def graph(loss: Any) -> list[str]:
    """The nodes behind a loss, in the order in which they were made."""
    if loss is None or loss.grad_fn is None:
        return []
    nodes, seen = [loss.grad_fn], {loss.grad_fn}
    for node in nodes:
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                nodes.append(before)
    nodes.sort(key=lambda node: (node._sequence_nr(), node.name()))
    # Under any dispatch mode, torch takes the one for the other. Both only give a tensor another shape.
    return [node.name().replace("ReshapeAlias", "View") for node in nodes]


# TorchScript rewrites its graphs when it runs them for the second time.
@pytest.mark.parametrize("name", [name for name in CASES if name != "scripted"])
@pytest.mark.filterwarnings("default")  # of torch's older features, which some models are about
def test_the_graph_is_made_in_the_same_order(name: str) -> None:
    """That order is also the order of the backward, in which gradients are summed."""
    model, run = CASES[name].build()
    plain = graph(run(model))
    model, run = CASES[name].build()

    assert graph(Traced(model, run).result) == plain


def test_results_are_the_same_objects() -> None:
    kept: list[Tensor] = []

    class Keeps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            kept.append(x * 2)
            return kept[-1]

    traced = Traced(Keeps(), lambda model: model(torch.ones(2)))

    assert traced.result is kept[0]


def test_hooks_of_the_user_see_every_operator_once() -> None:
    """Modes and tensor subclasses of the user meet the same calls as without tracing."""

    class CountsFunctions(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    class CountsOperators(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    class Counted(Tensor):
        count = 0

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.count += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    def run(model: nn.Module) -> tuple[int, ...]:
        Counted.count = 0
        x = torch.ones(3, 10).as_subclass(Counted)
        flops = FlopCounterMode(display=False)
        with CountsFunctions() as functions, CountsOperators() as operators, flops:
            model(x)
        return functions.count, operators.count, Counted.count, flops.get_total_flops()

    class CallsAnOperator(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return MarkedNonDifferentiable.apply(torch.ops.aten.mul.Tensor(x, 2))[0]

    model = nn.Sequential(CallsAnOperator(), nn.Linear(10, 20), nn.ReLU(inplace=True))
    plain = run(model)

    assert min(plain) > 0
    assert Traced(model, run).result == plain


def test_dynamo_is_not_imported() -> None:
    code = (
        "import sys, torch\n"
        "from levels import Traced\n"
        "traced = Traced(torch.nn.Linear(2, 2), lambda model: model(torch.ones(1, 2)))\n"
        "assert traced.level('.') == {'in0 > out0'}\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)


def test_a_fault_of_ours_stays_out_of_the_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told once per place; the result is right all the same."""

    def broken(*args: Any, **kwargs: Any) -> None:
        raise LookupError("ours")

    monkeypatch.setattr(Provenance, "operate", broken)
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), torch.ones(1, 2)
    traced = Traced(model, lambda model: model(x))

    assert torch.equal(traced.result, model(x))
    # two kinds of operators ran, each of them twice
    assert len(traced.faults) == 2
    assert all("LookupError: ours" in fault for fault in traced.faults)


@pytest.mark.parametrize("method", ["enter", "leave", "link_outputs", "trace", "put"])
def test_a_fault_anywhere_in_provenance_is_reported(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise LookupError("ours")

    monkeypatch.setattr(Provenance, method, broken)
    model, run = CASES["custom_functions"].build()
    traced = Traced(model, run)

    assert traced.faults
    assert torch.equal(traced.result, run(model))
    assert len(set(traced.faults)) == len(traced.faults)


class Raises(nn.Module):
    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Sequential(nn.Linear(4, 4))
        self.error = error
        self.b.register_forward_hook(self.fail)

    def fail(self, module: nn.Module, args: Any, result: Any) -> None:
        if self.error is not None:
            raise self.error

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


@pytest.mark.parametrize("error", [ValueError("the user's"), KeyboardInterrupt(), MemoryError()])
def test_errors_of_the_forward_pass_through(error: BaseException) -> None:
    model, x = Raises(error), torch.randn(3, 4)
    failed = Traced(model, lambda model: model(x), raises=BaseException)
    model.error = None
    again = Traced(model, lambda model: model(x))

    assert failed.raised is error
    assert failed.faults == []
    assert failed.level(".") >= chains("in0 > a > b")
    assert again.level(".") == chains("in0 > a > b > out0")


def test_an_interrupt_that_the_model_catches() -> None:
    """Torch tells no hook of the calls that a KeyboardInterrupt has left."""

    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = Raises(KeyboardInterrupt())

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            with pytest.raises(KeyboardInterrupt):
                self.b(h)
            return h

    traced = Traced(Catches(), lambda model: model(torch.randn(3, 4)))

    assert traced.faults == []
    assert traced.level(".") == chains("in0 > a > b; a > out0")


def test_a_call_that_was_never_left_is_closed_by_the_next() -> None:
    root = Call(nn.Identity(), "", None, 0)
    first, second = Call(nn.Identity(), "a", root, 1), Call(nn.Identity(), "b", root, 2)
    tracer = StructureTracer(lambda path, place, error: pytest.fail(f"{path}: {place}: {error!r}"))
    x = torch.ones(2)
    with tracer:
        tracer.enter(root, [x])
        tracer.enter(first, [x])
        tracer.enter(second, [x])
        tracer.leave(second, [x])
        tracer.leave(root, [x])

    to_first, to_second = (End("input", 0), End("node", 0)), (End("input", 0), End("node", 1))
    assert root.links.keys() == {to_first, to_second, (End("node", 1), End("output", 0))}


class FunctionThatRaises(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        raise ValueError("the user's")


def test_an_error_in_a_function_is_forgotten_with_it() -> None:
    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            with pytest.raises(ValueError, match="the user's"):
                FunctionThatRaises.apply(h)
            with torch.no_grad():
                h = h * 2
            return self.b(h)

    traced = Traced(Catches(), lambda model: model(torch.randn(3, 4)))

    assert traced.faults == []
    assert traced.level(".") == chains("in0 > a ..> b > out0")


def test_nothing_is_held_after_an_error() -> None:
    model = Raises(ValueError("the user's"))
    kept: list[weakref.ref[Tensor]] = []

    def run(model: nn.Module) -> None:
        x = torch.randn(3, 4)
        kept.append(weakref.ref(x))
        model(x)

    traced = Traced(model, run, raises=ValueError)
    traced.raised = model.error = None
    gc.collect()

    assert kept[0]() is None
