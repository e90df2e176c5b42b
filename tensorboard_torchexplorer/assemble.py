"""A finished step in, the values of one TensorBoard event out. Runs on the record thread."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .binning import bin_rows, slot_values
from .events import StepRecord, graph_values, step_values
from .rows import row_dtype
from .sampling import Samples
from .schema import HEALTH, Graph, Node, Phase, Series, Status, StepInfo
from .slots import Slots, Taken

_SCALED = ("min", "max", "low", "high", "mean", "std")


@dataclass
class Finished:
    """What the training thread leaves of one logged step.

    `numbers[i]` is the slot of series `sampled[i]`; `several` are those series that more than one slot
    makes up, by position i, with all their slots; `blank` are series and `reasons` their statuses.
    `series` and `nodes` may grow meanwhile; the record has the first `series_count` and `node_count`.
    `scale` is the slot of the loss scale, which gradients of tensors are divided by, and those of
    parameters where `parameters_scaled` (a fused optimizer unscales inside its step, and leaves out the
    step if `found_inf`). `updates` are (node-independent series of the parameter, its slot before and
    after the update). `graph_phase` is as in `events.graph_values`.
    """

    phase: Phase
    info: StepInfo
    series: Sequence[Series]
    series_count: int
    nodes: Sequence[Node]
    node_count: int
    sampled: array[int]
    numbers: array[int]
    several: Mapping[int, Sequence[int]]
    blank: array[int]
    reasons: array[int]
    updates: array[int]
    samples: Samples
    scale: Taken | None
    parameters_scaled: bool
    found_inf: Taken | None
    graph: Graph | None
    graph_phase: Phase

    @property
    def size(self) -> int:
        """Bytes that wait with it in the queue, about."""
        return self.samples.size + 16 * self.series_count


class Assembler:
    """Bins and encodes the steps of one watched model."""

    def __init__(self, model: str, bins: int, reject: float, dropped: Callable[[], int]) -> None:
        self._model = model
        self._bins = bins
        self._reject = reject
        self._dropped = dropped
        self._columns = _Columns()

    def values(self, step: Finished) -> list[Any]:
        """The `Summary.Value`s of the step, the graph first where it has changed."""
        columns = self._columns
        columns.extend(step.series, step.series_count)
        host, slots = step.samples.host(), step.samples.slots
        rows = np.zeros(step.series_count, row_dtype(self._bins))
        rows["status"] = Status.NOT_RUN
        rows["status"][np.array(step.blank, np.int64)] = np.array(step.reasons, np.int64)
        numbers = np.array(step.numbers, np.int64)
        sampled = bin_rows(host, slots, numbers, step.several, self._bins, self._reject)
        rows[np.array(step.sampled, np.int64)] = sampled
        scale = _number(host, slots, step.scale)
        if scale is not None:
            of_nodes = columns.node[: len(rows)] >= 0
            scaled = columns.gradient[: len(rows)] & (of_nodes | step.parameters_scaled)
            for name in _SCALED:
                rows[name][scaled] /= scale
        skipped = step.info.skipped or bool(_number(host, slots, step.found_inf))
        updates = _updates(host, slots, np.array(step.updates, np.int64).reshape(-1, 3))
        health = _health(rows, columns, step.nodes[: step.node_count], updates)
        record = StepRecord(
            self._model,
            step.phase,
            replace(step.info, dropped=self._dropped(), scale=scale, skipped=skipped),
            health,
            self._shards(rows),
            step.samples.wide,
        )
        graph = graph_values(step.graph, step.graph_phase) if step.graph is not None else []
        return graph + step_values(record)

    def _shards(self, rows: NDArray[np.void]) -> dict[int, NDArray[np.void]]:
        """Rows by shard; a shard without anything to say is left out."""
        shard, row = self._columns.shard[: len(rows)], self._columns.row[: len(rows)]
        shards = {}
        for number in sorted(set(shard[rows["status"] != Status.NOT_RUN].tolist())):
            members = shard == number
            part = np.zeros(int(row[members].max()) + 1, rows.dtype)
            part["status"] = Status.NOT_RUN
            part[row[members]] = rows[members]
            shards[number] = part
        return shards


class _Columns:
    """The series of a graph as numpy columns; grows with it."""

    def __init__(self) -> None:
        self._length = 0
        empty = np.zeros(0, np.int64)
        self.shard = self.row = self.node = self.module = empty
        self.output = self.param = self.gradient = np.zeros(0, bool)

    def extend(self, series: Sequence[Series], count: int) -> None:
        if count == self._length:
            return
        known = series[:count]
        self._length = count
        self.shard = np.array([s.shard for s in known], np.int64)
        self.row = np.array([s.row for s in known], np.int64)
        self.node = np.array([s.node for s in known], np.int64)
        self.module = np.array([s.module for s in known], np.int64)
        self.output = np.array([s.group == "output" for s in known], bool)
        self.param = np.array([s.group == "param" for s in known], bool)
        self.gradient = np.array([s.kind == "grad" for s in known], bool)


def _number(host: Sequence[NDArray[np.float32]], slots: Slots, taken: Taken | None) -> float | None:
    """The value of a tensor of one element."""
    return None if taken is None else float(slot_values(host, slots[taken])[0])


def _updates(
    host: Sequence[NDArray[np.float32]], slots: Slots, updates: NDArray[np.int64]
) -> dict[int, float]:
    """|new - old| / |old| over the same sampled elements of each parameter, by series. `updates` are
    rows of (series, slot before, slot after)."""
    ratios = {}
    with np.errstate(all="ignore"):
        for series, old, new in updates.tolist():
            before, after = slot_values(host, slots[old]), slot_values(host, slots[new])
            length = float(np.linalg.norm(before))
            change = float(np.linalg.norm(after - before))
            ratios[series] = change / length if length > 0 else math.nan
    return ratios


def _health(
    rows: NDArray[np.void], columns: _Columns, nodes: Sequence[Node], updates: dict[int, float]
) -> NDArray[np.float32]:
    """float32 [nodes, len(HEALTH)], see `schema.HEALTH`."""
    count = len(rows)
    ok = rows["status"] == Status.OK
    health = np.full((len(nodes), len(HEALTH)), np.nan)
    column = {name: position for position, name in enumerate(HEALTH)}
    output = columns.output[:count] & ok
    gradient = columns.gradient[:count]
    at = columns.node[:count]

    def largest(name: str, which: NDArray[np.bool_], values: NDArray[np.float64]) -> None:
        with np.errstate(invalid="ignore"):
            np.fmax.at(health[:, column[name]], at[which], values[which])

    largest("gradient", output & gradient, rows["mean"])
    largest("output_std", output & ~gradient, rows["std"])
    largest("zeros", output & ~gradient, rows["zeros"])
    broken = (rows["nan"] + rows["posinf"] + rows["neginf"]).astype(np.float64)
    total = np.zeros(len(nodes))
    np.add.at(total, at[output], broken[output])
    seen = np.zeros(len(nodes), bool)
    seen[at[output]] = True

    modules = np.array([node.module for node in nodes], np.int64)
    size = int(modules.max(initial=-1)) + 1
    param = columns.param[:count] & ok
    owner = columns.module[:count]
    with np.errstate(all="ignore"):
        square = np.square(rows["mean"]) + np.square(rows["std"])
        for name, which in (("parameter", param & ~gradient), ("parameter_gradient", param & gradient)):
            weight = np.zeros(size)
            power = np.zeros(size)
            which = which & (owner < size)
            np.add.at(weight, owner[which], rows["size"][which].astype(np.float64))
            np.add.at(power, owner[which], square[which] * rows["size"][which])
            health[:, column[name]] = np.sqrt(power / np.where(weight > 0, weight, np.nan))[modules]
    mine = param & (owner < size)
    module_broken = np.zeros(size)
    np.add.at(module_broken, owner[mine], broken[mine])
    module_seen = np.zeros(size, bool)
    module_seen[owner[mine]] = True
    health[:, column["nonfinite"]] = np.where(
        seen | module_seen[modules], total + module_broken[modules], np.nan
    )
    update = np.full(size, np.nan)
    for series, ratio in updates.items():
        if owner[series] < size:
            update[owner[series]] = np.fmax(update[owner[series]], ratio)
    health[:, column["update"]] = update[modules]
    with np.errstate(over="ignore"):  # of float64 models: Inf is as good as 1e39 to a colour
        return health.astype(np.float32)
