"""Calls of custom `torch.autograd.Function`s, which run their operators out of autograd's sight.

`Function.apply` is patched while at least one tracer is active and put back afterwards; calls from
threads without a tracer go straight through.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from torch.autograd import Function

Apply = Callable[..., Any]


class FunctionObserver(Protocol):
    """Is told of each `Function.apply` in its thread."""

    def before_function(self) -> None:
        """The forward of a Function begins."""

    def after_function(
        self, function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """It has returned `result`."""

    def function_failed(self) -> None:
        """It has raised."""


_lock = threading.Lock()
_observers: dict[int, list[FunctionObserver]] = {}
_original: Any = None
_ours: Any = None


def _patched(original: Any) -> Any:
    def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        # A classmethod; from torch 2.14 on one that is written in C, which has no __func__.
        plain: Apply = original.__get__(None, cls)
        active = _observers.get(threading.get_ident())
        if not active:
            return plain(*args, **kwargs)
        # Several, where a watched model lies inside another.
        observers = list(active)
        for observer in observers:
            observer.before_function()
        try:
            result = plain(*args, **kwargs)
        except BaseException:
            for observer in observers:
                observer.function_failed()
            raise
        for observer in observers:
            observer.after_function(cls, args, kwargs, result)
        return result

    return classmethod(apply)


def watch_functions(observer: FunctionObserver) -> None:
    """Tell `observer` of every Function that this thread applies from now on."""
    global _original, _ours
    with _lock:
        _observers.setdefault(threading.get_ident(), []).append(observer)
        if _ours is None:
            _original = Function.__dict__["apply"]
            _ours = _patched(_original)
            Function.apply = _ours  # type: ignore[method-assign]


def unwatch_functions(observer: FunctionObserver) -> None:
    """Undo `watch_functions`. To be called from the same thread."""
    global _original, _ours
    with _lock:
        thread = threading.get_ident()
        mine = _observers.get(thread, [])
        if observer in mine:
            mine.remove(observer)
        if not mine:
            _observers.pop(thread, None)
        if not _observers and _ours is not None:
            # Somebody else may have put theirs around ours meanwhile: it stays, and hands on to the original.
            if Function.__dict__["apply"] is _ours:
                Function.apply = _original  # type: ignore[method-assign]
            _original = _ours = None
