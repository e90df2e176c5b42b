"""Tensors that a forward names by `attach` in; additional outputs of the call around them out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from ..schema import Port
from ..slots import Taken
from .calls import Call, Observer, port
from .gradients import EdgePort, ports_of
from .survey import weights_in_effect
from .tap import Hook, Measure, PortKey, Report, Tap, port_key
from .values import ValueObserver

Value = TypeVar("Value")


class Collector(Protocol):
    """Takes what is attached."""

    def add(self, tensor: Tensor, name: str) -> None: ...


_active: dict[int, list[Collector]] = {}
"""Those of the forwards that are looked at, by thread, the outermost first."""


def collect_for(collector: Collector) -> None:
    """`attach` in this thread goes to `collector`, too, until `leave_out`."""
    _active.setdefault(threading.get_ident(), []).append(collector)


def leave_out(collector: Collector) -> None:
    """Undo `collect_for`, in the same thread."""
    thread = threading.get_ident()
    mine = _active.get(thread, [])
    if collector in mine:
        mine.remove(collector)
    if not mine:
        _active.pop(thread, None)


def attach(tensor: Value, name: str) -> Value:
    """Mark an intermediate tensor within a module's forward, so that watches of the model record it.

        hidden = attach(torch.relu(self.first(x)), "hidden")

    Returns the very same object and changes nothing. On a logged step the values of the tensor as it is
    now, and its gradient (per sample, over all its uses), appear as an output `name` of the module whose
    forward this is; several of one name are numbered. Elsewhere, under torch.compile, and for objects
    other than tensors it does nothing. ValueError for a name that is not a non-empty string.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"attach: name={name!r} is not a non-empty string")
    if _active and not torch.compiler.is_compiling() and isinstance(tensor, Tensor):
        for collector in list(_active.get(threading.get_ident(), ())):
            collector.add(tensor, name)
    return tensor


class _Attached(NamedTuple):
    """A tensor of a call that is still running. `tensor` is kept only where edges are to be found."""

    port: Port
    note: str
    taken: Taken | None
    place: EdgePort | None
    tensor: Tensor | None


class Attachments:
    """Collects what one forward attaches. An `Observer`, to come last among those of the forward.

    `values` samples tensors, None if values are not recorded; `gradients` says whether gradients are.
    `wanted(call)` says whether a call's tensors are to be recorded. Holds nodes until `arm`.

    `names` are those that each call has attached, by its index, with the positions of their ports.
    """

    def __init__(
        self, values: ValueObserver | None, gradients: bool, wanted: Callable[[Call], bool], report: Report
    ) -> None:
        self._values = values
        self._gradients = gradients
        self._wanted = wanted
        self._report = report
        self.names: dict[int, list[tuple[str, int]]] = {}
        self._traced = False
        self._stack: list[tuple[Call, list[_Attached]]] = []
        self._places: dict[PortKey, EdgePort] = {}

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """`attach` in this thread comes here for the length of the block."""
        collect_for(self)
        try:
            yield
        finally:
            leave_out(self)
            self._stack = []

    def add(self, tensor: Tensor, name: str, note: str = "attached") -> None:
        """A tensor was attached within the innermost call."""
        if not self._stack or not self._wanted(self._stack[-1][0]):
            return
        call, found = self._stack[-1]
        try:
            place = next(iter(ports_of([tensor])), None) if self._gradients else None
            taken = self._values.sample(tensor) if self._values is not None else None
            kept = tensor if self._traced else None
            found.append(_Attached(port(name, tensor), note, taken, place, kept))
        except Exception as error:
            self._report(call.path, f"the attached tensor {name}", error)

    # --- as an observer --------------------------------------------------------------------------

    def enter(self, call: Call, tensors: list[Tensor]) -> None:
        self._stack.append((call, []))
        for name, weight in weights_in_effect(call.module):
            self.add(weight, name, "in effect")

    def leave(self, call: Call, tensors: list[Tensor]) -> None:
        found = self._of(call)
        self._stack.pop()
        names = {output.name for output in call.outputs}
        for attached in found:
            name = _numbered(attached.port.name, names)
            names.add(name)
            key = port_key(call.index, "output", len(call.outputs))
            self.names.setdefault(call.index, []).append((attached.port.name, len(call.outputs)))
            call.outputs = [*call.outputs, replace(attached.port, name=name)]
            call.notes = (*call.notes, f"{attached.note}: {name}")
            if self._values is not None and attached.taken is not None:
                self._values.taken[key] = attached.taken
            if attached.place is not None:
                self._places[key] = attached.place

    def _of(self, call: Call) -> list[_Attached]:
        """What `call` has attached. Calls above it on the stack have raised."""
        while self._stack and self._stack[-1][0] is not call:
            self._stack.pop()
        return self._stack[-1][1]

    def traced_by(self, tracer: Observer) -> Observer:
        """`tracer`, which then finds the edges that lead to attached tensors, too."""
        self._traced = True
        return _WithAttached(tracer, self)

    # --- gradients -------------------------------------------------------------------------------

    def arm(self, measure: Measure, started: Callable[[], None], report: Report) -> Tap:
        """Place hooks for the gradients of all that was attached; see `GradientObserver.arm`."""
        tap = Tap(measure, started, report)
        places, self._places = self._places, {}
        arm_totals(tap, places)
        return tap


def arm_totals(tap: Tap, places: Mapping[PortKey, EdgePort]) -> None:
    """Place hooks for gradients over all uses."""
    numbers: dict[Any, int] = {}
    for key, place in places.items():
        sources = []
        for edge, view in place.settled().choices():
            want = tap.total(numbers.setdefault(edge, len(numbers)))
            sources.append(tap.source(want, view))
        tap.ports[key] = tuple(sources)
    for (node, output), number in numbers.items():
        tap.handles.append(node.register_prehook(Hook(tap, (output, tap.total(number), 1))))


class _WithAttached:
    """An observer for which attached tensors are results of their call."""

    def __init__(self, observer: Observer, attachments: Attachments) -> None:
        self._observer = observer
        self._attachments = attachments

    def enter(self, call: Call, tensors: list[Tensor]) -> None:
        self._observer.enter(call, tensors)

    def leave(self, call: Call, tensors: list[Tensor]) -> None:
        attached = [one.tensor for one in self._attachments._of(call) if one.tensor is not None]
        self._observer.leave(call, tensors + attached)


def _numbered(name: str, taken: set[str]) -> str:
    wanted, number = name, 1
    while name in taken:
        number += 1
        name = f"{wanted} ({number})"
    return name
