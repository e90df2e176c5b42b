"""Objects by identity, held weakly: whatever their classes take for equal, and whether they can be hashed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Kind = TypeVar("Kind")


class WeakIds(Generic[Kind]):
    """A set of objects. A dataclass of the user's, say, has no hash, and equals others of the same values."""

    __slots__ = ("_objects",)

    def __init__(self) -> None:
        self._objects: WeakValueDictionary[int, Kind] = WeakValueDictionary()

    def __contains__(self, one: object) -> bool:
        return self._objects.get(id(one)) is one

    def __iter__(self) -> Iterator[Kind]:
        # Not `values()`: another thread may add one meanwhile.
        return (one for reference in self._objects.valuerefs() if (one := reference()) is not None)

    def __len__(self) -> int:
        return len(self._objects)

    def add(self, one: Kind) -> None:
        self._objects[id(one)] = one

    def discard(self, one: Kind) -> None:
        self._objects.pop(id(one), None)

    def update(self, others: Iterable[Kind]) -> None:
        for one in others:
            self.add(one)

    def clear(self) -> None:
        self._objects.clear()
