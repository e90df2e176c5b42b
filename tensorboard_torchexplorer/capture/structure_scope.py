"""The sources of one level, as bits of a mask, and the links found between them and its targets."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ..schema import EdgeKind, End
from .calls import Call, Link
from .traces import Family, Trace, Written

OUTSIDE = End("outside", 0)
NOBODY = -1
"""Owner of the nodes that were made during a call, but not all by it."""


class Spans:
    """Disjoint intervals in ascending order, each owned by a child call: which one holds a number?"""

    __slots__ = ("_ends", "_owners", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._owners: list[int] = []

    def add(self, start: int, end: int, owner: int) -> None:
        """`start <= number < end` belongs to `owner`."""
        self._starts.append(start)
        self._ends.append(end)
        self._owners.append(owner)

    def owner(self, number: int) -> int | None:
        """The owner of the interval that holds `number`, None if there is none."""
        at = bisect_right(self._starts, number) - 1
        return self._owners[at] if at >= 0 and number < self._ends[at] else None


class Scope:
    """A call whose forward is running, and what is known of tensors inside it.

    A *mask* is an int with one bit per source of the level: an input, a child, or the outside; twice
    for a child, since tensors that did not come as its results are kept apart. `traces` and `memory`
    belong to provenance.py, `boundaries` and `walked` to autograd_walk.py.
    """

    __slots__ = (
        "_bits",
        "_links",
        "_sources",
        "boundaries",
        "call",
        "closed",
        "indices",
        "memory",
        "parent",
        "ports",
        "sequences",
        "traces",
        "walked",
        "written",
    )

    def __init__(self, call: Call, parent: Scope | None) -> None:
        self.call = call
        self.parent = parent
        self._links: dict[Link, tuple[EdgeKind, bool]] = {}
        call.links = self._links
        self._sources: list[tuple[End, bool]] = []
        self._bits: dict[tuple[End, bool], int] = {}
        # id of a tensor -> what is known of it
        self.traces: dict[int, Trace] = {}
        # storage -> (gradient, data) of everything seen in it, for tensor objects not seen before
        self.memory: dict[Family, tuple[int, int]] = {}
        # storage -> what of it was written to
        self.written: dict[Family, Written] = {}
        # storages of inputs and outputs
        self.ports: set[Family] = set()
        # edges of the autograd graph: (node, output number) -> mask
        self.boundaries: dict[tuple[Any, int], int] = {}
        self.walked: dict[tuple[Any, int], int] = {}
        # Whether an input's edge is unknown: a view of memory that was written to gets its node anew
        # from whoever uses it next. Older nodes can't be told from those behind the input then, nor
        # nodes of the call from the view's.
        self.closed = False
        # which child a sequence number, and the index of a call, lie in
        self.sequences = Spans()
        self.indices = Spans()

    def bit(self, source: End, implicit: bool = False) -> int:
        """The mask of one source."""
        key = (source, implicit)
        found = self._bits.get(key)
        if found is None:
            found = self._bits[key] = 1 << len(self._sources)
            self._sources.append(key)
        return found

    def outside(self) -> int:
        """The mask of a tensor that came by an attribute or a closure."""
        return self.bit(OUTSIDE, True)

    def link(self, gradient: int, data: int, target: End, implicit: bool = False) -> None:
        """Draw the edges from the sources in `gradient` and `data` to `target`.

        Evidence adds up: one gradient path makes the edge a gradient edge, one explicit path an
        explicit one.
        """
        links = self._links
        rest = gradient | data
        while rest:
            lowest = rest & -rest
            rest ^= lowest
            source, by_side = self._sources[lowest.bit_length() - 1]
            side = implicit or by_side
            known = links.get((source, target))
            if known is not None:
                side = side and known[1]
            if lowest & gradient or (known is not None and known[0] == "gradient"):
                links[source, target] = ("gradient", side)
            else:
                links[source, target] = ("data", side)
