"""Many objects of one kind, kept field by field, each made only when it is looked at.

The graph of a thousand invocations has fifteen thousand objects, of which the tab asks for fifty at a time.
As JSON, too, a list for each field is a third of the text of an object for each row, and read much faster.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import accumulate, chain
from typing import Any, TypeVar, get_args, get_origin, get_type_hints, overload

Row = TypeVar("Row")


class Table(Sequence[Row]):
    """Objects of `kind`, a dataclass or named tuple, from one column a field; all are of one length. A field
    without a column has its default."""

    def __init__(self, kind: Callable[..., Row], columns: Mapping[str, Sequence[Any]]) -> None:
        (length,) = {len(column) for column in columns.values()}
        self._kind = kind
        self._columns = columns
        self._made: list[Row | None] = [None] * length

    def column(self, name: str) -> Sequence[Any]:
        """The field `name` of all rows."""
        found = self._columns.get(name)
        return [getattr(row, name) for row in self] if found is None else found

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        made = self._made[index]
        if made is None:
            made = self._kind(**{name: column[index] for name, column in self._columns.items()})
            self._made[index] = made
        return made

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | Table) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def __repr__(self) -> str:
        return repr(list(self))


class Lists(Sequence[list[Row]]):
    """Lists of rows, cut from `items`: the first `counts[0]` are the first list, and so on."""

    def __init__(self, counts: Sequence[int], items: Sequence[Row]) -> None:
        self.counts = counts
        self.items = items
        self._ends = [0, *accumulate(counts)]

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> list[Row]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[Row]]: ...
    def __getitem__(self, index: int | slice) -> list[Row] | list[list[Row]]:
        at = range(len(self))[index]
        if isinstance(at, range):
            return [self[one] for one in at]
        return list(self.items[self._ends[at] : self._ends[at + 1]])


class Ranges(Sequence[list[int]]):
    """[first, count] pairs of whole numbers below 2**31, in eight bytes each. Equal ones hash alike."""

    def __init__(self, pairs: Iterable[Sequence[int]]) -> None:
        self.data = array("i", chain.from_iterable(pairs)).tobytes()

    def __len__(self) -> int:
        return len(self.data) // 8

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...
    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        at = range(len(self))[index]
        if isinstance(at, range):
            return [self[one] for one in at]
        return memoryview(self.data).cast("i")[2 * at : 2 * at + 2].tolist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ranges):
            return self.data == other.data
        return list(self) == other if isinstance(other, list) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return repr(list(self))


def column(rows: Sequence[Any], name: str) -> Sequence[Any]:
    """The field `name` of all rows, of a table or of any sequence of objects."""
    return rows.column(name) if isinstance(rows, Table) else [getattr(row, name) for row in rows]


def flattened(lists: Sequence[list[Row]]) -> tuple[Sequence[int], Sequence[Row]]:
    """How long each of the lists is, and what is in all of them."""
    if isinstance(lists, Lists):
        return lists.counts, lists.items
    return [len(one) for one in lists], list(chain.from_iterable(lists))


def is_record(kind: Any) -> bool:
    """Whether `kind` is a dataclass or named tuple, whose values a table may hold."""
    return isinstance(kind, type) and (is_dataclass(kind) or (issubclass(kind, tuple) and kind is not tuple))


def in_columns(kind: Any, values: Sequence[Any]) -> Any:
    """The JSON of many values of the type `kind`. Of records: an object with such JSON for each field. Of
    lists of records: `counts`, how long each is, and `items`, such JSON of all their records. Of others: a
    list of them."""
    if is_record(kind):
        return {name: in_columns(hint, column(values, name)) for name, hint in get_type_hints(kind).items()}
    if get_origin(kind) is list and is_record(get_args(kind)[0]):
        counts, items = flattened(values)
        return {"counts": counts, "items": in_columns(get_args(kind)[0], items)}
    return list(values)
