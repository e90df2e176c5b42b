"""A model of a run as of one moment: its logged steps, and one graph that explains them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensorboard_torchexplorer import events
from tensorboard_torchexplorer.graphs import GraphView
from tensorboard_torchexplorer.history import Key, Point, Timeline
from tensorboard_torchexplorer.schema import HEALTH, Graph


@dataclass
class StoredGraphs:
    """The graph records of a model, and the view of those that explain the present history."""

    points: list[Point]
    decoded: dict[Key, Graph] = field(default_factory=dict)
    chosen: tuple[tuple[int, Key], ...] = ()
    view: GraphView | None = None

    def view_for(self, steps: Timeline) -> GraphView:
        """One graph for all sessions of `steps`. Raises DecodeError if no graph record can be read."""
        chosen = tuple(self._choose(steps))
        if self.view is None or chosen != self.chosen:
            self.view = GraphView([(first, self.decoded[key]) for first, key in chosen])
            self.chosen = chosen
            self.decoded = {key: self.decoded[key] for _, key in chosen}
        return self.view

    def _choose(self, steps: Timeline) -> Iterable[tuple[int, Key]]:
        """For each session the first step and the last graph of its time that can be read."""
        last = [session.last for session in steps.sessions[:-1]]
        firsts = [session.first for session in steps.sessions] or [0]
        found: dict[Key, int] = {}
        problem = "no graph was recorded"
        for first, until in zip(firsts, [*last, None], strict=True):
            in_time = [point for point in self.points if until is None or point.step <= until]
            for point in reversed(in_time):
                key = Key(point.step, point.wall)
                try:
                    if key not in self.decoded:
                        self.decoded[key] = events.decode_graph(point.payload)
                except events.DecodeError as error:
                    problem = str(error)
                    continue
                found.setdefault(key, first)
                break
        if not found:
            raise events.DecodeError(problem)
        return [(first, key) for key, first in found.items()]


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
        for span, steps in self.view.by_span(infos):
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

    def health(self, key: Key, payload: bytes | None) -> npt.NDArray[np.float32]:
        """float32 [nodes, statistics] from a stored record of the step; NaN where it says nothing."""
        health = np.full((len(self.view.graph.nodes), len(HEALTH)), np.nan, np.float32)
        stored = health_of(payload)
        numbers = self.view.span_of(key.step).nodes[: len(stored)]
        health[numbers, : stored.shape[1]] = stored[: len(numbers), : len(HEALTH)]
        return health


def health_of(payload: bytes | None) -> npt.NDArray[np.float32]:
    """A stored health record; one that is missing or can't be read knows nothing."""
    try:
        return events.decode_health(payload or b"")
    except (events.DecodeError, events.NewerVersionError):
        return np.zeros((0, 0), np.float32)
