"""Gradients as they pass hooks on graph nodes in, one small measurement per port and backward out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..schema import Group
from .private import beneath, current_graph_task, quiet

Measure = Callable[[Tensor], Any]
Report = Callable[[str, str, Exception], None]
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


class Wanted(NamedTuple):
    """A gradient to measure at the edge numbered `edge`: that of the consumers with a sequence number in
    [`low`, `high`), or with `low` None the total, less the consumers below `high`."""

    edge: int
    low: float | None
    high: float


class PortKey(NamedTuple):
    """A tensor of a call: the call's index in the forward, the group, the port's index."""

    call: int
    group: Group
    port: int


class Tap:
    """What the hooks of one forward have handed over.

    `ports` says for each port with a gradient edge what stands for it, in order of preference. A port
    that is missing has no gradient. Several backward passes through the graph give one measurement
    each; those of passes that build a graph themselves (`create_graph=True`: the inner gradient of a
    penalty) count only where there is no other.
    """

    def __init__(self, measure: Measure, started: Callable[[], None], report: Report) -> None:
        self.ports: dict[PortKey, list[tuple[Wanted, View | None]]] = {}
        self.views: dict[Wanted, set[View | None]] = defaultdict(set)
        self.parts: dict[Wanted, int] = {}
        self.handles: list[Any] = []
        self.closed = False
        self._measure = measure
        self._started = started
        self._report = report
        self._passes: set[_Pass] = set()
        self._sums: dict[tuple[Wanted, _Pass], tuple[Tensor, int]] = {}
        self._found: dict[tuple[Wanted, View | None], dict[_Pass, Any]] = defaultdict(dict)

    @property
    def reached(self) -> bool:
        """Whether any gradient has come by."""
        return bool(self._found)

    def results(self) -> dict[PortKey, list[Any]]:
        """The measurements of each port, one per backward pass; ports that no gradient reached are
        missing. Sums that still wait for a consumer are closed as they are."""
        self._settle()
        found: dict[PortKey, list[Any]] = {}
        for key, choices in self.ports.items():
            for choice in choices:
                passes = self._found.get(choice)
                if passes:
                    plain = [value for (graph, _), value in passes.items() if not graph]
                    found[key] = plain or list(passes.values())
                    break
        return found

    def close(self) -> None:
        """Take the hooks away; nothing of the graph is kept."""
        self.closed = True
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self._sums = {}

    def totals(self, wanted: list[tuple[int, Wanted]]) -> Callable[[Any], None]:
        """A prehook: `wanted` are (output number, what its gradient counts for)."""
        signed = [(number, want, 1.0) for number, want in wanted]
        return lambda gradients: self._arrived(gradients, signed)

    def shares(self, wanted: list[tuple[int, Wanted, float]]) -> Callable[[Any, Any], None]:
        """A post hook: `wanted` are (input number, what its gradient counts for, sign)."""
        return lambda inputs, outputs: self._arrived(inputs, wanted)

    def _arrived(self, gradients: Any, wanted: list[tuple[int, Wanted, float]]) -> None:
        """The body of all hooks, which run inside the user's backward. Gives None: whatever else a hook
        returns replaces gradients."""
        if self.closed:
            return
        try:
            # Inside a backward, grad mode says whether it was asked to build a graph itself.
            this_pass = (torch.is_grad_enabled(), current_graph_task() or 0)
            if this_pass not in self._passes:
                self._passes.add(this_pass)
                self._started()
            with quiet():
                for number, want, sign in wanted:
                    if gradients[number] is not None:
                        self._add(want, beneath(gradients[number]), sign, this_pass)
        except Exception as error:
            self._report("", "a gradient", error)

    def _settle(self) -> None:
        """A consumer that got no gradient in its pass leaves a sum waiting: close it."""
        sums, self._sums = self._sums, {}
        with quiet():
            for (want, this_pass), (gradient, _) in sums.items():
                self._store(want, gradient, this_pass)

    def _add(self, want: Wanted, gradient: Tensor, sign: float, this_pass: _Pass) -> None:
        parts = self.parts.get(want, 1)
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

    def _store(self, want: Wanted, gradient: Tensor, this_pass: _Pass) -> None:
        for view in self.views[want]:
            read = gradient if view is None else view.read(gradient)
            self._found[want, view][this_pass] = self._measure(read)
