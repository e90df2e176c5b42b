"""Autograd edges of a forward's calls in, hooks on graph nodes out, which hand over gradients.

Nothing is inserted into the graph and nothing is registered before the root forward has returned, so
in-place operations stay legal and sums of gradients keep their order. An *edge* (node, output number) is
the place where the gradient of a tensor is summed up. Then

- the gradient of an output is the total at its edge (a prehook of the node), less what consumers made
  before the call ended contribute;
- the gradient of an input is the sum over the consumers of its edge that were made during the call
  (post hooks of those nodes): the gradient through this invocation only, as a full backward hook
  would give. Nearly always these are all the consumers there are, and the total serves both.

A tensor that is a view may be re-based by a later in-place operation. Whoever uses it then does not reach
its own edge, but that of its base, and the gradient is read through the view's geometry; what comes by those
who had used it before is added. The edge of a stale view (see edges.py) is asked for again when its call, and
the forward, have ended: by then somebody else may have made its node. Where nobody has, the gradient is that
of its memory, from whoever else uses that, too.

One walk over the graph finds the consumers, O(nodes). No closure holds a node: hooks are stored in nodes,
and such a cycle runs through C++, where Python's collector can't see it.
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..schema import Group
from .calls import Call
from .edges import Edge, edge_of, is_stale, leaf_edge
from .private import is_transformed, node_name, node_sequence, of_all_samples
from .tap import Hook, Measure, Report, Source, Tap, View, port_key

FOREVER = math.inf
CHECKPOINT_NODE = "CheckpointFunctionBackward"
WRITTEN_NODE = "torch::autograd::CopySlices"
"""The node of a base that was written to through a view."""


class EdgePort(NamedTuple):
    """A tensor of a call, at `position` among them: its edge, and its base's and how it lies in it if it is
    a view. `stale` is the view whose edge is not known yet, and the version that it has."""

    position: int
    edge: Edge | None
    base: Edge | None
    view: View | None
    stale: tuple[weakref.ref[Tensor], int] | None = None

    def settled(self) -> EdgePort:
        """The port with its edge, if there is one by now."""
        if self.stale is None:
            return self
        tensor = self.stale[0]()
        if tensor is None or tensor._version != self.stale[1]:
            return self
        edge = edge_of(tensor)
        return self if edge is None else self._replace(edge=edge, stale=None)

    def choices(self) -> list[tuple[Edge, View | None]]:
        """The edges at which the gradient of the tensor is found, the best first."""
        found: list[tuple[Edge, View | None]] = [] if self.edge is None else [(self.edge, None)]
        return found if self.base is None else [*found, (self.base, self.view)]


def _differentiable(tensor: Tensor) -> bool:
    return tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex())


def ports_of(tensors: list[Tensor]) -> list[EdgePort]:
    """The ports of those tensors that a gradient can reach."""
    if not torch.is_grad_enabled():
        return []
    ports = []
    for index, tensor in enumerate(tensors):
        tensor = of_all_samples(tensor)
        if not _differentiable(tensor):
            continue
        edge, stale = edge_of(tensor), None
        if edge is None:
            if is_stale(tensor):
                stale = (weakref.ref(tensor), tensor._version)
            else:
                edge = leaf_edge(tensor)
        base, base_edge, view = tensor._base, None, None
        if (
            base is not None
            and base.requires_grad
            and base.dtype == tensor.dtype  # else strides and offset count in other units
            and tensor.layout == torch.strided
            and not tensor.is_nested
            and not is_transformed(tensor)  # then its values lie elsewhere than it says
        ):
            base_edge = edge_of(base) or leaf_edge(base)
            offset = int(tensor.storage_offset() - base.storage_offset())
            view = View(tensor.shape, tensor.stride(), offset, base.shape, base.stride())
        ports.append(EdgePort(index, edge, base_edge, view, stale))
    return ports


def settle(ports: dict[int, list[EdgePort]], call: int) -> None:
    """Look again at the ports of `call` that were stale, now that it has ended."""
    known = ports.get(call, [])
    if any(port.stale is not None for port in known):
        ports[call] = [port.settled() for port in known]


Ports = dict[int, list[EdgePort]]
"""The ports of calls, by the call's index."""


class GradientObserver:
    """Notes the edges of every port of a forward, then places the hooks. Holds nodes until `arm`."""

    def __init__(self, wanted: Callable[[Call], bool]) -> None:
        self._wanted = wanted
        self._inputs: Ports = {}
        self._outputs: Ports = {}
        self._hidden: list[Call] = []

    def enter(self, call: Call, tensors: list[Tensor]) -> None:
        if call.parent is None or self._wanted(call):
            self._inputs[call.index] = ports_of(tensors)
            if not torch.is_grad_enabled():
                self._hidden.append(call)

    def leave(self, call: Call, tensors: list[Tensor]) -> None:
        if call.parent is None or self._wanted(call):
            self._outputs[call.index] = ports_of(tensors)
            settle(self._inputs, call.index)

    def arm(
        self, calls: Iterable[Call], measure: Measure, started: Callable[[], None], report: Report
    ) -> tuple[Tap, list[Call]]:
        """Place the hooks. `measure(gradient)` turns a gradient into something small to keep, `started()`
        is called by the first hook of each backward.

        Returns the tap, and the calls that will run again in the backward, because they lie under a
        reentrant checkpoint: their first run made no graph.
        """
        try:
            spans = [Span(call.index, call.start, call.end, call.parent is None) for call in calls]
            armer = Armer(self._inputs, self._outputs, spans)
            tap = Tap(measure, started, report)
            armer.arm(tap)
            return tap, self._hidden if self._hidden and armer.met_checkpoint else []
        finally:
            self._inputs, self._outputs, self._hidden = {}, {}, []


Place = tuple[int, View | None]
"""Where a gradient is found: the number of an edge, and how to read it there."""


class Span(NamedTuple):
    """A call, by its index, as the graph sees it: the sequence numbers of its nodes, [`start`, `end`)."""

    call: int
    start: int
    end: int
    outermost: bool


class Armer:
    """Finds consumers, decides what to measure where, registers the hooks.

    `alone` says that whoever uses an input of the spans is among them. Where not, as in a part of a
    forward that runs again, an input's gradient is always summed over its known consumers.
    """

    def __init__(self, inputs: Ports, outputs: Ports, spans: Sequence[Span], *, alone: bool = True) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.spans = spans
        self.alone = alone
        self.met_checkpoint = False
        self.numbers: dict[Edge, int] = {}
        self.edges: list[Edge] = []
        self.consumers: dict[int, list[tuple[int, Any, int]]] = defaultdict(list)

    def arm(self, tap: Tap) -> None:
        """Fill `tap` and place its hooks."""
        for group in (self.inputs, self.outputs):
            for call in group:
                settle(group, call)
                for port in group[call]:
                    for edge, _ in port.choices():
                        self._number(edge)
        self._walk()
        roots = {
            self.numbers[edge]
            for span in self.spans
            if span.outermost
            for port in self.outputs.get(span.call, ())
            for edge, _ in port.choices()[:1]
        }
        for span in self.spans:
            passed = self._choose_outputs(tap, span, roots)
            self._choose_inputs(tap, span, roots, passed)
        self._register(tap)

    def _number(self, edge: Edge) -> int:
        number = self.numbers.get(edge)
        if number is None:
            number = self.numbers[edge] = len(self.edges)
            self.edges.append(edge)
        return number

    def _walk(self) -> None:
        """Consumers of every numbered edge among the nodes that lead to some output. Stops at the
        inputs of the root: what made them is another model's graph, or an earlier step's."""
        border = {
            edge[0]
            for span in self.spans
            if span.outermost
            for port in self.inputs.get(span.call, ())
            for edge, _ in port.choices()
        }
        seen = {
            edge[0] for ports in self.outputs.values() for port in ports for edge, _ in port.choices()[:1]
        }
        todo = list(seen)
        numbers = self.numbers
        while todo:
            node = todo.pop()
            if node_name(node) == CHECKPOINT_NODE:
                self.met_checkpoint = True
            for position, following in enumerate(node.next_functions):
                target = following[0]
                if target is None:
                    continue
                number = numbers.get(following)
                if number is not None:
                    self.consumers[number].append((node_sequence(node), node, position))
                if target not in seen and target not in border:
                    seen.add(target)
                    todo.append(target)

    def _choose_outputs(self, tap: Tap, span: Span, roots: set[int]) -> set[Place]:
        chosen: set[Place] = set()
        for port in self.outputs.get(span.call, ()):
            places = [(self.numbers[edge], view) for edge, view in port.choices()]
            if places and self._put(tap, "output", span.call, port, places, span.end, roots):
                chosen.add(places[0])
        return chosen

    def _choose_inputs(self, tap: Tap, span: Span, roots: set[int], passed: set[Place]) -> None:
        for port in self.inputs.get(span.call, ()):
            places = [(self.numbers[edge], view) for edge, view in port.choices()]
            if places and places[0] in passed:
                # Handed through: what reaches the output reaches the input.
                self._put(tap, "input", span.call, port, places, span.start, roots)
                continue
            for number, view in places:
                want = self._through(tap, number, span, roots)
                if want is not None:
                    source = tap.source(want, view)
                    if number == places[0][0]:
                        source = self._with_written(tap, source, places, span.start, span.end)
                    tap.ports[port_key(span.call, "input", port.position)] = source
                    break

    def _put(
        self,
        tap: Tap,
        group: Group,
        call: int,
        port: EdgePort,
        places: Sequence[Place],
        low: int,
        roots: set[int],
    ) -> bool:
        """Note where the gradient of a port from its users since `low` is found, if there is any."""
        want = self._since(tap, places[0][0], low, roots)
        if want is not None:
            source = self._with_written(tap, tap.source(want, places[0][1]), places, low, FOREVER)
        else:
            written = self._written(tap, places, low, FOREVER)
            if written is None:
                return False  # whatever comes after it is not differentiable
            source = tap.source(written, places[1][1])
        rest = [tap.source(tap.total(base), view) for base, view in places[1:]]
        tap.ports[port_key(call, group, port.position)] = (source, *rest) if rest else source
        return True

    def _since(self, tap: Tap, edge: int, low: int, roots: set[int]) -> int | None:
        """What stands for the gradient at `edge` less that of the consumers made before `low`; None if there
        are no others."""
        consumers = self.consumers.get(edge, ())
        before = sum(sequence < low for sequence, _, _ in consumers)
        if not before:
            return tap.total(edge)
        if edge in roots:
            return tap.share(edge, None, low)
        return tap.share(edge, low, FOREVER) if before < len(consumers) else None

    def _with_written(
        self, tap: Tap, source: Source, places: Sequence[Place], low: float, high: float
    ) -> Source:
        """The gradient at the first of `places` from its users between `low` and `high`, of which `source` is
        that of those who used it before it was written to."""
        written = self._written(tap, places, low, high)
        consumers = self.consumers.get(places[0][0], ())
        if written is None or not any(low <= sequence < high for sequence, _, _ in consumers):
            return source
        return tap.both(source, written, places[1][1])

    def _written(self, tap: Tap, places: Sequence[Place], low: float, high: float) -> int | None:
        """What stands for the gradient of a view from those who used it after it was written to between `low`
        and `high`: it comes by the second of `places`, the view's base, alone."""
        if len(places) == 1 or len(self.consumers.get(places[1][0], ())) < 2:
            return None
        base = places[1][0]
        for sequence, node, _ in self.consumers[base]:
            if low <= sequence < high and node_name(node) == WRITTEN_NODE:
                return tap.share(base, sequence, sequence + 1)
        return None

    def _through(self, tap: Tap, edge: int, span: Span, roots: set[int]) -> int | None:
        """What stands for the gradient at `edge` through the consumers made during `span`."""
        consumers = self.consumers.get(edge, ())
        mine = sum(span.start <= sequence < span.end for sequence, _, _ in consumers)
        if not mine:
            return None
        if self.alone and mine == len(consumers) and edge not in roots:
            return tap.total(edge)
        return tap.share(edge, span.start, span.end)

    def _register(self, tap: Tap) -> None:
        before: dict[Any, list[int]] = {}
        after: dict[Any, list[int]] = {}
        for want, edge, low, high in tap.wants():
            node, number = self.edges[edge]
            consumers = self.consumers.get(edge, ())
            if low is None:
                before.setdefault(node, []).extend((number, want, 1))
                parts = [c for c in consumers if c[0] < high] if high else []
                sign = -1
                tap.compose(want, 1 + len(parts))
            else:
                parts = [c for c in consumers if low <= c[0] < high]
                sign = 1
                tap.compose(want, len(parts))
            for _, consumer, position in parts:
                after.setdefault(consumer, []).extend((position, want, sign))
        for node, wanted in before.items():
            tap.handles.append(node.register_prehook(Hook(tap, wanted)))
        for node, wanted in after.items():
            tap.handles.append(node.register_hook(Hook(tap, wanted)))
