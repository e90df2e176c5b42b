"""Gradients as they pass hooks on graph nodes in, one small measurement per port and backward out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..schema import Group
from .dynamo import set_callback, untraced
from .private import beneath, current_graph_task, quiet

Measure = Callable[[Tensor], Any]
Report = Callable[[str, str, Exception], None]
NO_EDGE = -1
_Pass = tuple[bool, int]
"""A backward: whether it builds a graph itself, and the id of its graph task."""


class View(NamedTuple):
    """How a view lies in its base: shape, strides and offset, and the base's shape and strides."""

    shape: torch.Size
    strides: tuple[int, ...]
    offset: int
    base_shape: torch.Size
    base_strides: tuple[int, ...]

    def read(self, gradient: Tensor) -> Tensor:
        """The part of the base's gradient that belongs to the view."""
        if gradient.shape != self.base_shape:
            return gradient.reshape(self.shape)
        if gradient.stride() != self.base_strides:
            laid = torch.empty_strided(
                self.base_shape, self.base_strides, dtype=gradient.dtype, device=gradient.device
            )
            gradient = laid.copy_(gradient)
        return gradient.as_strided(self.shape, self.strides, self.offset + gradient.storage_offset())


PortKey = int
"""A tensor of a call, see `port_key`. A number and no tuple, since there are thousands in a step and Python's
cycle collector has to look at every tuple."""


def port_key(call: int, group: Group, port: int) -> PortKey:
    """The key of the `port`-th input or output of the call with that index in its forward."""
    return (call << 33) | (port << 1) | (group == "output")


def parts_of(key: PortKey) -> tuple[int, Group, int]:
    """The call's index, the group and the port's index."""
    return key >> 33, "output" if key & 1 else "input", (key >> 1) & 0xFFFFFFFF


Source = int
"""Where a port's gradient is found: the number of a want, all of whose gradient it is, or below 0 one of
`Tap`'s views of one."""


class Tap:
    """What the hooks of one forward have handed over.

    A *want* is a gradient to measure, by number. `ports` says for each port with a gradient edge what stands
    for it, in order of preference. A port that is missing has no gradient. Several backward passes through
    the graph give one measurement each; those of passes that build a graph themselves (`create_graph=True`:
    the inner gradient of a penalty) count only where there is no other.
    """

    def __init__(self, measure: Measure, started: Callable[[], None], report: Report) -> None:
        self.ports: dict[PortKey, Source | tuple[Source, ...]] = {}
        self.handles: list[Any] = []
        self.closed = False
        self._measure = measure
        self._started = started
        self._report = report
        # By want: the edge, and the consumers that count, see `want`; how many gradients make it up.
        self._edges: list[int] = []
        self._lows: list[float | None] = []
        self._highs: list[float] = []
        self._parts: list[int] = []
        self._totals: dict[int, int] = {}
        self._shares: dict[tuple[int, float | None, float], int] = {}
        self._both: dict[tuple[int, int, View | None], int] = {}
        self._feeds: dict[int, list[tuple[int, View | None]]] = {}
        self._whole: set[int] = set()
        self._views: list[View] = []
        self._views_of: dict[int, dict[View, Source]] = {}
        self._sums: dict[tuple[int, _Pass], tuple[Tensor, int]] = {}
        self._found: dict[_Pass, dict[Source, Any]] = {}

    @property
    def reached(self) -> bool:
        """Whether any gradient has come by."""
        return bool(self._found)

    def total(self, edge: int) -> int:
        """The want of all that arrives at the edge numbered `edge`."""
        known = self._totals.get(edge)
        if known is None:
            known = self._totals[edge] = self._new(edge, None, 0)
        return known

    def share(self, edge: int, low: float | None, high: float) -> int:
        """The want of the gradient from the consumers of the edge with a sequence number in [`low`, `high`),
        or with `low` None of the total less that of the consumers below `high`."""
        known = self._shares.get((edge, low, high))
        if known is None:
            known = self._shares[edge, low, high] = self._new(edge, low, high)
        return known

    def both(self, want: int, of_base: int, view: View | None) -> int:
        """The want of the sum of two others: of the gradient of a view, and of the part that belongs to it of
        a gradient of its base."""
        known = self._both.get((want, of_base, view))
        if known is None:
            known = self._both[want, of_base, view] = self._new(NO_EDGE, None, 0)
            self.compose(known, 2)
            self._whole.add(known)
            self._feeds.setdefault(want, []).append((known, None))
            self._feeds.setdefault(of_base, []).append((known, view))
        return known

    def _new(self, edge: int, low: float | None, high: float) -> int:
        self._edges.append(edge)
        self._lows.append(low)
        self._highs.append(high)
        self._parts.append(1)
        return len(self._edges) - 1

    def source(self, want: int, view: View | None) -> Source:
        """The gradient of a want, or the part of it that belongs to a view."""
        if view is None:
            self._whole.add(want)
            return want
        known = self._views_of.setdefault(want, {})
        if view not in known:
            self._views.append(view)
            known[view] = -len(self._views)
        return known[view]

    def wants(self) -> Iterator[tuple[int, int, float | None, float]]:
        """Number, edge, `low` and `high` of each want that has an edge."""
        wants = zip(range(len(self._edges)), self._edges, self._lows, self._highs, strict=True)
        return (want for want in wants if want[1] != NO_EDGE) if self._feeds else wants

    def compose(self, want: int, parts: int) -> None:
        """A want is made up of so many gradients."""
        self._parts[want] = parts

    def results(self) -> dict[PortKey, list[Any]]:
        """The measurements of each port, one per backward pass; ports that no gradient reached are
        missing. Sums that still wait for a consumer are closed as they are."""
        self._settle()
        plain = [found for (graph, _), found in self._found.items() if not graph]
        graphs = [found for (graph, _), found in self._found.items() if graph]
        results: dict[PortKey, list[Any]] = {}
        for key, choices in self.ports.items():
            for source in choices if isinstance(choices, tuple) else (choices,):
                passes = [found[source] for found in plain if source in found]
                passes = passes or [found[source] for found in graphs if source in found]
                if passes:
                    results[key] = passes
                    break
        return results

    def close(self) -> None:
        """Take the hooks away; nothing of the graph is kept."""
        self.closed = True
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self._sums = {}

    def arrived(self, gradients: Any, wanted: Sequence[int]) -> None:
        """The body of all hooks, which run inside the user's backward. `wanted` are triples in a row: the
        position among the gradients, the want, the sign it counts with. Gives None: whatever else a hook
        returns replaces gradients."""
        if self.closed:
            return
        try:
            # Inside a backward, grad mode says whether it was asked to build a graph itself.
            this_pass = (torch.is_grad_enabled(), current_graph_task() or 0)
            if this_pass not in self._found:
                self._found[this_pass] = {}
                self._started()
            with quiet():
                for index in range(0, len(wanted), 3):
                    gradient = gradients[wanted[index]]
                    if gradient is not None:
                        self._add(wanted[index + 1], beneath(gradient), wanted[index + 2], this_pass)
        except Exception as error:
            self._report("", "a gradient", error)

    def _settle(self) -> None:
        """A consumer that got no gradient in its pass leaves a sum waiting: close it."""
        with quiet():
            while self._sums:
                for key in sorted(self._sums):  # those that others are made up of come before them
                    gradient, _ = self._sums.pop(key)
                    self._store(key[0], gradient, key[1])

    def _add(self, want: int, gradient: Tensor, sign: int, this_pass: _Pass) -> None:
        parts = self._parts[want]
        if parts == 1:
            self._store(want, gradient, this_pass)
            return
        held = self._sums.pop((want, this_pass), None)
        if held is None:
            total, count = (gradient if sign > 0 else -gradient), 1
        else:
            # Out of place: the first part may be a buffer that autograd still uses.
            total, count = torch.add(held[0], gradient, alpha=sign), held[1] + 1
        if count == parts:
            self._store(want, total, this_pass)
        else:
            self._sums[want, this_pass] = (total, count)

    def _store(self, want: int, gradient: Tensor, this_pass: _Pass) -> None:
        found = self._found[this_pass]
        if want in self._whole:
            found[want] = self._measure(gradient)
        for view, source in self._views_of.get(want, {}).items():
            found[source] = self._measure(view.read(gradient))
        if self._feeds:
            for sum_, part in self._feeds.get(want, ()):
                self._add(sum_, gradient if part is None else part.read(gradient), 1, this_pass)


class Hook:
    """A hook on a node, which hands over gradients: those that arrive, as a prehook; those of its inputs, as
    a hook of a node that has run."""

    __slots__ = ("_tap", "_wanted")

    def __init__(self, tap: Tap, wanted: Sequence[int]) -> None:
        self._tap = tap
        self._wanted = wanted

    # The backward may run within a compiled function, see dynamo.py.
    @untraced
    def __call__(self, gradients: Any, _arrived: Any = None) -> None:
        region = set_callback(None)
        try:
            self._tap.arrived(gradients, self._wanted)
        finally:
            if region is not None:
                set_callback(region)
