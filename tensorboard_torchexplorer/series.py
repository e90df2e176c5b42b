"""Chosen series of a model: which tags to read, and their points to rows and to the body of an answer."""

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
    """The rows of chosen series of a model: which `tags` to read, and their points to rows.

    `indices` are those of `GraphView.graph.series`, `columns` the logged steps of both phases, at most
    `limit` of them, evenly thinned."""

    def __init__(
        self, view: GraphView, steps: Timeline, model: str, indices: list[int], limit: int | None = None
    ) -> None:
        self.view = view
        self.steps = steps
        self.indices = indices
        self.phases = [phase for phase in PHASES if steps.infos[phase]]
        self.columns = steps.columns if limit is None else thinned(steps.columns, limit)
        self._model = model
        self._spans = {phase: view.by_span(steps.infos[phase], self.columns) for phase in self.phases}
        self.tags = sorted(
            {
                events.step_tag(model, phase, "rows", shard)
                for phase in self.phases
                for span, _ in self._spans[phase]
                for shard in self._shards(span)
            }
        )

    def rows(self, phase: Phase, points: Mapping[str, Sequence[Point]]) -> Rows:
        """Rows [series, columns] of one phase, from the points of `tags`. NOT_RUN where nothing is stored."""
        bins = self.view.graph.bins
        table = np.zeros((len(self.indices), len(self.columns)), row_dtype(bins))
        table["status"] = Status.NOT_RUN
        keys = self.steps.keys[phase]
        position_of = {step: position for position, step in enumerate(self.columns)}
        for span, steps in self._spans.get(phase, ()):
            for shard, members in self._shards(span).items():
                tag = events.step_tag(self._model, phase, "rows", shard)
                stored = {Key(point.step, point.wall): point.payload for point in points.get(tag, ())}
                found = [step for step in steps if keys[step] in stored]
                if not found:
                    continue
                payloads = [stored[keys[step]] for step in found]
                decoded, _ = decode_rows(payloads, [row for _, row in members], bins)
                columns = np.array([position_of[step] for step in found])
                table[np.ix_(np.array([series for series, _ in members]), columns)] = decoded.T
        return table

    def _shards(self, span: Span) -> dict[int, list[tuple[int, int]]]:
        """For each shard the (position of the series, row) that are wanted of it."""
        shards: dict[int, list[tuple[int, int]]] = {}
        for position, index in enumerate(self.indices):
            entry = span.entry(index)
            if entry:
                shards.setdefault(entry.shard, []).append((position, entry.row))
        return shards


def columns_that_fit(view: GraphView, steps: Timeline, series: int) -> int:
    """How many steps of that many series make an answer of `MAX_ANSWER_BYTES`; at least 2."""
    phases = sum(bool(steps.infos[phase]) for phase in PHASES)
    return max(2, MAX_ANSWER_BYTES // (row_dtype(view.graph.bins).itemsize * max(1, series * phases)))


def answer(reader: SeriesReader, node: int, points: Mapping[str, Sequence[Point]], unit: str) -> bytes:
    """The body of a `series` answer for the invocation `node`, see `schema.SeriesAnswer`."""
    graph = reader.view.graph
    heads, rows = [], []
    for phase in reader.phases:
        of_phase = reader.rows(phase, points)
        for position, index in enumerate(reader.indices):
            # Evaluation has neither gradients nor news of parameters: a blank panel would say nothing.
            if phase == "train" or not of_phase["status"][position].all():
                heads.append(_head(reader.view, node, graph.series[index], phase))
                rows.append(of_phase[position])
    table = np.stack(rows) if rows else np.zeros((0, len(reader.columns)), row_dtype(graph.bins))
    infos = [reader.steps.info(step) for step in reader.columns]
    blocks, body = _blocks(table)
    described = SeriesAnswer(
        node=graph.nodes[node].id,
        level=graph.nodes[max(0, graph.nodes[node].parent)].id,
        peers=[graph.nodes[peer].id for peer in reader.view.peers(node)],
        series=heads,
        steps=reader.columns,
        wall=[info.wall for info in infos],
        time=[info.time for info in infos],
        unit=unit,
        restarts=reader.steps.restarts,
        total=len(reader.steps.columns),
        bins=graph.bins,
        blocks=blocks,
    )
    head = schema_json.dumps(described)
    head += b" " * (-(len(head) + 4) % _ALIGNMENT)
    return b"".join([len(head).to_bytes(4, "little"), head, body])


def _head(view: GraphView, index: int, series: Series, phase: Phase) -> SeriesHead:
    node = view.graph.nodes[index]
    shape: list[int | None] | None
    if series.group == "param":
        parameters = view.graph.modules[node.module].parameters
        found = next((parameter.shape for parameter in parameters if parameter.name == series.name), None)
        shape = None if found is None else [*found]
    else:
        ports = node.inputs if series.group == "input" else node.outputs
        shape = ports[series.index].shape if 0 <= series.index < len(ports) else None
    return SeriesHead(series.group, series.kind, series.index, series.name, phase, shape)


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
