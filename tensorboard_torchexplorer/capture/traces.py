"""What is known of a tensor and of its memory while a forward is traced; filled by provenance.py."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor

from .edges import lacks_derivative

FEW = 8


class Trace:
    """What is known of one tensor in one level.

    `late` are the bits of `gradient` that hold only if the tensor turns out to require a gradient;
    an operator's results don't say so yet while it is being dispatched. `before` are the masks that
    the tensor had before a module handed the very same object through.
    """

    __slots__ = ("before", "data", "gradient", "late", "ref")

    def __init__(self, ref: weakref.ref[Tensor], gradient: int, data: int, late: int) -> None:
        self.ref = ref
        self.gradient = gradient
        self.data = data
        self.late = late
        self.before: tuple[int, int] | None = None

    def settle(self, tensor: Tensor) -> None:
        """Decide on the late bits, now that the tensor is out of the dispatcher."""
        if not tensor.requires_grad or lacks_derivative(tensor):
            self.gradient &= ~self.late
        self.late = 0


class Family:
    """The tensors that share one storage (or one tensor that has none).

    `marked` says whether values of any source have ever come in: parameters and constants never are
    and cost no search. `changed` says whether an operator has written to it. `origin` is the index of
    the call that made the storage. `placed` says whether its address is known.
    """

    __slots__ = ("anchor", "changed", "limit", "marked", "members", "origin", "placed")

    def __init__(self, anchor: weakref.ref[Any], origin: int) -> None:
        self.anchor = anchor
        self.origin = origin
        self.marked = False
        self.changed = False
        self.placed = False
        self.limit = FEW
        # id of a tensor -> its latest trace in any level
        self.members: dict[int, Trace] = {}

    def add(self, tensor: Tensor, trace: Trace) -> None:
        """Remember the latest trace of a member, and forget those that are gone now and then."""
        self.members[id(tensor)] = trace
        if len(self.members) > self.limit:
            self.members = {key: kept for key, kept in self.members.items() if kept.ref() is not None}
            self.limit = 2 * len(self.members) + FEW

    def living(self) -> list[Tensor]:
        """The members that still exist."""
        return [t for t in (trace.ref() for trace in self.members.values()) if t is not None]


class Written:
    """What of a family has been written to: the size of the largest tensor, and the tensors that
    autograd takes them as views of."""

    __slots__ = ("_bases", "size")

    def __init__(self) -> None:
        self.size = 0
        self._bases: dict[int, weakref.ref[Tensor]] = {}

    def add(self, base: Tensor, size: int) -> None:
        self.size = max(self.size, size)
        if not self.holds(base):
            self._bases[id(base)] = weakref.ref(base)

    def holds(self, base: Tensor) -> bool:
        found = self._bases.get(id(base))
        return found is not None and found() is base

    def join(self, other: Written) -> None:
        self.size = max(self.size, other.size)
        self._bases.update(other._bases)
