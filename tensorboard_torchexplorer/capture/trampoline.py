"""Calls of a watched root in; to its watch, which may look at them, or straight on."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from torch import nn

from ..schema import Phase
from .dynamo import count_frame, set_callback, untraced
from .private import SLOT


class Watcher(Protocol):
    """Decides about each call of the root, and makes those that it looks at. Raises nothing of its own."""

    follows: bool
    """Whether to call `passed`."""

    def due(self, compiled: bool) -> Phase | None:
        """Whether to look at the call that begins. `compiled`: it comes out of a compiled function."""

    def logged(
        self, forward: Callable[..., Any], phase: Phase, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of `forward(*args, **kwargs)`, looked at."""

    def passed(self, result: Any) -> None:
        """A call that was not looked at has returned `result`."""


class Trampoline:
    """What stands in the slot of a watched root.

    Made, it stands in front of what the slot held before, `inner`: each watch of a model has its own.
    `kept` is for what refers to the root's modules: here it lives as long as the root and does not keep it
    alive, since nothing but the root refers to a trampoline. Copies and pickles of a module that take the
    slot along (torch's own leave it out) get None.
    """

    __slots__ = ("__weakref__", "_root", "_watcher", "inner", "kept")

    is_trampoline = True

    def __init__(self, root: nn.Module, watcher: Watcher) -> None:
        self._root = weakref.ref(root)
        self._watcher = watcher
        self.kept: Any = None
        self.inner: Callable[..., Any] | None = root.__dict__.get(SLOT)
        root.__dict__[SLOT] = self

    def __reduce__(self) -> Any:
        return type(None), ()

    @untraced
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_locals.get("self")
        root = self._root()
        if root is None or (caller is not root and isinstance(caller, nn.Module)):
            # A replica, or a copy, that was given all attributes of the root.
            forward = self.inner or caller._call_impl  # type: ignore[union-attr]
            return forward(*args, **kwargs)
        # Until the module's own code begins, nothing may be traced; see dynamo.py.
        region = set_callback(None)
        phase = None
        try:
            phase = self._watcher.due(region is not None)
            if phase is not None:
                # Eagerly, but through the trampolines of other watches.
                inner = self.inner if isinstance(self.inner, Trampoline) else None
                return self._watcher.logged(inner or root._call_impl, phase, args, kwargs)
        finally:
            if region is not None:
                if phase is not None:
                    count_frame()
                set_callback(region)
        result = (self.inner or root._call_impl)(*args, **kwargs)
        if self._watcher.follows:
            region = set_callback(None)
            try:
                self._watcher.passed(result)
            finally:
                if region is not None:
                    set_callback(region)
        return result

    # --- the slot --------------------------------------------------------------------------------

    @property
    def placed(self) -> bool:
        """Whether calls of the root still come here: `root.compile()` writes over the slot."""
        root = self._root()
        return root is not None and any(one is self for one in _chain(root))

    def remove(self) -> None:
        """Leave the slot as if this had never stood there."""
        root = self._root()
        if root is None:
            return
        above = None
        for one in _chain(root):
            if one is self:
                break
            above = one
        else:
            return
        if above is not None:
            above.inner = self.inner
        elif self.inner is not None:
            root.__dict__[SLOT] = self.inner
        else:
            del root.__dict__[SLOT]


def _chain(root: nn.Module) -> list[Trampoline]:
    """The trampolines of a root, the outermost first."""
    found = []
    slot = root.__dict__.get(SLOT)
    while isinstance(slot, Trampoline):
        found.append(slot)
        slot = slot.inner
    return found
