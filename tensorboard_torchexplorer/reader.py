"""Event files to plain dataclasses and numpy arrays: no TensorBoard server, no torch.

for run in read("runs").values():
    for model in run.values():
        history = model.history("train")
        for index, series in enumerate(model.graph.series):
            rows = history.rows(index)
            print(series.name, history.steps, rows["max"], rows["counts"])
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from tensorboard.backend.event_processing import io_wrapper
from tensorboard.compat import tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.types_pb2 import DT_UINT8
from tensorboard.errors import PublicError

from tensorboard_torchexplorer.arguments import path_of
from tensorboard_torchexplorer.backend import Backend, time_unit
from tensorboard_torchexplorer.crc import masked_crc32c
from tensorboard_torchexplorer.events import parse_tag, step_tag
from tensorboard_torchexplorer.history import Key, Point
from tensorboard_torchexplorer.opened import Opened
from tensorboard_torchexplorer.rows import DecodeError, Rows
from tensorboard_torchexplorer.schema import HEALTH, PHASES, PLUGIN_NAME, Graph, Phase, StepInfo
from tensorboard_torchexplorer.series import SeriesReader
from tensorboard_torchexplorer.source import Listed, Source

_HEADER_BYTES = 12
_FOOTER_BYTES = 4


@dataclass(frozen=True)
class History:
    """The logged steps of one phase of a model, ascending, and what was recorded at each."""

    phase: Phase
    steps: npt.NDArray[np.int64]
    infos: list[StepInfo]
    _opened: Opened = field(repr=False)
    _source: Source = field(repr=False)

    def rows(self, index: int) -> Rows:
        """The rows [steps] of `graph.series[index]`: structured, with the columns of `schema.ROW_FIELDS` and
        `counts`. Where `rows["status"]` is not 0, `schema.STATUS` says why a row is blank."""
        rows: Rows = self.table([index])[0]
        return rows

    def table(self, indices: Sequence[int]) -> Rows:
        """The rows [series, steps] of several series. Reading those of one shard together takes hardly
        longer than reading one of them. Raises IndexError for a series that the graph does not have,
        ValueError for what is no number of one."""
        opened = self._opened
        for index in indices:
            if isinstance(index, bool) or not isinstance(index, int | np.integer):
                raise ValueError(f"series: index={index!r} is not a whole number")
            if not 0 <= index < len(opened.view.graph.series):
                raise IndexError(f"series {index} of {len(opened.view.graph.series)}")
        reader = SeriesReader(opened.view, opened.steps, opened.model, list(indices))
        rows = reader.rows(self.phase, _points(self._source, opened.run, reader.tags))
        logged = opened.steps.infos[self.phase]
        table: Rows = rows[:, [step in logged for step in reader.columns]]
        return table

    def health(self) -> npt.NDArray[np.float32]:
        """float32 [steps, nodes, len(schema.HEALTH)], NaN where unknown. Stored with 8 bits of precision."""
        opened = self._opened
        tag = step_tag(opened.model, self.phase, "health")
        points = _points(self._source, opened.run, [tag]).get(tag, [])
        stored = {Key(point.step, point.wall): point.payload for point in points}
        keys = opened.steps.keys[self.phase]
        health = [opened.health(self.phase, step, stored.get(key)) for step, key in keys.items()]
        return np.array(health, np.float32).reshape(-1, len(opened.view.graph.nodes), len(HEALTH))


@dataclass(frozen=True)
class Model:
    """A watched model of a run. At the steps `restarts` a new process went on. `unit` is the user's time
    unit (`time_log`), "" without one."""

    name: str
    graph: Graph
    restarts: list[int]
    unit: str
    _opened: Opened = field(repr=False)
    _source: Source = field(repr=False)

    def history(self, phase: Phase = "train") -> History:
        """The logged steps of a phase. Raises ValueError for an unknown one."""
        if phase not in PHASES:
            raise ValueError(f"phase: expected one of {PHASES}, got {phase!r}")
        infos = self._opened.steps.infos[phase]
        return History(
            phase, np.array(list(infos), np.int64), list(infos.values()), self._opened, self._source
        )


@dataclass(frozen=True)
class Run(Mapping[str, Model]):
    """A run directory with records: its models by name. `problems` says what can't be shown, and why."""

    name: str
    models: dict[str, Model]
    problems: list[str]

    def __getitem__(self, model: str) -> Model:
        return self.models[model]

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)


def read(logdir: str | os.PathLike[str]) -> dict[str, Run]:
    """Everything that was recorded below `logdir`, by run ("." is the directory itself).

    Histories are decoded when asked for. What is damaged or of a newer version is left out and named in
    `Run.problems`. Raises FileNotFoundError where there is no such directory, ValueError for what is no
    path."""
    source = FileSource(logdir)
    backend = Backend()
    runs: dict[str, Run] = {}
    for entry in backend.runs(source).runs:
        models = {}
        problems = list(source.problems.get(entry.name, ()))
        for found in entry.models:
            try:
                models[found.name] = model_of(source, backend.open(source, entry.name, found.name))
            except PublicError as error:
                problems.append(str(error))
        for model in models.values():
            problems += [f"model {model.name!r}, {p.place}: {p.error}" for p in model._opened.steps.problems]
        runs[entry.name] = Run(entry.name, models, problems)
    for name in source.problems.keys() - runs.keys():
        runs[name] = Run(name, {}, source.problems[name])
    return runs


class FileSource:
    """The points in the event files below a directory, all read at once."""

    experiment = ""

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        self.problems: dict[str, list[str]] = {}
        self._points: dict[str, dict[str, list[Point]]] = {}
        self._first: dict[tuple[str, str], Any] = {}
        root = path_of("read", "logdir", logdir)
        if not tf.io.gfile.isdir(root):
            raise FileNotFoundError(f"logdir: there is no directory {root!r}")
        for directory in sorted(io_wrapper.GetLogdirSubdirectories(root)):
            self._read_run(os.path.relpath(directory, root), directory)

    def runs(self) -> list[str]:
        return list(self._points)

    def listing(
        self, runs: Sequence[str] | None = None, tags: Sequence[str] | None = None
    ) -> dict[str, dict[str, Listed]]:
        return {
            run: {
                tag: Listed(f"{len(points)}", self._first[run, tag].content)
                for tag, points in of_run.items()
                if tags is None or tag in tags
            }
            for run, of_run in self._points.items()
            if runs is None or run in runs
        }

    def read(self, runs: Sequence[str], tags: Sequence[str]) -> dict[str, dict[str, list[Point]]]:
        return {
            run: {tag: self._points[run][tag] for tag in tags if tag in self._points[run]}
            for run in runs
            if run in self._points
        }

    def _read_run(self, run: str, directory: str) -> None:
        # In the order of their names, which begin with the time, as TensorBoard does.
        files = sorted(io_wrapper.ListDirectoryAbsolute(directory))
        for path in files:
            if not io_wrapper.IsSummaryEventsFile(path) or tf.io.gfile.isdir(path):
                continue
            try:
                for event in _events(path):
                    self._add(run, event)
            except (DecodeError, OSError) as error:
                self.problems.setdefault(run, []).append(f"{os.path.basename(path)}: {error}")

    def _add(self, run: str, event: Any) -> None:
        for value in event.summary.value:
            if not parse_tag(value.tag):
                continue
            # TensorBoard goes by the metadata of a tag's first value, too.
            first = self._first.setdefault((run, value.tag), value.metadata.plugin_data)
            if first.plugin_name != PLUGIN_NAME:
                continue
            is_bytes = value.tensor.dtype == DT_UINT8
            payload = value.tensor.tensor_content if is_bytes else b""
            points = self._points.setdefault(run, {}).setdefault(value.tag, [])
            points.append(Point(event.step, event.wall_time, payload))


def model_of(source: Source, opened: Opened) -> Model:
    """The opened model with its histories."""
    stored = opened.view.graph
    graph = replace(
        stored,
        modules=list(stored.modules),
        nodes=list(stored.nodes),
        edges=list(stored.edges),
        series=list(stored.series),
    )
    return Model(opened.model, graph, opened.steps.restarts, time_unit(graph), opened, source)


def _points(source: Source, run: str, tags: Sequence[str]) -> dict[str, list[Point]]:
    return source.read([run], tags).get(run, {})


def _events(path: str) -> Iterator[Any]:
    """The events that a file holds now; what is added while it is read is left for the next time. Raises
    DecodeError at the first record that is damaged or not complete."""
    size = tf.io.gfile.stat(path).length
    with _opened_file(path) as file:
        at = 0
        while at < size and (header := file.read(_HEADER_BYTES)):
            length = int.from_bytes(header[:8], "little")
            whole = len(header) == _HEADER_BYTES
            if whole and masked_crc32c(header[:8]) != int.from_bytes(header[8:], "little"):
                raise DecodeError(f"damaged at byte {at}: wrong checksum of a length; the rest is not read")
            if not whole or at + _HEADER_BYTES + length + _FOOTER_BYTES > size:
                raise DecodeError(
                    f"ends within a record at byte {at}: still being written, or its process was killed"
                )
            data = file.read(length + _FOOTER_BYTES)
            if masked_crc32c(data[:length]) != int.from_bytes(data[length:], "little"):
                raise DecodeError(f"damaged at byte {at}: wrong checksum; the rest is not read")
            try:
                event = Event.FromString(data[:length])
            except Exception as error:  # of protobuf, whose classes differ between its implementations
                raise DecodeError(f"damaged at byte {at}: no event: {error}") from None
            yield event
            at += _HEADER_BYTES + length + _FOOTER_BYTES


def _opened_file(path: str) -> IO[bytes]:
    # TensorBoard's own GFile opens the file anew for every read; it is needed for what is not on a disk.
    if os.path.exists(path):
        return open(path, "rb")
    file: IO[bytes] = tf.io.gfile.GFile(path, "rb")
    return file
