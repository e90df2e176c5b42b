"""Calls of operators that compile what they are given in, the same calls with nothing of ours in the way out.

`torch.cond`, `while_loop`, `scan`, `flex_attention` and their like hand functions to `torch.compile`, in
eager mode, too. Where those are not compiled, as under a stance that keeps all functions eager, what they
close over gets no gradient, or the backward fails; and the hooks of the modules that they call would be
compiled along. So whatever of ours is about stands aside for as long as such a call lasts. To that end
`torch.compile` is patched while there is anything; its other callers get what they would have got.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch

Follow = Callable[[tuple[Any, ...], dict[str, Any], Any], None]
Aside = Callable[[], AbstractContextManager[Follow | None]]
"""A block to run such an operator in, and what to call with its arguments and result afterwards."""

_OPERATORS = ("torch._higher_order_ops", "torch.nn.attention.flex_attention")
_lock = threading.RLock()  # the garbage collector may end a watch while this is held
_asides: list[Aside] = []
_original: Any = None
_ours: Any = None


def stand_aside(aside: Aside) -> None:
    """From now on such operators run within `aside()`, in whatever thread, until `stay`."""
    global _original, _ours
    with _lock:
        _asides.append(aside)
        if _ours is None:
            _original = torch.compile
            _ours = torch.compile = _patched(_original)


def stay(aside: Aside) -> None:
    """Undo `stand_aside`."""
    global _original, _ours
    with _lock:
        if aside in _asides:
            _asides.remove(aside)
        if not _asides and _ours is not None:
            # Somebody else may have put theirs around ours meanwhile: it stays, and hands on to the original.
            if torch.compile is _ours:
                torch.compile = _original
            _original = _ours = None


def _patched(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return functools.partial(_run, made) if caller.startswith(_OPERATORS) else made

    return compile


def _run(made: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with ExitStack() as stack:
        follow = [stack.enter_context(aside()) for aside in list(_asides)]
        result = made(*args, **kwargs)
    for told in follow:
        if told is not None:
            told(args, kwargs, result)
    return result
