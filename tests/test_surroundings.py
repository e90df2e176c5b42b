"""Watched training inside what else people wrap around a training: modes, profilers, defaults, wrappers of
`forward`, exporters. The same results by the bit, the same seen by those around, and full records."""

from __future__ import annotations

import functools
import importlib
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from recording import Recorded, assert_row_holds, read_back, record
from test_cases_capture import Lambda, X, edges, squared, train
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter


class Block(nn.Module):
    """A little of everything: convolution, norm with buffers, in-place, dropout, attention, reuse."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(True)
        self.attention, self.drop = nn.MultiheadAttention(8, 2, batch_first=True), nn.Dropout(0.2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.conv(x)))
        x = self.drop(x.transpose(1, 2))
        x = x + checkpoint(self.attend, x, use_reentrant=False)
        return self.relu(self.head(x))

    def attend(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


SEQUENCE = torch.randn(5, 4, 7, generator=torch.Generator().manual_seed(3))


class Outcome:
    """What a training gave, and what the surroundings saw (`report`)."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.report: Any = None


def trained(
    around: Callable[[Outcome], AbstractContextManager[Any]], writer: ExplorerWriter | None
) -> Outcome:
    outcome = Outcome()
    torch.manual_seed(0)
    model = Block()
    watch = writer.watch(model, log_freq=2) if writer else None
    optimizer = torch.optim.Adam(model.parameters())
    torch.manual_seed(1)
    with around(outcome):
        for _ in range(3):
            loss = model(SEQUENCE.to(model.head.weight.dtype)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            outcome.losses.append(loss.detach())
    outcome.weights = [p.detach() for p in (*model.parameters(), *model.buffers())]
    if watch:
        assert watch.faults.list() == []
    return outcome


@contextmanager
def deterministic(outcome: Outcome):
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def flops(outcome: Outcome):
    with FlopCounterMode(display=False) as counter:
        yield
    outcome.report = counter.get_flop_counts()


@contextmanager
def operators(outcome: Outcome):
    """Each operator that reaches a user's dispatch mode, in order."""
    outcome.report = []

    class Listing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            outcome.report.append(str(func))
            return func(*args, **kwargs or {})

    with Listing():
        yield


@contextmanager
def functions(outcome: Outcome):
    """Each function that reaches a user's function mode, in order."""
    outcome.report = []

    class Listing(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            outcome.report.append(str(func).split(" at 0x")[0])
            return func(*args, **kwargs or {})

    with Listing():
        yield


@contextmanager
def saved_tensors(outcome: Outcome):
    """What autograd saves and gives back."""
    outcome.report = Counter()

    def pack(tensor: Tensor) -> Tensor:
        outcome.report["packed"] += 1
        return tensor

    def unpack(tensor: Tensor) -> Tensor:
        outcome.report["unpacked"] += 1
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


@contextmanager
def profiled(outcome: Outcome):
    with torch.profiler.profile(record_shapes=True, with_stack=True, with_modules=True):
        yield


@contextmanager
def recorded_modules(outcome: Outcome):
    """Global module hooks of the user, in the order of their calls."""
    outcome.report = []
    register = nn.modules.module
    handles = [
        register.register_module_forward_pre_hook(
            lambda m, a: outcome.report.append(("enter", type(m).__name__))
        ),
        register.register_module_forward_hook(
            lambda m, a, r: outcome.report.append(("leave", type(m).__name__))
        ),
    ]
    yield
    for handle in handles:
        handle.remove()


AROUND: dict[str, Callable[[Outcome], AbstractContextManager[Any]]] = {
    "nothing": lambda outcome: nullcontext(),
    "anomaly mode": lambda outcome: torch.autograd.detect_anomaly(check_nan=True),
    "deterministic algorithms": deterministic,
    "flop counter": flops,
    "dispatch mode": operators,
    "function mode": functions,
    "saved tensors hooks": saved_tensors,
    "save on cpu": lambda outcome: torch.autograd.graph.save_on_cpu(),
    "profiler": profiled,
    "global module hooks": recorded_modules,
    "default device": lambda outcome: torch.device("cpu"),
    "autocast": lambda outcome: torch.autocast("cpu", torch.bfloat16),
    "one backward thread": lambda outcome: torch.autograd.set_multithreading_enabled(False),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("name", AROUND)
def test_modes_around_the_training(name):
    plain = trained(AROUND[name], None)
    with tempfile.TemporaryDirectory() as folder:
        with ExplorerWriter(folder) as writer:
            watched = trained(AROUND[name], writer)
        recorded = read_back(folder)

    for one, two in zip(plain.losses + plain.weights, watched.losses + watched.weights, strict=True):
        assert torch.equal(one, two)
    assert watched.report == plain.report
    assert recorded.steps == [0, 2]
    assert {
        "conv norm",
        "norm relu",
        "relu drop",
        "drop attention",
        "attention head",
        "head relu#1",
    } <= edges(recorded)
    for kind in ("value", "grad"):
        row = recorded.row("attention", "output", kind, "[0]")
        assert row["status"] == Status.OK
        assert row["nan"] == 0


def test_a_function_mode_sees_nothing_of_ours_where_something_could_be_compiled():
    """Then parameters have a hook that tells of compiled steps."""
    importlib.import_module("torch._dynamo")

    test_modes_around_the_training("function mode")


def test_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        plain = trained(AROUND["nothing"], None)
        with tempfile.TemporaryDirectory() as folder:
            with ExplorerWriter(folder) as writer:
                watched = trained(AROUND["nothing"], writer)
            recorded = read_back(folder)
    finally:
        torch.set_default_dtype(torch.float32)

    assert watched.losses[0].dtype == torch.float64
    assert all(torch.equal(a, b) for a, b in zip(plain.weights, watched.weights, strict=True))
    assert recorded.status("head", "output", "grad", "output") == Status.OK


def test_default_device_of_another_kind():
    """New tensors go to `meta` while the model trains on the CPU; ours must not."""
    model = nn.Linear(4, 3)

    def run(writer: ExplorerWriter) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.device("meta"):
            model(X).square().mean().backward()
            optimizer.step()
        assert watch.faults.list() == []

    recorded = record(run)

    assert_row_holds(recorded.row(".", "input", "value", "input"), X)
    assert recorded.status("", "param", "grad", "weight") == Status.OK


# --- What `forward` may be -----------------------------------------------------------------------


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def anonymous(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.l(x) * scale


class Decorated(Plain):
    @decorated
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.l(x) * scale


class Anonymous(Plain):
    @anonymous
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.l(x) * scale


class Star(Plain):
    def forward(self, x: Tensor, *others: Tensor, **options: Tensor) -> Tensor:
        return self.l(x) * others[0]


class OnlyByPosition(Plain):
    def forward(self, x: Tensor, scale: Tensor, /) -> Tensor:
        return self.l(x) * scale


class Partial(Plain):
    def _forward(self, flag: bool, x: Tensor, scale: Tensor) -> Tensor:
        return self.l(x) * scale

    forward = functools.partialmethod(_forward, True)


class Static(Plain):
    @staticmethod
    def forward(x: Tensor, scale: Tensor) -> Tensor:
        return x * scale


class FromClass(Plain):
    @classmethod
    def forward(cls, x: Tensor, scale: Tensor) -> Tensor:
        return x * scale


def bound_on_the_instance() -> nn.Module:
    """As Accelerate's hooks do it: `module.forward` is a wrapper around the old one."""
    module = Plain()
    old = module.forward

    @functools.wraps(old)
    def new(*args: Any, **kwargs: Any) -> Any:
        return old(*args, **kwargs)

    module.forward = new
    return module


def partial_on_the_instance() -> nn.Module:
    module = Plain()
    module.forward = functools.partial(module.forward)
    return module


FORWARDS: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "plain": (Plain, ["x", "scale"]),
    "decorated": (Decorated, ["x", "scale"]),
    "decorated without wraps": (Anonymous, ["args[0]", "args[1]"]),
    "star": (Star, ["x", "others[0]"]),
    "positional only": (OnlyByPosition, ["x", "scale"]),
    "partial method": (Partial, ["x", "scale"]),
    "static": (Static, ["x", "scale"]),
    "class method": (FromClass, ["x", "scale"]),
    "bound on the instance": (bound_on_the_instance, ["x", "scale"]),
    "partial on the instance": (partial_on_the_instance, ["x", "scale"]),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_arguments_are_named_by_whatever_forward_is(name):
    build, names = FORWARDS[name]
    model = Lambda(lambda m, x: m.head(m.inner(x, x * 2)), inner=build(), head=nn.Linear(4, 4))

    recorded = train(model)

    assert [port.name for port in recorded.node("inner").inputs] == names
    assert_row_holds(recorded.row("inner", "input", "value", names[1]), X * 2)


def test_forward_replaced_on_a_watched_instance():
    """A wrapper put on and taken off while watched, as offloading and quantisation do."""
    model, steps = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), iter(range(3))

    def loss(model: nn.Module) -> Tensor:
        if next(steps) == 1:
            old = model[1].forward
            model[1].forward = lambda *args: old(*args) * 10
        return squared(model)

    recorded = train(model, loss, steps=3, rate=0.0)

    top = recorded.series["1", "output", "value", "output"]["max"]
    assert top[1] == pytest.approx(10 * top[0], rel=1e-5)
    assert top[2] == top[1]


# --- What else reads a model -----------------------------------------------------------------------


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
