"""Calls under a reentrant checkpoint in, their gradients out.

`torch.utils.checkpoint` with `use_reentrant=True` runs a part of the forward without a graph, and again,
with one, inside the backward. Only there can its gradients be seen. The graph node that runs it again is
the one that the forward made just before the part began, so the calls of the part are the first ones
that began after that node's sequence number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from .attachments import arm_totals, collect_for, leave_out
from .by_module import ByModule
from .calls import Call
from .gradients import CHECKPOINT_NODE, Armer, EdgePort, Ports, Span, ports_of, settle
from .hooks import ForwardHooks
from .leaves import argument_leaves, result_leaves
from .private import (
    current_autograd_node,
    current_graph_task,
    node_name,
    node_sequence,
    queue_backward_callback,
    sequence_number,
)
from .survey import weights_in_effect
from .tap import Measure, PortKey, Report, Tap, port_key


class Recompute:
    """Hooks on the modules of `hidden` calls while a backward runs, until `close`. `attached` are the names
    that each call has attached, by its index, with the positions of their ports."""

    def __init__(
        self,
        hidden: list[Call],
        attached: Mapping[int, Sequence[tuple[str, int]]],
        measure: Measure,
        started: Callable[[], None],
        report: Report,
    ) -> None:
        self._attached = attached
        self._unmet: dict[int, list[tuple[str, int]]] = {}
        self._marks: dict[PortKey, EdgePort] = {}
        self._make_tap: Callable[[], Tap] = lambda: Tap(measure, started, report)
        self._closed = False
        self._report = report
        self._taps: list[Tap] = []
        self._waiting = [(call.start, call) for call in hidden]
        self._stack: list[tuple[nn.Module, Call, int]] = []
        self._spans: list[Span] = []
        self._inputs: Ports = {}
        self._outputs: Ports = {}
        self._modules = list(ByModule((call.module, None) for call in hidden))
        self._tasks: set[int] = set()
        self._hooks = ExitStack()

    def begin(self) -> None:
        """Called inside a backward, at its first hook: puts hooks on the modules until it ends. Not from
        the forward on: the user may copy or save the model in between."""
        task = current_graph_task()
        if self._closed or task is None or task in self._tasks:
            return
        self._tasks.add(task)
        queue_backward_callback(lambda: self._end(task))
        if len(self._tasks) == 1:  # else this is the backward of a part, inside of another
            self._hooks.enter_context(ForwardHooks(self._modules, self._before, self._after))

    def _end(self, task: int) -> None:
        self._tasks.discard(task)
        if not self._tasks:  # else this was the backward of a part, inside of another
            self._unhook()

    def _unhook(self) -> None:
        leave_out(self)  # an exception may have cut a part short
        self._stack = []
        self._hooks.close()

    def results(self) -> dict[PortKey, list[Any]]:
        """The measurements of each port that a gradient reached, see `Tap.results`."""
        found: dict[PortKey, list[Any]] = {}
        for tap in self._taps:
            for key, passes in tap.results().items():
                found.setdefault(key, []).extend(passes)
        return found

    def close(self) -> None:
        """Take all hooks away."""
        self._closed = True
        self._unhook()
        for tap in self._taps:
            tap.close()
        self._taps = []
        self._waiting.clear()

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            call = self._match(module)
            if call is None:
                return
            if not torch.is_grad_enabled():
                # Inside a checkpoint within the checkpoint: it will run once more.
                self._waiting.append((sequence_number(), call))
                return
            tensors = [leaf.tensor for leaf in argument_leaves(module, args, kwargs).tensors]
            self._inputs[call.index] = ports_of(tensors)
            if not self._stack:
                collect_for(self)
            self._stack.append((module, call, sequence_number()))
            self._unmet[call.index] = list(self._attached.get(call.index, ()))
            for name, weight in weights_in_effect(module):
                self.add(weight, name)
        except Exception as error:
            self._report("", "a module under a checkpoint", error)

    def _match(self, module: nn.Module) -> Call | None:
        """The call of the forward that runs again now."""
        if current_graph_task() is None:
            return None
        node = current_autograd_node()
        if node is None or node_name(node) != CHECKPOINT_NODE:  # a recomputation of the other kind
            return None
        made = node_sequence(node)
        for position, (start, call) in enumerate(self._waiting):
            if start > made and call.module is module:
                del self._waiting[position]
                return call
        return None

    def _after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        try:
            if not self._stack or self._stack[-1][0] is not module or not torch.is_grad_enabled():
                return
            _, call, start = self._stack.pop()
            self._outputs[call.index] = ports_of([leaf.tensor for leaf in result_leaves(result).tensors])
            settle(self._inputs, call.index)
            self._spans.append(Span(call.index, start, sequence_number(), not self._stack))
            if not self._stack:
                tap, marks = self._make_tap(), self._make_tap()
                self._taps += [tap, marks]
                Armer(self._inputs, self._outputs, self._spans, alone=False).arm(tap)
                arm_totals(marks, self._marks)
        except Exception as error:
            self._report("", "a module under a checkpoint", error)
        finally:
            if not self._stack:
                leave_out(self)
                self._spans, self._inputs, self._outputs, self._marks = [], {}, {}, {}

    def add(self, tensor: Tensor, name: str) -> None:
        """A tensor was attached, as it was in the forward."""
        if not torch.is_grad_enabled():
            return  # as above
        try:
            call = self._stack[-1][1]
            unmet = self._unmet[call.index]
            position = next((position for known, position in unmet if known == name), None)
            if position is not None:
                unmet.remove((name, position))
                for place in ports_of([tensor]):
                    self._marks[port_key(call.index, "output", position)] = place
        except Exception as error:
            self._report("", f"the attached tensor {name}", error)
