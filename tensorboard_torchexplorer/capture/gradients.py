"""Autograd edges of a forward's calls in, hooks on graph nodes out, which hand over gradients.

Nothing is inserted into the graph and nothing is registered before the root forward has returned, so
in-place operations stay legal and sums of gradients keep their order. An *edge* (node, output number) is
the place where the gradient of a tensor is summed up. Then

- the gradient of an output is the total at its edge (a prehook of the node), less what consumers made
  before the call ended contribute;
- the gradient of an input is the sum over the consumers of its edge that were made during the call
  (post hooks of those nodes): the gradient through this invocation only, as a full backward hook
  would give. Nearly always these are all the consumers there are, and the total serves both.

A tensor that is a view may be re-based by a later in-place operation, after which its own edge is never
reached; the edge of its base is, and the gradient is read through the view's geometry.

One walk over the graph finds the consumers, O(nodes). No closure holds a node: hooks are stored in nodes,
and such a cycle runs through C++, where Python's collector can't see it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from ..schema import Group
from .calls import Call
from .private import beneath, current_graph_task, node_sequence, of_all_samples, quiet

FOREVER = math.inf
Edge = tuple[Any, int]


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


class _Port(NamedTuple):
    position: int
    edge: Edge
    base: Edge | None
    view: View | None


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


Measure = Callable[[Tensor], Any]
Report = Callable[[str, str, Exception], None]


def _differentiable(tensor: Tensor) -> bool:
    return tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex())


def _edge(tensor: Tensor) -> Edge:
    node = tensor.grad_fn  # reading it first also rebuilds it for a view that was written to
    if node is not None:
        return node, tensor.output_nr
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _ports(tensors: list[Tensor]) -> list[_Port]:
    if not torch.is_grad_enabled():
        return []
    ports = []
    for index, tensor in enumerate(tensors):
        tensor = of_all_samples(tensor)
        if not _differentiable(tensor):
            continue
        base, view = tensor._base, None
        base_edge = None
        if base is not None and base.requires_grad and tensor.layout == torch.strided and not tensor.is_nested:
            base_edge = _edge(base)
            offset = int(tensor.storage_offset() - base.storage_offset())
            view = View(tensor.shape, tensor.stride(), offset, base.shape, base.stride())
        ports.append(_Port(index, _edge(tensor), base_edge, view))
    return ports


class GradientObserver:
    """Notes the edges of every port of a forward, then places the hooks. Holds nodes until `arm`."""

    def __init__(self, wanted: Callable[[Call], bool]) -> None:
        self._wanted = wanted
        self._inputs: dict[Call, list[_Port]] = {}
        self._outputs: dict[Call, list[_Port]] = {}

    def enter(self, call: Call, tensors: list[Tensor]) -> None:
        if call.parent is None or self._wanted(call):
            self._inputs[call] = _ports(tensors)

    def leave(self, call: Call, tensors: list[Tensor]) -> None:
        if call.parent is None or self._wanted(call):
            self._outputs[call] = _ports(tensors)

    def arm(self, calls: Iterable[Call], measure: Measure, started: Callable[[], None], report: Report) -> Tap:
        """Place the hooks. `measure(gradient)` turns a gradient into something small to keep, `started()`
        is called by the first hook of each backward."""
        try:
            return _Armer(self._inputs, self._outputs).arm(calls, measure, started, report)
        finally:
            self._inputs, self._outputs = {}, {}


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
        self._pass = (False, -1)
        self._sums: dict[Wanted, tuple[Tensor, int]] = {}
        self._found: dict[tuple[Wanted, View | None], dict[tuple[bool, int], Any]] = defaultdict(dict)

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

        def hook(gradients: Any) -> None:
            if self.closed:
                return
            try:
                self._begin()
                with quiet():
                    for number, want in wanted:
                        if gradients[number] is not None:
                            self._add(want, beneath(gradients[number]), 1.0)
            except Exception as error:
                self._report("", "a gradient", error)

        return hook

    def shares(self, wanted: list[tuple[int, Wanted, float]]) -> Callable[[Any, Any], None]:
        """A post hook: `wanted` are (input number, what its gradient counts for, sign)."""

        def hook(inputs: Any, outputs: Any) -> None:
            if self.closed:
                return
            try:
                self._begin()
                with quiet():
                    for number, want, sign in wanted:
                        if inputs[number] is not None:
                            self._add(want, beneath(inputs[number]), sign)
            except Exception as error:
                self._report("", "a gradient", error)

        return hook

    def _begin(self) -> None:
        # Inside a backward, grad mode says whether it was asked to build a graph itself.
        this_pass = (torch.is_grad_enabled(), current_graph_task() or 0)
        if this_pass != self._pass:
            self._settle()
            self._pass = this_pass
            self._started()

    def _settle(self) -> None:
        """A consumer that got no gradient in this pass leaves its sum waiting: close it."""
        sums, self._sums = self._sums, {}
        with quiet():
            for want, (gradient, _) in sums.items():
                self._store(want, gradient)

    def _add(self, want: Wanted, gradient: Tensor, sign: float) -> None:
        parts = self.parts.get(want, 1)
        if parts == 1:
            self._store(want, gradient)
            return
        held = self._sums.pop(want, None)
        if held is None:
            total, count = (gradient if sign > 0 else -gradient), 1
        else:
            # Out of place: the first part may be a buffer that autograd still uses.
            total, count = torch.add(held[0], gradient, alpha=sign), held[1] + 1
        if count == parts:
            self._store(want, total)
        else:
            self._sums[want] = (total, count)

    def _store(self, want: Wanted, gradient: Tensor) -> None:
        for view in self.views[want]:
            read = gradient if view is None else view.read(gradient)
            self._found[want, view][self._pass] = self._measure(read)


class _Armer:
    """Finds consumers, decides what to measure where, registers the hooks."""

    def __init__(self, inputs: dict[Call, list[_Port]], outputs: dict[Call, list[_Port]]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.numbers: dict[Edge, int] = {}
        self.edges: list[Edge] = []
        self.consumers: dict[int, list[tuple[int, Any, int]]] = defaultdict(list)

    def arm(self, calls: Iterable[Call], measure: Measure, started: Callable[[], None], report: Report) -> Tap:
        calls = list(calls)
        tap = Tap(measure, started, report)
        for ports in (*self.inputs.values(), *self.outputs.values()):
            for port in ports:
                self._number(port.edge)
                if port.base is not None:
                    self._number(port.base)
        self._walk(calls)
        roots = {
            self.numbers[port.edge] for call in calls if call.parent is None for port in self.outputs.get(call, ())
        }
        for call in calls:
            passed = self._choose_outputs(tap, call, roots)
            self._choose_inputs(tap, call, roots, passed)
        self._register(tap)
        return tap

    def _number(self, edge: Edge) -> int:
        number = self.numbers.get(edge)
        if number is None:
            number = self.numbers[edge] = len(self.edges)
            self.edges.append(edge)
        return number

    def _walk(self, calls: list[Call]) -> None:
        """Consumers of every numbered edge among the nodes that lead to some output. Stops at the
        inputs of the root: what made them is another model's graph, or an earlier step's."""
        border = {port.edge[0] for call in calls if call.parent is None for port in self.inputs.get(call, ())}
        seen = {port.edge[0] for ports in self.outputs.values() for port in ports}
        todo = list(seen)
        numbers = self.numbers
        while todo:
            node = todo.pop()
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

    def _choose_outputs(self, tap: Tap, call: Call, roots: set[int]) -> dict[int, Wanted]:
        chosen: dict[int, Wanted] = {}
        for port in self.outputs.get(call, ()):
            edge = self.numbers[port.edge]
            inside = sum(sequence < call.end for sequence, _, _ in self.consumers[edge])
            if not inside:
                want = Wanted(edge, None, 0)
            elif edge in roots:
                want = Wanted(edge, None, call.end)
            elif inside < len(self.consumers[edge]):
                want = Wanted(edge, call.end, FOREVER)
            else:
                continue  # whatever comes after it is not differentiable
            chosen[edge] = want
            choices = [(want, None)] + self._base_choice(port, Wanted(-1, None, 0))
            self._add(tap, PortKey(call.index, "output", port.position), choices)
        return chosen

    def _choose_inputs(self, tap: Tap, call: Call, roots: set[int], passed: dict[int, Wanted]) -> None:
        for port in self.inputs.get(call, ()):
            edge = self.numbers[port.edge]
            choices: list[tuple[Wanted, View | None]] = []
            if edge in passed:  # handed through: what reaches the output reaches the input
                choices.append((passed[edge], None))
            else:
                want = self._through(edge, call, roots)
                if want is not None:
                    choices.append((want, None))
                elif port.base is not None:
                    want = self._through(self.numbers[port.base], call, roots)
                    if want is not None:
                        choices.append((want, port.view))
            if choices:
                self._add(tap, PortKey(call.index, "input", port.position), choices)

    def _through(self, edge: int, call: Call, roots: set[int]) -> Wanted | None:
        """What stands for the gradient at `edge` through the consumers made during `call`."""
        mine = sum(call.start <= sequence < call.end for sequence, _, _ in self.consumers[edge])
        if not mine:
            return None
        if mine == len(self.consumers[edge]) and edge not in roots:
            return Wanted(edge, None, 0)
        return Wanted(edge, call.start, call.end)

    def _base_choice(self, port: _Port, want: Wanted) -> list[tuple[Wanted, View | None]]:
        if port.base is None:
            return []
        return [(want._replace(edge=self.numbers[port.base]), port.view)]

    def _add(self, tap: Tap, key: PortKey, choices: list[tuple[Wanted, View | None]]) -> None:
        tap.ports[key] = choices
        for want, view in choices:
            tap.views[want].add(view)

    def _register(self, tap: Tap) -> None:
        before: dict[Any, list[tuple[int, Wanted]]] = defaultdict(list)
        after: dict[Any, list[tuple[int, Wanted, float]]] = defaultdict(list)
        for want in tap.views:
            node, number = self.edges[want.edge]
            if want.low is None:
                before[node].append((number, want))
                parts = [c for c in self.consumers[want.edge] if c[0] < want.high]
                sign = -1.0
                tap.parts[want] = 1 + len(parts)
            else:
                parts = [c for c in self.consumers[want.edge] if want.low <= c[0] < want.high]
                sign = 1.0
                tap.parts[want] = len(parts)
            for _, consumer, position in parts:
                after[consumer].append((position, want, sign))
        for node, totals in before.items():
            tap.handles.append(node.register_prehook(tap.totals(totals)))
        for node, shares in after.items():
            tap.handles.append(node.register_hook(tap.shares(shares)))
