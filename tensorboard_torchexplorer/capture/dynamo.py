"""Calls under torch.compile in, the same calls run eagerly out; our own code kept out of its traces.

The private names of torch's compiler that this needs are all here. They live in `torch._C`, so that
nothing imports torch._dynamo, which takes a second; where that is not loaded, nothing can be compiled.

A *region* is the call of a compiled function: a callback then stands ready that turns every Python frame
that begins into a graph. `set_callback(None)` leaves the region, `set_callback(callback)` re-enters it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, TracebackType
from typing import Any, TypeVar

import torch
from torch import nn

from .higher_order import stand_aside, stay
from .wrappers import held_as

Function = TypeVar("Function", bound=Callable[..., Any])

_FRAMES: Any = torch._C._dynamo.eval_frame

set_callback: Callable[[Any], Any] = _FRAMES.set_eval_frame
"""Sets the callback of this thread, returns the one before: None outside of a region."""

_set_count: Callable[[int], int] | None = getattr(_FRAMES, "set_fullgraph_compiled_frame_count", None)


def untraced(function: Function) -> Function:
    """Let torch.compile never turn the frames of `function` into a graph; those it calls, as usual."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    if hasattr(_FRAMES, "set_code_exec_strategy"):
        skip = _FRAMES._FrameExecStrategy(_FRAMES._FrameAction.SKIP, _FRAMES._FrameAction.DEFAULT)
        _FRAMES.set_code_exec_strategy(code, skip)
    else:  # torch before 2.8
        _FRAMES.skip_code(code)
    return function


class out_of_regions:
    """`function` as a hook that a backward calls, which may run within a region: kept out of its traces.
    Gives None."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @untraced
    def __call__(self, *args: Any) -> None:
        region = set_callback(None)
        try:
            self._function(*args)
        finally:
            if region is not None:
                set_callback(region)


class outside:
    """A block outside of the region around it, if there is one."""

    __slots__ = ("_callback",)

    def __enter__(self) -> None:
        self._callback = set_callback(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._callback is not None:
            set_callback(self._callback)


def count_frame() -> None:
    """Tell a region with fullgraph=True, which ends in an error where it has run no compiled frame, that it
    has run one."""
    if _set_count is not None:
        count = _set_count(-1)  # a count that is on can't be set but by turning it off first
        if count >= 0:
            _set_count(max(count, 1))


def is_loaded() -> bool:
    """Whether anything can be compiled."""
    return "torch._dynamo" in sys.modules


class _EagerStance:
    """torch.compiler.set_stance("force_eager") for as long as anyone holds it, of all threads.

    The stance belongs to the process. What the user has set is put back, unless it was changed since.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may close a watch meanwhile
        self._holders: set[int] = set()
        self._placed: Any = None

    def hold(self, who: object) -> bool:
        """Compiled functions run eagerly from now on. False where nothing can be compiled (yet)."""
        dynamo = sys.modules.get("torch._dynamo")
        stance = getattr(dynamo, "set_stance", None)
        if stance is None:
            return False
        with self._lock:
            if not self._holders and _stance() != "force_eager":
                with outside():
                    self._placed = stance("force_eager")
                stand_aside(self._lifted)
            self._holders.add(id(who))
        return True

    def release(self, who: object) -> None:
        """Undo `hold`."""
        if id(who) not in self._holders:
            return
        with self._lock:
            self._holders.discard(id(who))
            placed = self._placed
            if self._holders or placed is None:
                return
            self._placed = None
            stay(self._lifted)
            if _stance_object() is placed.stance:
                with outside():
                    placed.__exit__(None, None, None)
                # The call around us, if any, was made eager by the stance, which must explain it at its end.
                count_frame()

    @contextmanager
    def _lifted(self) -> Iterator[None]:
        """The user's own stance for the length of a block."""
        placed = self._placed
        ours = placed is not None and _stance_object() is placed.stance
        if ours:
            with outside():
                placed.__exit__(None, None, None)
        try:
            yield
        finally:
            if ours and self._placed is placed:
                with outside():
                    placed.__enter__()


EAGER = _EagerStance()


def _stance_object() -> Any:
    module = sys.modules.get("torch._dynamo.eval_frame")
    return getattr(module, "_stance", None)


def _stance() -> str:
    return str(getattr(_stance_object(), "stance", ""))


def is_compiled(module: nn.Module) -> bool:
    """Whether calls of this very module go to a compiled function."""
    slot: Any = module.__dict__.get("_compiled_call_impl")
    while getattr(slot, "is_trampoline", False):
        slot = slot.inner
    return held_as(module) == "_orig_mod" or slot is not None
