"""Calls of an evaluation in, notes on those that ran as one kernel out."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from .calls import Call

FUSED = "fused in evaluation: its submodules are not called"


def mark_fused(calls: list[Call], was_called: Callable[[str], bool]) -> None:
    """Note the calls that did without submodules which training calls: without gradients torch's
    encoder layers run as one kernel. `was_called(path)` tells whether a module was called before."""
    for call in calls:
        if call.children or call.failed:
            continue
        below = f"{call.path}." if call.path else ""
        if isinstance(call.module, nn.TransformerEncoderLayer) or any(
            was_called(below + name) for name, _ in call.module.named_children()
        ):
            call.notes = (*call.notes, FUSED)
