"""Watched training inside the modes, profilers and defaults that people put around one.

The same results by the bit, the same seen by those around, and full records."""

from __future__ import annotations

import importlib
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from cases import X, edges
from recording import assert_row_holds, read_back, record
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
