"""The calls and operators of one forward in; the edges of each call's level out.

`StructureTracer` joins two sources: provenance.py follows every operator through a dispatch mode,
autograd_walk.py reads the graph that autograd has built. A dispatch mode and never a function mode:
with the latter active, torch leaves its fast paths and eval results change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._python_dispatch import TorchDispatchMode

from ..schema import End
from .autograd_walk import walk
from .calls import Call
from .edges import edge_of, is_stale
from .higher_order import Follow, stand_aside, stay
from .private import (
    beneath,
    let_operators_through,
    modes_let_compile,
    run_operator,
    without_mode,
    without_torch_function,
)
from .provenance import DIFFERENTIABLE, Provenance
from .structure_functions import unwatch_functions, watch_functions
from .structure_operators import Operator, collect, results
from .structure_scope import NOBODY, Scope

Report = Callable[[str, str, Exception], None]

CHECKPOINT = "CheckpointFunction"
"""torch's reentrant checkpoint, and that of libraries which copied it."""

HAND_THROUGH = "BackwardHookFunction"
"""What a full backward hook of the user's wraps a module's arguments and results in."""


class StructureTracer:
    """Finds the edges of every level during one forward.

    An `Observer` of the `CallTree`, and a context manager that has to be entered and left in the frame
    that calls the root's forward. Only the thread that entered it is followed. An error in our own
    code goes to `report(path, place, error)`, once per place, and never into the forward. After the
    block, `call.links` of each call is complete and no tensor or node is held.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._reported: set[str] = set()
        self._thread = 0
        self._mode: _Mode | None = None
        self._provenance = Provenance()
        self._operators: dict[Any, Operator] = {}
        self._scope: Scope | None = None
        self._calls = 0
        # For each Function that is being applied: does its backward run the operators once more?
        self._functions: list[tuple[bool, Scope | None, int]] = []

    def __enter__(self) -> StructureTracer:
        self._thread = threading.get_ident()
        mode = _Mode(self)
        let_operators_through(_Mode)
        try:
            watch_functions(self)
            stand_aside(self._aside)
            mode.__enter__()  # type: ignore[no-untyped-call]
        except BaseException:
            stay(self._aside)
            unwatch_functions(self)
            raise
        self._mode = mode
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._mode is not None:
                self._mode.__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        finally:
            self._mode = None
            stay(self._aside)
            unwatch_functions(self)
            self.finish()

    @contextmanager
    def _aside(self) -> Iterator[Follow | None]:
        mode = self._mode
        if mode is None or modes_let_compile() or threading.get_ident() != self._thread:
            yield None
            return
        with without_mode(mode):
            yield partial(self.operated, stand_aside)  # any function will do as their operator

    @property
    def entered(self) -> bool:
        """Whether the block has not been left yet."""
        return self._mode is not None

    def finish(self) -> None:
        """Close what an exception has left open, and let go of all tensors and nodes."""
        try:
            while self._scope is not None:
                self._close(self._scope, [])
        except Exception as failure:
            self._fault("the end of the forward", failure)
        self._scope = None
        self._functions.clear()
        self._provenance.clear()

    # --- calls -------------------------------------------------------------------------------------

    def enter(self, call: Call, tensors: list[Tensor]) -> None:
        """A call begins: links its inputs within the parent."""
        try:
            self._open(call, [beneath(tensor) for tensor in tensors])
        except Exception as error:
            self._fault("the edges to a call", error)

    def leave(self, call: Call, tensors: list[Tensor]) -> None:
        """A call ends: links its outputs inside."""
        try:
            # An exception may have passed calls by without telling.
            while self._scope is not None and self._scope.call is not call:
                self._close(self._scope, [])
            if self._scope is not None:
                self._close(self._scope, [beneath(tensor) for tensor in tensors])
        except Exception as error:
            self._fault("the edges from a call", error)

    def _open(self, call: Call, tensors: list[Tensor]) -> None:
        while self._scope is not None and self._scope.call is not call.parent:
            self._close(self._scope, [])
        parent = self._scope
        self._calls = max(self._calls, call.index + 1)
        scope = Scope(call, parent)
        # From here on operators belong to the new level, even if what follows fails.
        self._scope = scope
        grad = self._differentiates()
        self._provenance.enter(parent, scope, tensors, grad)
        for position, tensor in enumerate(tensors):
            bit = scope.bit(End("input", position))
            edge = self._edge(tensor)
            if edge is not None:
                if parent is not None and grad:
                    self._walk(parent, edge, End("node", call.position))
                scope.boundaries[edge] = scope.boundaries.get(edge, 0) | bit
            elif tensor.requires_grad and self._is_stale(tensor):
                scope.closed = True
            # An in-place operation on a view replaces the view's node and hangs on to that of its base.
            base = self._base_edge(tensor)
            if base is not None:
                scope.boundaries[base] = scope.boundaries.get(base, 0) | bit

    def _close(self, scope: Scope, tensors: list[Tensor]) -> None:
        call, parent = scope.call, scope.parent
        # Whatever fails below, operators that follow belong to the parent.
        self._scope = parent
        grad = self._differentiates()
        self._provenance.link_outputs(scope, tensors, grad)
        edges = [self._edge(tensor) for tensor in tensors]
        for position, edge in enumerate(edges):
            if edge is not None:
                self._walk(scope, edge, End("output", position))
        if parent is None:
            return
        self._provenance.leave(parent, scope, tensors, grad)
        parent.sequences.add(call.start, call.end, NOBODY if scope.closed else call.position)
        parent.indices.add(call.index, self._calls, call.position)
        bit = parent.bit(End("node", call.position))
        for edge in edges:
            if edge is not None:
                parent.boundaries[edge] = bit

    # --- operators ---------------------------------------------------------------------------------

    def operated(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """An operator has run; called by the dispatch mode."""
        scope = self._scope
        if scope is None or threading.get_ident() != self._thread:
            return
        try:
            known = self._operators.get(operator)
            if known is None:
                known = self._operators[operator] = Operator(operator)
            self._provenance.operate(
                scope,
                known,
                known.inputs(args, kwargs),
                results(result),
                known.written(args, kwargs) if known.writes else [],
                known.overwritten(kwargs) if known.outs else [],
                grad=torch.is_grad_enabled(),
                as_if=self._recomputed(),
            )
        except Exception as error:
            self._fault(f"the operator {operator}", error)

    # --- custom functions --------------------------------------------------------------------------

    def before_function(self) -> None:
        """A custom Function begins; its forward runs with autograd off."""
        scope = self._scope
        children = 0 if scope is None else len(scope.call.children)
        self._functions.append((self._differentiates(), scope, children))

    def function_failed(self) -> None:
        """It has raised."""
        if self._functions:
            self._functions.pop()

    def after_function(
        self, function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """It has returned: to autograd all that happened inside is one node."""
        try:
            _, scope, children = self._functions.pop()
            if scope is None or scope is not self._scope:
                return
            # Unlike operators and the hooks of calls, this may run with `__torch_function__` in force.
            with without_torch_function():
                outputs = [beneath(tensor) for tensor in results(result)]
                if function.__name__ == CHECKPOINT or len(scope.call.children) > children:
                    self._transparent(scope, outputs)
                else:
                    self._opaque(scope, function, args, kwargs, outputs)
        except Exception as error:
            self._fault(f"the function {function.__name__}", error)

    def _transparent(self, scope: Scope, outputs: list[Tensor]) -> None:
        """A function that calls modules: its backward will run them again and go through them, so
        what the operators inside have shown holds, though the graph joins all to all."""
        for tensor in outputs:
            trace = self._provenance.trace(scope, tensor)
            edge = self._edge(tensor)
            if edge is not None:
                scope.boundaries[edge] = 0 if trace is None else trace.gradient

    def _opaque(
        self,
        scope: Scope,
        function: type[Function],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: list[Tensor],
    ) -> None:
        """A function with a backward of its own: a gradient path leads from each tensor argument to
        each floating-point result."""
        provenance = self._provenance
        # Only tensors that are arguments themselves, not those in lists, are inputs to autograd.
        direct = [beneath(value) for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        every: list[Tensor] = []
        collect((args, kwargs), every)
        traces = [provenance.trace(scope, tensor) for tensor in direct]
        if function.__name__ == HAND_THROUGH and len(direct) == len(outputs):
            for tensor, trace in zip(outputs, traces, strict=True):
                if trace is not None:
                    provenance.put(scope, tensor, trace.gradient, trace.data, 0, scope.call.index)
            return
        gradient = data = 0
        for trace in traces:
            if trace is not None:
                gradient |= trace.gradient
                data |= trace.data
        for trace in (provenance.trace(scope, beneath(tensor)) for tensor in every):
            data |= 0 if trace is None else trace.data
        if not self._differentiates():
            gradient = 0
        required = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in direct)
        for tensor in outputs:
            inside = provenance.trace(scope, tensor)
            kept = gradient if tensor.dtype in DIFFERENTIABLE else 0
            # Kernels that the dispatcher does not know leave no trace on their results.
            flows = data if inside is None or not inside.data else inside.data
            provenance.put(scope, tensor, kept, flows | kept, kept if required else 0, scope.call.index)

    # --- helpers -----------------------------------------------------------------------------------

    def _differentiates(self) -> bool:
        """Whether operators that run now are, or will be in a recomputation, recorded by autograd."""
        return torch.is_grad_enabled() or self._recomputed()

    def _recomputed(self) -> bool:
        return bool(self._functions) and self._functions[-1][0]

    def _edge(self, tensor: Tensor) -> tuple[Any, int] | None:
        """The edge of a tensor. None for a view of memory that has been written to: reading its node
        could make a new one, at another place in the order of the backward than unwatched."""
        if not tensor.requires_grad or self._is_stale(tensor):
            return None
        return edge_of(tensor)

    def _base_edge(self, tensor: Tensor) -> tuple[Any, int] | None:
        base = tensor._base
        return None if base is None or not base.requires_grad else edge_of(base)

    def _is_stale(self, tensor: Tensor) -> bool:
        return tensor._is_view() and (self._provenance.family(tensor, -1).changed or is_stale(tensor))

    def _walk(self, scope: Scope, edge: tuple[Any, int], target: End) -> None:
        mask = walk(scope, edge)
        scope.link(mask, mask, target)

    def _fault(self, place: str, error: Exception) -> None:
        if place in self._reported:
            return
        self._reported.add(place)
        self._report("" if self._scope is None else self._scope.call.path, place, error)


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells the tracer of each operator that has run."""

    supports_higher_order_operators = True

    def __init__(self, tracer: StructureTracer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tracer = tracer

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # Off while torch.compile compiles (torch.cond does so in eager mode, too), on while the result
        # runs. Otherwise dynamo would trace into the method below.
        return True

    @classmethod
    def is_infra_mode(cls) -> bool:
        # What older torch asks instead: a mode that is none keeps everything from being compiled, also the
        # functions that torch.cond is given, for ever.
        return not modes_let_compile()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap the method below: 60 us more per operator, and torch._dynamo is imported.
        return not hasattr(TorchDispatchMode, "ignore_compile_internals")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = run_operator(func, args, kwargs)
        self._tracer.operated(func, args, kwargs, result)
        return result
