"""Optimizer steps of the process in, calls of whoever follows them out.

Uses torch's global optimizer hooks. A `GradScaler` that meets an Inf skips the optimizer's step, so no hook
runs; `GradScaler.step` is therefore wrapped on its class for as long as anybody follows. Nothing is set on
the user's optimizers and scalers, which stay picklable.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from types import CodeType, FrameType
from typing import Any, Protocol

import torch
from torch.amp import GradScaler
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .capture.dynamo import set_callback, untraced
from .capture.private import without_torch_function
from .identity import WeakIds


class Follower(Protocol):
    """Is told of every optimizer step of the process; none of the calls may raise."""

    def before_step(self, optimizer: Optimizer, closure: bool) -> None:
        """`closure`: forward and backward run, again or at all, within the step."""

    def after_step(self, optimizer: Optimizer) -> None: ...

    def before_scaler(self, optimizer: Optimizer, scale: torch.Tensor) -> None:
        """A scaler is about to unscale the gradients of `optimizer`, divide by `scale`, and step."""

    def after_scaler(self, optimizer: Optimizer, stepped: bool) -> None:
        """It has, or `stepped` is False and it has skipped the step."""


_FOLLOWERS: WeakIds[Follower] = WeakIds()
"""They look at parameters, so they are told out of sight of the user's function modes and subclasses."""

_PLACING = threading.RLock()  # the garbage collector may close a watch while one is being placed

_STEP: CodeType | None = getattr(Optimizer.profile_hook_step(lambda: None), "__code__", None)
"""The code that torch puts around the step of each class of optimizers."""

_UNDO: list[Callable[[], None]] = []
_STEPPED: WeakIds[Optimizer] = WeakIds()
_BEGUN: WeakIds[Optimizer] = WeakIds()
_NESTED: WeakIds[Optimizer] = WeakIds()
"""Optimizers whose step has begun, and those that have called a step within it: a class with a step of its
own calls that of its base, and torch calls the hooks for both. Either may have ended with an error."""


def follow(follower: Follower) -> None:
    """Tell `follower` (held weakly) of optimizer steps from now on."""
    with _PLACING:
        _FOLLOWERS.add(follower)
        if not _UNDO:
            _UNDO.append(register_optimizer_step_pre_hook(_before).remove)
            _UNDO.append(register_optimizer_step_post_hook(_after).remove)
            original = GradScaler.step
            ours = GradScaler.step = _wrapped(original)  # type: ignore[method-assign]
            _UNDO.append(partial(_unwrap, ours, original))


def unfollow(follower: Follower) -> None:
    """No more; with the last follower everything is as it was before the first."""
    with _PLACING:
        _FOLLOWERS.discard(follower)
        if not len(_FOLLOWERS):
            while _UNDO:
                _UNDO.pop()()


def _unwrap(ours: Callable[..., Any], original: Callable[..., Any]) -> None:
    # Somebody else may have put theirs around ours since: it stays, and hands on to the original.
    if GradScaler.step is ours:
        GradScaler.step = original  # type: ignore[method-assign]


# A compiled step passes us by; where one is interrupted, nothing of ours may be compiled.
@untraced
def _before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if not torch.compiler.is_compiling():
        region = set_callback(None)
        try:
            if optimizer in _BEGUN and _is_nested(optimizer):
                _NESTED.add(optimizer)
            else:
                _BEGUN.add(optimizer)
                closure = (args[1] if len(args) > 1 else kwargs.get("closure")) is not None  # after self
                with without_torch_function():
                    for follower in _FOLLOWERS:
                        follower.before_step(optimizer, closure)
        finally:
            if region is not None:
                set_callback(region)


@untraced
def _after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if not torch.compiler.is_compiling():
        region = set_callback(None)
        try:
            if not (optimizer in _NESTED and _is_nested(optimizer)):
                _BEGUN.discard(optimizer)
                _NESTED.discard(optimizer)
                _STEPPED.add(optimizer)
                with without_torch_function():
                    for follower in _FOLLOWERS:
                        follower.after_step(optimizer)
        finally:
            if region is not None:
                set_callback(region)


def _is_nested(optimizer: Optimizer) -> bool:
    """Whether the step whose hook runs is one within another of the same optimizer."""
    frame: FrameType | None = sys._getframe(1)
    steps = 0
    while frame is not None:
        if frame.f_code is _STEP:
            steps += frame.f_locals.get("self") is optimizer
        frame = frame.f_back
    return steps > 1


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def step(self: GradScaler, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        scale = self._scale if self.is_enabled() else None
        if scale is None:
            return original(self, optimizer, *args, **kwargs)
        with without_torch_function():
            for follower in _FOLLOWERS:
                follower.before_scaler(optimizer, scale)
        _STEPPED.discard(optimizer)
        result = original(self, optimizer, *args, **kwargs)
        with without_torch_function():
            for follower in _FOLLOWERS:
                follower.after_scaler(optimizer, optimizer in _STEPPED)
        return result

    return step
