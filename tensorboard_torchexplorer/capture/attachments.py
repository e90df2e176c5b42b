"""Tensors that a forward names by `attach` in; additional outputs of the call around them out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..schema import Port
from .calls import Call, Observer, port
from .gradients import EdgePort, ports_of
from .tap import Measure, PortKey, Report, Tap, Wanted
from .values import Taken, ValueObserver

Value = TypeVar("Value")

_active: dict[int, list[Attachments]] = {}
"""Those of the forwards that are looked at, by thread, the outermost first."""


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
        for attachments in _active.get(threading.get_ident(), ()):
            attachments.add(tensor, name)
    return tensor


class _Attached(NamedTuple):
    """A tensor of a call that is still running. `tensor` is kept only where edges are to be found."""

    port: Port
    taken: Taken | None
    place: EdgePort | None
    tensor: Tensor | None


class Attachments:
    """Collects what one forward attaches. An `Observer`, to come last among those of the forward.

    `values` samples tensors, None if values are not recorded; `gradients` says whether gradients are.
    `wanted(call)` says whether a call's tensors are to be recorded. Holds nodes until `arm`.
    """

    def __init__(
        self, values: ValueObserver | None, gradients: bool, wanted: Callable[[Call], bool], report: Report
    ) -> None:
        self._values = values
        self._gradients = gradients
        self._wanted = wanted
        self._report = report
        self._traced = False
        self._stack: list[tuple[Call, list[_Attached]]] = []
        self._places: dict[PortKey, EdgePort] = {}

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """`attach` in this thread comes here for the length of the block."""
        thread = threading.get_ident()
        _active.setdefault(thread, []).append(self)
        try:
            yield
        finally:
            mine = _active[thread]
            mine.remove(self)
            if not mine:
                del _active[thread]
            self._stack = []

    def add(self, tensor: Tensor, name: str) -> None:
        """A tensor was attached within the innermost call."""
        if not self._stack or not self._wanted(self._stack[-1][0]):
            return
        call, found = self._stack[-1]
        try:
            place = next(iter(ports_of([tensor])), None) if self._gradients else None
            taken = self._values.sample(tensor) if self._values is not None else None
            found.append(_Attached(port(name, tensor), taken, place, tensor if self._traced else None))
        except Exception as error:
            self._report(call.path, f"the attached tensor {name}", error)

    # --- as an observer --------------------------------------------------------------------------

    def enter(self, call: Call, tensors: list[Tensor]) -> None:
        self._stack.append((call, []))

    def leave(self, call: Call, tensors: list[Tensor]) -> None:
        found = self._of(call)
        self._stack.pop()
        names = {output.name for output in call.outputs}
        for attached in found:
            name = _numbered(attached.port.name, names)
            names.add(name)
            key = PortKey(call.index, "output", len(call.outputs))
            call.outputs.append(replace(attached.port, name=name))
            call.notes.append(f"attached: {name}")
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
        numbers: dict[Any, int] = {}
        places, self._places = self._places, {}
        for key, place in places.items():
            tap.ports[key] = []
            for edge, view in place.settled().choices():
                want = Wanted(numbers.setdefault(edge, len(numbers)), None, 0)
                tap.ports[key].append((want, view))
                tap.views[want].add(view)
        for (node, output), number in numbers.items():
            tap.handles.append(node.register_prehook(tap.totals([(output, Wanted(number, None, 0))])))
        return tap


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
