"""The calls of each logged forward in, whether the next one is to be traced out."""

from __future__ import annotations

from .capture.calls import Call

MAX_TRACES = 8
"""Traced forwards in a row to see an invocation again, or for known ones in ever new orders."""


class Retracing:
    """`pending` says that the next logged forward is to be traced for its edges: while invocations are
    known of which none was (a rare branch may take several tries), or where known ones came in a new
    order. The first forward always is."""

    def __init__(self) -> None:
        self.pending = True
        self._signatures: set[int] = set()
        self._traced: set[str] = set()
        self._untraced: set[str] = set()
        self._tries = self._orders = 0

    def note(self, calls: list[Call]) -> None:
        """A logged forward has made `calls`, and was traced if that was pending."""
        signature = hash(tuple((call.id, len(call.inputs), len(call.outputs)) for call in calls))
        ids = {call.id for call in calls}
        if self.pending:
            self._signatures.add(signature)
            self._traced |= ids
            self._untraced -= ids
            self._tries -= 1
        elif not ids <= self._traced:
            self._untraced |= ids - self._traced
            self._tries = MAX_TRACES
        elif signature in self._signatures:
            self._orders = 0
        elif self._orders < MAX_TRACES:
            self._orders += 1
            self.pending = True
            return
        self.pending = bool(self._untraced) and self._tries > 0
