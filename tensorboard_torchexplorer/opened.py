"""A model of a run as of one moment: its logged steps, and one graph that explains them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensorboard_torchexplorer import events
from tensorboard_torchexplorer.graphs import GraphView
from tensorboard_torchexplorer.history import Key, Point, Session, Timeline
from tensorboard_torchexplorer.schema import HEALTH, Graph, Phase

Stored = tuple[Phase, Key]
"""A graph record: the phase of its tag, and its event."""


@dataclass
class StoredGraphs:
    """The graph records of a model by the phase of their tag, and the view of those that explain the present
    history."""

    points: dict[Phase, list[Point]]
    decoded: dict[Stored, Graph] = field(default_factory=dict)
    chosen: tuple[tuple[frozenset[str], Stored], ...] = ()
    view: GraphView | None = None
    _problem: str = "no graph was recorded"

    def view_for(self, steps: Timeline) -> GraphView:
        """One graph for all sessions of `steps`. Raises DecodeError if no graph record can be read."""
        chosen = tuple(self._choose(steps))
        if self.view is None or chosen != self.chosen:
            self.view = GraphView([(sessions, self.decoded[stored]) for sessions, stored in chosen])
            self.chosen = chosen
            self.decoded = {stored: self.decoded[stored] for _, stored in chosen}
        return self.view

    def _choose(self, steps: Timeline) -> Iterable[tuple[frozenset[str], Stored]]:
        """For each session the last graph of its time that can be read. Those of the training come last: the
        tab numbers nodes as the last one does."""
        # Before the first step has ended there is a graph already.
        sessions = steps.sessions or [Session("", 0, 0)]
        own = self._of_sessions(sessions, ("train",) if steps.infos["train"] else ("eval", "train"))
        if not own:
            raise events.DecodeError(self._problem)
        found: dict[Stored, set[str]] = {}
        for stored, name in [*self._of_sessions(steps.evaluations, ("eval", "train")), *own]:
            found.setdefault(stored, set()).add(name)
        return [(frozenset(names), stored) for stored, names in found.items()]

    def _of_sessions(self, sessions: Sequence[Session], phases: Sequence[Phase]) -> list[tuple[Stored, str]]:
        """The graph of each of successive sessions, from the first of the tags that has one. One that has
        lost its own has that of the next, or any."""
        found: list[tuple[Stored, str]] = []
        lost: list[str] = []
        for session in sessions:
            stored = self._last(phases, session.last)
            lost.append(session.name)
            if stored is not None:
                found += [(stored, name) for name in lost]
                lost = []
        stored = self._last(phases) if lost else None
        return found if stored is None else found + [(stored, name) for name in lost]

    def _last(self, phases: Sequence[Phase], until: int | None = None) -> Stored | None:
        """The last graph up to a step (None: of all) that can be read."""
        for phase in phases:
            for point in reversed(self.points[phase]):
                if until is not None and point.step > until:
                    continue
                stored = phase, Key(point.step, point.wall)
                try:
                    if stored not in self.decoded:
                        self.decoded[stored] = events.decode_graph(point.payload)
                    return stored
                except events.DecodeError as error:
                    self._problem = str(error)
        return None


@dataclass(frozen=True)
class Opened:
    """A model of a run, as of one moment."""

    run: str
    model: str
    token: str
    steps: Timeline
    graphs: StoredGraphs
    view: GraphView

    def ran(self) -> npt.NDArray[np.int64]:
        """In how many logged training steps each node ran."""
        infos = self.steps.infos["train"]
        ran = np.zeros(len(self.view.graph.nodes), np.int64)
        for span, steps in self.view.by_span(infos, infos):
            last = len(span.nodes)
            changes = [0] * (last + 1)
            # Most steps run the same nodes.
            alike: Counter[Sequence[list[int]]] = Counter(infos[step].ran for step in steps)
            for ranges, times in alike.items():
                for first, count in ranges:
                    changes[min(first, last)] += times
                    changes[min(first + count, last)] -= times
            ran[span.nodes] += np.cumsum(changes)[:-1]
        return ran

    def health(self, phase: Phase, step: int, payload: bytes | None) -> npt.NDArray[np.float32]:
        """float32 [nodes, statistics] from a stored record of a logged step; NaN where it says nothing."""
        health = np.full((len(self.view.graph.nodes), len(HEALTH)), np.nan, np.float32)
        stored = health_of(payload)
        session = self.steps.infos[phase][step].session
        numbers = self.view.span_of(session).nodes[: len(stored)]
        health[numbers, : stored.shape[1]] = stored[: len(numbers), : len(HEALTH)]
        return health


def health_of(payload: bytes | None) -> npt.NDArray[np.float32]:
    """A stored health record; one that is missing or can't be read knows nothing."""
    try:
        return events.decode_health(payload or b"")
    except (events.DecodeError, events.NewerVersionError):
        return np.zeros((0, 0), np.float32)
