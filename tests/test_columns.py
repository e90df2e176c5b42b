from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tensorboard_torchexplorer.columns import Lists, Ranges, Table, column, flattened, in_columns


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Shape:
    name: str
    points: list[Point]
    at: Point
    tags: list[str] = field(default_factory=list)


SHAPES = [
    Shape("line", [Point(0, 0), Point(1, 2)], Point(5, 5), ["thin"]),
    Shape("none", [], Point(6, 6)),
    Shape("dot", [Point(3, 3)], Point(7, 7), ["a", "b"]),
]
COLUMNS = {
    "name": ["line", "none", "dot"],
    "points": Lists([2, 0, 1], Table(Point, {"x": [0, 1, 3], "y": [0, 2, 3]})),
    "at": Table(Point, {"x": [5, 6, 7], "y": [5, 6, 7]}),
    "tags": [["thin"], [], ["a", "b"]],
}


def test_a_table_is_the_sequence_of_its_rows():
    table = Table(Shape, COLUMNS)

    assert (len(table), table[0], table[-1], table[1:]) == (3, SHAPES[0], SHAPES[2], SHAPES[1:])
    assert [*table] == SHAPES
    assert table == SHAPES
    assert [*SHAPES] == table
    assert table == Table(Shape, COLUMNS)
    assert table != SHAPES[:2]
    assert repr(table) == repr(SHAPES)
    with pytest.raises(IndexError):
        table[3]


def test_a_row_is_made_when_it_is_looked_at_and_once():
    made = []

    def point(x: int, y: int) -> Point:
        made.append(x)
        return Point(x, y)

    table = Table(point, {"x": [1, 2, 3], "y": [4, 5, 6]})

    assert table.column("y") == [4, 5, 6]
    assert made == []
    assert table[1] is table[-2]
    assert made == [2]


def test_lists_are_cut_where_their_counts_say():
    lists = COLUMNS["points"]

    assert [*lists] == [shape.points for shape in SHAPES]
    assert (len(lists), lists[-1], lists[1:]) == (3, [Point(3, 3)], [[], [Point(3, 3)]])
    with pytest.raises(IndexError):
        lists[3]


@pytest.mark.parametrize("rows", [SHAPES, Table(Shape, COLUMNS)], ids=["objects", "table"])
def test_a_field_of_all_rows_is_there_however_they_are_kept(rows):
    assert [*column(rows, "name")] == ["line", "none", "dot"]
    assert [*column(column(rows, "at"), "x")] == [5, 6, 7]
    counts, points = flattened(column(rows, "points"))
    assert ([*counts], [*points]) == ([2, 0, 1], [Point(0, 0), Point(1, 2), Point(3, 3)])


def test_a_field_without_a_column_has_its_default():
    table = Table(Shape, {name: part for name, part in COLUMNS.items() if name != "tags"})

    assert table[0] == Shape("line", SHAPES[0].points, Point(5, 5), [])
    assert table.column("tags") == [[], [], []]


def test_columns_of_different_lengths_are_no_table():
    with pytest.raises(ValueError, match="values to unpack"):
        Table(Point, {"x": [1], "y": [1, 2]})


@pytest.mark.parametrize("rows", [SHAPES, Table(Shape, COLUMNS)], ids=["objects", "table"])
def test_the_columns_to_store(rows):
    assert in_columns(Shape, rows) == {
        "name": ["line", "none", "dot"],
        "points": {"counts": [2, 0, 1], "items": {"x": [0, 1, 3], "y": [0, 2, 3]}},
        "at": {"x": [5, 6, 7], "y": [5, 6, 7]},
        "tags": [["thin"], [], ["a", "b"]],
    }


def test_no_rows_have_empty_columns():
    assert in_columns(Point, []) == {"x": [], "y": []}
    assert [*Table(Point, {"x": [], "y": []})] == []


def test_ranges_are_the_sequence_of_their_pairs():
    pairs = [[0, 3], [7, 1], [1 << 20, 5]]
    ranges = Ranges(pairs)

    assert (len(ranges), ranges[0], ranges[-1], ranges[1:]) == (3, pairs[0], pairs[-1], pairs[1:])
    assert list(ranges) == pairs == ranges
    assert ranges == Ranges(pairs) != Ranges(pairs[:2])
    assert len({ranges, Ranges(pairs), Ranges([])}) == 2
    assert len(ranges.data) == 24
