"""Stored points of a model's tags, in the order they were written, to one clean history.

TensorBoard's two loaders treat a step that goes back differently: the data server drops the older points
from that step on, tag by tag, the Python loader keeps all. Applying the server's rule to whatever arrives
gives the same history under both (`normalised`). The tags of one logged step share one event, so step and
wall time together identify a record: rows are taken only from the very event that the index speaks of.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tensorboard_torchexplorer import events
from tensorboard_torchexplorer.schema import PHASES, Fault, Phase, StepInfo

MAX_FAULTS = 200

INFOS_BYTES = 256 << 20
"""What the index records of a model may take in memory. Those of 100,000 steps take about a third of it."""

Part = TypeVar("Part", bound=Hashable)


class Point(NamedTuple):
    """One stored value of a tag: step and wall time of its event, and the bytes."""

    step: int
    wall: float
    payload: bytes


class Key(NamedTuple):
    """What identifies an event."""

    step: int
    wall: float


class Session(NamedTuple):
    """A process: its first logged step, of the training if it trained, and its last of any kind."""

    name: str
    first: int
    last: int


@dataclass(frozen=True)
class Timeline:
    """The logged steps of a model, ascending, and the event that holds each. `sessions` are the processes
    that trained it, or where none did those that evaluated it; `evaluations` those that only evaluated what
    others trained."""

    infos: Mapping[Phase, Mapping[int, StepInfo]]
    keys: Mapping[Phase, Mapping[int, Key]]
    columns: list[int]
    sessions: list[Session]
    evaluations: list[Session]
    problems: list[Fault]

    @property
    def restarts(self) -> list[int]:
        """The steps at which a new process went on."""
        return [session.first for session in self.sessions[1:]]

    @property
    def main(self) -> Phase:
        """The training phase, or evaluation where nothing else was logged."""
        return "train" if self.infos["train"] or not self.infos["eval"] else "eval"

    def info(self, step: int) -> StepInfo:
        """What is known of a logged step; of its training record where there is one."""
        return self.infos["train"].get(step) or self.infos["eval"][step]


def normalised(points: Iterable[Point]) -> list[Point]:
    """`points` in the order of arrival, less those that a later, lower or equal step replaced."""
    kept: list[Point] = []
    for point in points:
        while kept and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return kept


class Infos:
    """What the index records of a model say, each decoded once. Parts that are equal are one object: of a
    thousand steps most run the same nodes, and each repeats the faults of those before. A forged file could
    still hold ever other ones, a few bytes making a megabyte; beyond `limit` bytes records can't be read."""

    def __init__(self, limit: int = INFOS_BYTES) -> None:
        self.bytes = 0
        self._limit = limit
        self._known: dict[Key, StepInfo] = {}
        self._parts: dict[Any, Any] = {}

    def __call__(self, point: Point) -> StepInfo:
        """Raises DecodeError, or NewerVersionError for a record of a later version."""
        at = Key(point.step, point.wall)
        known = self._known.get(at)
        if known is not None:
            return known
        if self.bytes > self._limit:
            raise events.DecodeError(f"the steps of this model take more than {self._limit} bytes of memory")
        info = events.decode_info(point.payload)
        faults = [self._kept(f, len(f.path) + len(f.place) + len(f.error)) for f in info.faults]
        info = self._known[at] = replace(
            info,
            ran=self._kept(info.ran, 8 * len(info.ran)),
            session=self._kept(info.session, len(info.session)),
            faults=faults,
        )
        self.bytes += _own_bytes(info)
        return info

    def forget_others(self, wanted: Set[Key]) -> None:
        """Of records that are gone nothing is kept."""
        for gone in self._known.keys() - wanted:
            self.bytes -= _own_bytes(self._known.pop(gone))

    def _kept(self, part: Part, size: int) -> Part:
        known: Part | None = self._parts.get(part)
        if known is None:
            known = self._parts[part] = part
            self.bytes += 200 + size
        return known


def _own_bytes(info: StepInfo) -> int:
    """About what a decoded record takes in memory, without the parts that it shares."""
    return 700 + 8 * (len(info.faults) + len(info.missing))


def timeline(
    index: Mapping[Phase, Iterable[Point]],
    decode: Callable[[Point], StepInfo] = lambda point: events.decode_info(point.payload),
) -> Timeline:
    """The history that the index records of both phases tell. A record that can't be read is left out and
    named in `problems`; one of a newer version raises NewerVersionError."""
    infos: dict[Phase, dict[int, StepInfo]] = {phase: {} for phase in PHASES}
    keys: dict[Phase, dict[int, Key]] = {phase: {} for phase in PHASES}
    problems = []
    for phase in PHASES:
        for point in normalised(index.get(phase, ())):
            try:
                infos[phase][point.step] = decode(point)
            except events.DecodeError as error:
                problems.append(Fault("", f"{phase} step {point.step}", str(error)))
            else:
                keys[phase][point.step] = Key(point.step, point.wall)
    trained = {info.session for info in infos["train"].values()}
    _forget_undone(infos, keys, trained)
    columns = sorted({*infos["train"], *infos["eval"]})
    if not trained:
        return Timeline(infos, keys, columns, _sessions(infos["eval"], {}), [], problems)
    sessions = _sessions(infos["train"], infos["eval"])
    evaluations = {step: info for step, info in infos["eval"].items() if info.session not in trained}
    return Timeline(infos, keys, columns, sessions, _sessions(evaluations, {}), problems)


def thinned(columns: list[int], limit: int) -> list[int]:
    """At most `limit` (2 or more) of the steps, evenly spread over their order; first and last kept."""
    if len(columns) <= limit:
        return columns
    chosen = np.linspace(0, len(columns) - 1, limit).round().astype(int)
    return [columns[index] for index in chosen]


def faults(history: Timeline) -> list[Fault]:
    """All faults of the run, each once, the first `MAX_FAULTS`."""
    found = dict.fromkeys(history.problems)
    for phase in PHASES:
        for info in history.infos[phase].values():
            found.update(dict.fromkeys(info.faults))
            if len(found) > MAX_FAULTS:
                break
    return list(found)[:MAX_FAULTS]


def dropped(history: Timeline) -> int:
    """Records lost in all processes; each counts its own."""
    most: dict[str, int] = {}
    for phase in PHASES:
        for info in history.infos[phase].values():
            most[info.session] = max(info.dropped, most.get(info.session, 0))
    return sum(most.values())


def _forget_undone(
    infos: Mapping[Phase, dict[int, StepInfo]], keys: Mapping[Phase, dict[int, Key]], trained: Set[str]
) -> None:
    """Drops the records of one phase that a restart seen in the other phase undid: those of other processes
    at or after the step where the new one went on, written before it did. A process that has not `trained`
    has undone nothing, it has looked at an old step."""
    for phase, other in (PHASES, PHASES[::-1]):
        steps = list(infos[phase])
        starts = [
            keys[phase][step]
            for before, step in pairwise(steps)
            if infos[phase][before].session != infos[phase][step].session in trained
        ]
        for start in starts:
            session = infos[phase][start.step].session
            for step, key in list(keys[other].items()):
                undone = step >= start.step and key.wall < start.wall
                if undone and infos[other][step].session != session:
                    del infos[other][step], keys[other][step]


def _sessions(main: Mapping[int, StepInfo], other: Mapping[int, StepInfo]) -> list[Session]:
    """Those who wrote the records `main`, in the order of their first, up to their last of both phases."""
    found: dict[str, Session] = {}
    for records in (main, other):
        for step, info in records.items():
            known = found.get(info.session)
            if known is not None:
                found[info.session] = known._replace(last=max(step, known.last))
            elif records is main:
                found[info.session] = Session(info.session, step, step)
    return list(found.values())
