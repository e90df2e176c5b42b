"""The histories of one invocation: which tags to read, and their points to the body of a `series` answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorboard_torchexplorer import events, schema_json
from tensorboard_torchexplorer.graphs import GraphView, Span
from tensorboard_torchexplorer.history import Key, Point, Timeline, thinned
from tensorboard_torchexplorer.rows import Rows, decode_rows, row_dtype
from tensorboard_torchexplorer.schema import (
    PHASES,
    ROW_FIELDS,
    Block,
    Phase,
    Series,
    SeriesAnswer,
    SeriesHead,
    Status,
)

MAX_ANSWER_BYTES = 64 << 20
_ALIGNMENT = 8


class SeriesReader:
    """Plans a read of the series of invocation `node`, at most `limit` steps, and makes the answer."""

    def __init__(self, view: GraphView, steps: Timeline, model: str, node: int, limit: int) -> None:
        self._view = view
        self._steps = steps
        self._model = model
        self._node = node
        self._indices = view.series_of(node)
        self._phases = [phase for phase in PHASES if steps.infos[phase]]
        row_bytes = row_dtype(view.graph.bins).itemsize
        fits = MAX_ANSWER_BYTES // (row_bytes * max(1, len(self._indices) * len(self._phases)))
        self._columns = thinned(steps.columns, max(2, min(limit, fits)))
        self._spans = _by_span(view, self._columns)
        self.tags = sorted(
            {
                events.step_tag(model, phase, "rows", span.places[index].shard)
                for phase in self._phases
                for span, _ in self._spans
                for index in self._indices
                if index in span.places
            }
        )

    def answer(self, points: Mapping[str, Sequence[Point]], unit: str) -> bytes:
        """The body, from the points of `tags`."""
        heads, rows = [], []
        for phase in self._phases:
            of_phase = self._rows(phase, points)
            for position, index in enumerate(self._indices):
                # Evaluation has neither gradients nor news of parameters: a blank panel would say nothing.
                if phase == "train" or not of_phase["status"][position].all():
                    heads.append(self._head(self._view.graph.series[index], phase))
                    rows.append(of_phase[position])
        table = (
            np.stack(rows) if rows else np.zeros((0, len(self._columns)), row_dtype(self._view.graph.bins))
        )
        infos = [self._steps.info(step) for step in self._columns]
        blocks, body = _blocks(table)
        answer = SeriesAnswer(
            node=self._view.graph.nodes[self._node].id,
            series=heads,
            steps=self._columns,
            wall=[info.wall for info in infos],
            time=[info.time for info in infos],
            unit=unit,
            total=len(self._steps.columns),
            bins=self._view.graph.bins,
            blocks=blocks,
        )
        head = schema_json.dumps(answer)
        head += b" " * (-(len(head) + 4) % _ALIGNMENT)
        return b"".join([len(head).to_bytes(4, "little"), head, body])

    def _rows(self, phase: Phase, points: Mapping[str, Sequence[Point]]) -> Rows:
        """Rows [series, columns] of one phase."""
        table = np.zeros((len(self._indices), len(self._columns)), row_dtype(self._view.graph.bins))
        table["status"] = Status.NOT_RUN
        keys = self._steps.keys[phase]
        position_of = {step: position for position, step in enumerate(self._columns)}
        for span, steps in self._spans:
            for shard, members in self._shards(span).items():
                tag = events.step_tag(self._model, phase, "rows", shard)
                stored = {Key(point.step, point.wall): point.payload for point in points.get(tag, ())}
                found = [step for step in steps if step in keys and keys[step] in stored]
                if not found:
                    continue
                payloads = [stored[keys[step]] for step in found]
                decoded, _ = decode_rows(payloads, [row for _, row in members], self._view.graph.bins)
                columns = np.array([position_of[step] for step in found])
                table[np.ix_(np.array([series for series, _ in members]), columns)] = decoded.T
        return table

    def _shards(self, span: Span) -> dict[int, list[tuple[int, int]]]:
        """For each shard the (position of the series, row) that are wanted of it."""
        shards: dict[int, list[tuple[int, int]]] = {}
        for position, index in enumerate(self._indices):
            place = span.places.get(index)
            if place:
                shards.setdefault(place.shard, []).append((position, place.row))
        return shards

    def _head(self, series: Series, phase: Phase) -> SeriesHead:
        return SeriesHead(series.group, series.kind, series.index, series.name, phase, self._shape(series))

    def _shape(self, series: Series) -> list[int | None] | None:
        node = self._view.graph.nodes[self._node]
        if series.group == "param":
            parameters = self._view.graph.modules[node.module].parameters
            shape = next((parameter.shape for parameter in parameters if parameter.name == series.name), None)
            return None if shape is None else [*shape]
        ports = node.inputs if series.group == "input" else node.outputs
        return ports[series.index].shape if 0 <= series.index < len(ports) else None


def _by_span(view: GraphView, columns: list[int]) -> list[tuple[Span, list[int]]]:
    """The columns that each span explains."""
    found: list[tuple[Span, list[int]]] = []
    for step in columns:
        span = view.span_of(step)
        if not found or found[-1][0] is not span:
            found.append((span, []))
        found[-1][1].append(step)
    return found


def _blocks(table: Rows) -> tuple[list[Block], bytes]:
    """`table` [series, steps] column by column, each in the narrowest type that keeps it."""
    blocks, parts, offset = [], [], 0
    for name in (*(name for name, _ in ROW_FIELDS), "counts"):
        array = _for_browser(table[name])
        data = array.tobytes()
        blocks.append(Block(name, array.dtype.str[1:], list(array.shape), offset))
        data += bytes(-len(data) % _ALIGNMENT)
        parts.append(data)
        offset += len(data)
    return blocks, b"".join(parts)


def _for_browser(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """u1, u4, f4 or f8: whole numbers beyond 32 bits become f8, JavaScript's own number."""
    if column.dtype.kind == "f":
        with np.errstate(over="ignore", under="ignore"):
            single = column.astype("<f4")
        return single if np.array_equal(single.astype("<f8"), column, equal_nan=True) else column
    largest = int(column.max(initial=0))
    return column.astype("u1" if largest < 1 << 8 else "<u4" if largest < 1 << 32 else "<f8")
