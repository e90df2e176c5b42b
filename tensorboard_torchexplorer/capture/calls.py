"""One forward of the root in, the tree of its module calls out.

Forward hooks sit on the modules for one logged forward and no longer; they only watch, and return
None. Whoever wants to look at the tensors of a call as they pass is an `Observer`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..schema import ROOT_ID, EdgeKind, End, Port
from .by_module import ByModule
from .hooks import ForwardHooks
from .leaves import argument_leaves, result_leaves
from .private import (
    SLOT,
    current_graph_task,
    of_all_samples,
    sequence_number,
    without_torch_function,
)

Link = tuple[End, End]


_NO_LINKS: Mapping[Link, tuple[EdgeKind, bool]] = MappingProxyType({})


class Call:
    """One invocation of a module while its step is being captured.

    `index` is the position among all calls of the forward, `position` that among the children of
    `parent`, `number` counts the calls of the same module within the parent. `start` and `end` bound
    the autograd sequence numbers of the nodes made inside (`start <= seq < end`; thread local, so
    they hold for nodes made in the calling thread). `links` are set by the structure tracer:
    (source, target) -> (kind, implicit), where an `End` of kind "node" counts the children.
    Holds no tensor and no autograd node, and nothing that it has no use for: a logged forward makes
    thousands, and each object more brings Python's cycle collector nearer.
    """

    __slots__ = (
        "_counts",
        "arguments",
        "children",
        "end",
        "failed",
        "id",
        "index",
        "inputs",
        "links",
        "module",
        "notes",
        "number",
        "outputs",
        "parent",
        "path",
        "position",
        "start",
    )

    def __init__(self, module: nn.Module, path: str, parent: Call | None, index: int) -> None:
        self.module = module
        self.path = path
        self.parent = parent
        self.index = index
        self.children: Sequence[Call] = ()
        self.inputs: Sequence[Port] = ()
        self.outputs: Sequence[Port] = ()
        self.arguments: Sequence[tuple[str, str]] = ()
        self.notes: tuple[str, ...] = ()
        self.links: Mapping[Link, tuple[EdgeKind, bool]] = _NO_LINKS
        self._counts: dict[int, int] | None = None
        self.failed = False
        self.start = self.end = 0
        if parent is None:
            self.position, self.number, self.id = 0, 0, ROOT_ID
        else:
            self.position, self.number = parent._adopt(self)
            self.id = call_id(parent, path, self.number)

    def _adopt(self, child: Call) -> tuple[int, int]:
        """The position of a new child, and its number among the calls of its module."""
        if self._counts is None:
            self.children, self._counts = [], {}
        assert isinstance(self.children, list)
        number = self._counts.get(id(child.module), 0)
        self._counts[id(child.module)] = number + 1
        self.children.append(child)
        return len(self.children) - 1, number

    def __repr__(self) -> str:
        return f"Call({self.id!r})"


def call_id(parent: Call, path: str, number: int) -> str:
    """The id of a call, see `schema.Node.id`."""
    return _call_id("" if parent.parent is None else parent.id, parent.path, path, number)


@functools.lru_cache(maxsize=65536)
def _call_id(above: str, parent: str, path: str, number: int) -> str:
    below = parent + "." if parent else ""
    inside = path.startswith(below) and path != parent
    name = escape(path[len(below) :]) if inside else "^" + escape(path)
    part = f"{name}#{number}" if number else name
    return f"{above}/{part}" if above else part


def escape(name: str) -> str:
    """A module path with the characters that structure ids percent-escaped."""
    for character in "%/#^":
        if character in name:
            name = name.replace(character, f"%{ord(character):02X}")
    return name


class Observer(Protocol):
    """Looks at the tensors of each call. Must keep none of them, must not change anything."""

    def enter(self, call: Call, tensors: list[Tensor]) -> None:
        """Before the module's forward; `tensors` are those of `call.inputs`."""

    def leave(self, call: Call, tensors: list[Tensor]) -> None:
        """After the module's forward; `tensors` are those of `call.outputs`, none of a call that raised an
        Exception. Not called for a call that another one interrupts, like KeyboardInterrupt."""


_MAX_PORTS = 65536
_ports: dict[tuple[str, torch.Size, torch.dtype, bool], Port] = {}


def port(name: str, tensor: Tensor) -> Port:
    """What a tensor looks like as an argument or result `name`. The same object for what looks the same:
    ports hardly change from step to step."""
    requires_grad = of_all_samples(tensor).requires_grad
    dtype = tensor.dtype
    if tensor.is_nested:
        return Port(name, _nested_shape(tensor), _name_of(dtype), requires_grad)
    key = (name, tensor.shape, dtype, requires_grad)
    known = _ports.get(key)
    if known is None:
        if len(_ports) >= _MAX_PORTS:  # shapes that never repeat
            _ports.clear()
        known = _ports[key] = Port(name, list(tensor.shape), _name_of(dtype), requires_grad)
    return known


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _nested_shape(tensor: Tensor) -> list[int | None] | None:
    """None for a ragged dimension, which is a symbol; none at all for a nested tensor of the old kind."""
    try:
        return [n if type(n) is int else None for n in tensor.shape]
    except RuntimeError:
        return None


def fusable(modules: Iterable[nn.Module]) -> ByModule[None]:
    """Modules that a hook would change: torch's encoder layers take their fused path in evaluation only
    while no module in them has a forward hook, and its results differ in the last bits."""
    found: ByModule[None] = ByModule()
    for layer in modules:
        if isinstance(layer, nn.TransformerEncoderLayer) and not layer.training:
            inside = list(layer.modules())
            if not any(module._forward_hooks or module._forward_pre_hooks for module in inside):
                found.update((module, None) for module in inside)
    return found


class CallTree:
    """Watches the calls of `paths` (module -> path) under one forward of `root`.

    `report` is told of an error in our own code: (path, place, exception); nothing is raised into
    the forward. After the forward, `root_call` is the tree (None if the root was not reached) and
    `calls` lists all calls in the order in which they began.
    """

    def __init__(
        self,
        root: nn.Module,
        paths: Mapping[nn.Module, str],
        observers: Iterable[Observer],
        report: Callable[[str, str, Exception], None],
    ) -> None:
        self.root = root
        self.paths = paths
        self.observers = tuple(observers)
        self.report = report
        self.root_call: Call | None = None
        self.calls: list[Call] = []
        self._stack: list[Call] = []
        self._slotted: ByModule[None] = ByModule()
        self._thread = threading.get_ident()

    @property
    def current(self) -> Call | None:
        """The innermost call that is running, None outside the root's forward."""
        return self._stack[-1] if self._stack else None

    def watching(self) -> ForwardHooks:
        """Hooks on all modules for the length of a block."""
        self._slotted = fusable(self.paths)
        slots = ByModule((m, self._slot(m, m.__dict__.get(SLOT))) for m in self._slotted)
        # ScriptModule overrides the methods that register hooks to raise, but its calls do pass them.
        return ForwardHooks([m for m in self.paths if m not in slots], self._before, self._after, slots)

    def seen(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """What to call in the place of the root's `forward` so that the root's own call is watched, too."""
        return self._slot(self.root, forward) if self.root in self._slotted else forward

    def _slot(self, module: nn.Module, inner: Callable[..., Any] | None) -> Callable[..., Any]:
        """A call of `module` (by `inner`, if it has a way of its own) with what the hooks would do."""

        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_locals.get("self")
            if caller is not module and isinstance(caller, type(module)):
                # A replica that copied the attributes of the module.
                return caller._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]
            result = None
            self._before(module, args, kwargs)
            try:
                result = (inner or module._call_impl)(*args, **kwargs)
            finally:
                self._after(module, args, kwargs, result)
            return result

        return call

    def _foreign(self, module: nn.Module) -> bool:
        # A recomputation inside backward, a replica in another thread, a wrapper that shares its
        # child's hook dictionaries (OptimizedModule).
        return (
            module not in self.paths
            or threading.get_ident() != self._thread
            or current_graph_task() is not None
            or (not self._stack and module is not self.root)
        )

    # A thread that reads the hooks of a module while this one removes them calls ours without kwargs.
    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        with without_torch_function():
            self._enter(module, args, kwargs or {})

    def _after(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        with without_torch_function():
            self._leave(module, rest[-1])

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            if self._foreign(module):
                return
            path = self.paths[module]
            if self._stack and not path.startswith(self._stack[-1].path + "."):
                self._drop_interrupted(module)
            call = Call(module, path, self.current, len(self.calls))
        except Exception as error:
            self.report(self.paths.get(module, "?"), "a call", error)
            return
        if self.root_call is None:
            self.root_call = call
        self.calls.append(call)
        # The stack grows even if what follows fails, so that the matching `_after` finds its call.
        self._stack.append(call)
        try:
            leaves = argument_leaves(module, args, kwargs)
            call.inputs = [port(name, tensor) for name, tensor in leaves.tensors]
            call.arguments = leaves.others
            tensors = [tensor for _, tensor in leaves.tensors]
        except Exception as error:
            self.report(call.path, "the arguments", error)
            tensors = []
            call.inputs = []
        call.start = call.end = sequence_number()
        for observer in self.observers:
            try:
                observer.enter(call, tensors)
            except Exception as error:
                self.report(call.path, "the inputs", error)

    def _drop_interrupted(self, module: nn.Module) -> None:
        """Forget calls that have ended without a hook: by a KeyboardInterrupt that the model has caught.
        `module` begins, and is no child of the call that seems to be running."""
        running = []
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code is nn.Module._call_impl.__code__:
                running.append(frame.f_locals["self"])
            frame = frame.f_back  # type: ignore[assignment]
        if running and running[0] is module and module not in self._slotted:
            del running[0]  # the call that begins
        stack = [call.module for call in self._stack]
        while len(stack) > 1 and sum(m is stack[-1] for m in stack) > sum(m is stack[-1] for m in running):
            stack.pop()
            self._stack.pop().failed = True

    def _leave(self, module: nn.Module, result: Any) -> None:
        try:
            if self._foreign(module):
                return
            # A child whose hook was skipped by an exception may still lie on top.
            while self._stack and self._stack[-1].module is not module:
                self._stack.pop().failed = True
            if not self._stack:
                return
            call = self._stack[-1]
            call.end = sequence_number()
            leaves = result_leaves(result)
            call.outputs = [port(name, tensor) for name, tensor in leaves.tensors]
            tensors = [tensor for _, tensor in leaves.tensors]
        except Exception as error:
            self.report(self.paths.get(module, "?"), "the results", error)
            tensors = []
            if not self._stack or self._stack[-1].module is not module:
                return
            call = self._stack[-1]
            call.outputs = []
        for observer in self.observers:
            try:
                observer.leave(call, tensors)
            except Exception as error:
                self.report(call.path, "the outputs", error)
        self._stack.pop()
