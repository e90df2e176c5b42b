"""The structure tracer keeps nothing alive, and stays in its thread."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import torch
from levels import Traced, chains
from models import CASES
from models_nograd import MarkedNonDifferentiable
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode


def test_nothing_of_a_forward_is_kept_alive() -> None:
    """Tensors and nodes die with the user's own references, while calls and links stay."""
    tensors: list[weakref.ref[Any]] = []

    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            h = self.l(x)
            y = MarkedNonDifferentiable.apply(self.relu(h))[0].view(-1)
            y = y.tanh()
            # tanh's node saves its result: that storage lives as long as the node
            tensors.extend(
                weakref.ref(value) for value in (x, h, y, y.untyped_storage(), h.untyped_storage())
            )
            return y + 1

    traced = Traced(Remembers(), lambda model: model(torch.randn(2, 3, 4)))
    traced.result.sum().backward()
    assert traced.level(".") == chains("in0 > l > relu > out0")
    traced.result = None
    gc.collect()

    assert [ref() for ref in tensors] == [None] * 5


def test_nothing_is_kept_without_a_backward_and_without_the_collector() -> None:
    """A forward whose result is dropped frees its graph at once."""
    freed: list[str] = []
    gc.disable()
    try:
        for _ in range(3):
            model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Tanh())
            traced = Traced(model, lambda model: model(torch.randn(2, 4)))
            weakref.finalize(traced.result, freed.append, "tensor")
            # saved by tanh's node
            weakref.finalize(traced.result.untyped_storage(), freed.append, "graph")
            traced.result = None
    finally:
        gc.enable()

    assert freed.count("graph") == freed.count("tensor") == 3


def test_memory_is_flat() -> None:
    model, run = CASES["resnet18"].build()

    def count() -> int:
        gc.collect()
        kinds = [type(thing) for thing in gc.get_objects()]
        return sum(issubclass(kind, Tensor) or kind.__name__ in ("Scope", "Trace") for kind in kinds)

    def step() -> None:
        Traced(model, run)

    step()
    before = count()
    for _ in range(20):
        step()
    assert count() == before


def test_two_threads_are_traced_apart() -> None:
    """Each tracer sees its own thread, whatever the order in which they start and end."""
    both_inside, first_done = threading.Barrier(2, timeout=60), threading.Event()
    found: dict[str, Any] = {}

    class Meets(nn.Module):
        def __init__(self, waits: bool) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)
            self.waits = waits

        def forward(self, x: Tensor) -> Tensor:
            both_inside.wait()
            h = MarkedNonDifferentiable.apply(self.a(x))[0]
            if self.waits:
                assert first_done.wait(60)
            return self.b(MarkedNonDifferentiable.apply(h)[0])

    def work(name: str, waits: bool) -> None:
        try:
            # frozen: only provenance can know the edges then, the autograd graph is empty
            traced = Traced(Meets(waits).requires_grad_(False), lambda model: model(torch.randn(3, 4)))
            found[name] = (traced.level("."), traced.faults)
        except BaseException as error:
            found[name] = error
        if not waits:
            first_done.set()

    threads = [threading.Thread(target=work, args=args) for args in (("first", False), ("second", True))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    right = (chains("in0 > a > b > out0"), [])
    assert found == {"first": right, "second": right}


def test_a_thread_without_a_tracer_is_not_followed() -> None:
    """The forward runs a second model in another thread; its operators and Functions are not ours."""
    other = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    class Spawns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            results: list[Tensor] = []

            def work() -> None:
                results.append(MarkedNonDifferentiable.apply(other(h.detach()))[0])

            thread = threading.Thread(target=work)
            thread.start()
            thread.join(60)
            assert len(results) == 1
            return results[0].detach()

    traced = Traced(Spawns(), lambda model: model(torch.randn(3, 4)))

    assert traced.faults == []
    assert traced.level(".") == chains("in0 > a")


def test_the_mode_is_deaf_in_other_threads() -> None:
    """Torch hands modes on to the threads that run a backward for other devices."""

    class LendsItsMode(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            results: list[Tensor] = []

            mode = _get_current_dispatch_mode()

            def work() -> None:
                with mode:
                    results.append(x * 2)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join(60)
            return results[0]

    traced = Traced(LendsItsMode(), lambda model: model(torch.randn(3, 4)))

    assert traced.faults == []
    assert traced.level(".") == set()
