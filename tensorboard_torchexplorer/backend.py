"""What the routes answer: stored points to the dataclasses of `schema`. Knows neither HTTP nor torch.

A `Backend` lives as long as TensorBoard and keeps what is costly to make, each with the token of the tags it
was made from. A request lists four tags (about 1 ms), which gives the token, and reads only if it changed.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from tensorboard import errors

from tensorboard_torchexplorer import events, history
from tensorboard_torchexplorer.cache import Cache
from tensorboard_torchexplorer.history import Key, Point, Timeline
from tensorboard_torchexplorer.opened import Opened, StoredGraphs, health_of
from tensorboard_torchexplorer.schema import (
    HEALTH,
    PHASES,
    VERSION,
    Graph,
    Health,
    Level,
    Matches,
    ModelEntry,
    Phase,
    RunEntry,
    Runs,
    Steps,
)
from tensorboard_torchexplorer.schema_json import newer_version
from tensorboard_torchexplorer.series import SeriesReader, answer, columns_that_fit
from tensorboard_torchexplorer.source import Listed, Source, combined

LISTING_SECONDS = 3.0
"""All tags of all runs are listed at most this often, and at most for a twentieth of the time."""

RUNS_PER_READ = 50
CACHE_BYTES = 64 << 20


class UnreadableError(errors.PublicError):  # type: ignore[misc]  # TensorBoard is untyped
    """The records are there and can't be shown: damaged, or of a newer version."""

    http_code = 422


class Backend:
    """Answers from stored records, for any number of threads."""

    def __init__(self) -> None:
        self._infos: Cache[history.Infos] = Cache(history.INFOS_BYTES)
        self._histories: Cache[Timeline] = Cache(CACHE_BYTES)
        self._graphs: Cache[StoredGraphs] = Cache(2 * CACHE_BYTES)
        self._entries: Cache[ModelEntry] = Cache(CACHE_BYTES)
        self._extremes: Cache[dict[Key, npt.NDArray[np.float32]]] = Cache(CACHE_BYTES)
        self._problems: dict[tuple[str, str], tuple[str, str]] = {}
        self._listing: dict[str, dict[str, set[str]]] = {}
        self._listed_at = 0.0
        self._listing_cost = 0.0
        self._lock = threading.Lock()
        self._opening: dict[tuple[str, str], threading.Lock] = {}

    # --- One model ---

    def open(self, source: Source, run: str, model: str) -> Opened:
        """Raises NotFoundError or UnreadableError."""
        token, listed = self.token(source, run, model)
        # The tab asks for steps, graph and statistics at once: the first opens the model, the others wait.
        with self._opening.setdefault((run, model), threading.Lock()):
            return self._open(source, run, model, token, listed)

    def _open(self, source: Source, run: str, model: str, token: str, listed: dict[str, Listed]) -> Opened:
        graph_tags, index_tags = _tags(model)[:2], _tags(model)[2:]
        index_token = combined(listed, index_tags)
        key = (run, model)
        graphs = self._graphs.get(key, combined(listed, graph_tags))
        steps = self._histories.get(key, index_token)
        wanted = ([] if graphs else graph_tags) + ([] if steps else index_tags)
        found = source.read([run], [tag for tag in wanted if tag in listed]) if wanted else {}
        points = found.get(run, {})
        try:
            if steps is None:
                steps = self._timeline(key, points, index_token, index_tags)
            if graphs is None:
                stored = [history.normalised(points.get(tag, [])) for tag in graph_tags]
                graphs = StoredGraphs(dict(zip(PHASES, stored, strict=True)))
                size = 250 * sum(len(point.payload) for tag in stored for point in tag)
                self._graphs.put(key, combined(listed, graph_tags), graphs, size)
            view = graphs.view_for(steps)
        except (events.DecodeError, events.NewerVersionError) as error:
            self._problems[key] = (token, str(error))
            raise UnreadableError(f"model {model!r} of run {run!r} can't be shown: {error}") from None
        return Opened(run, model, token, steps, graphs, view)

    def token(self, source: Source, run: str, model: str) -> tuple[str, dict[str, Listed]]:
        """What changes with every new record of the model, and its four tags."""
        tags = _tags(model)
        listed = source.listing([run], tags).get(run, {})
        if not listed:
            known = run in source.runs()
            raise errors.NotFoundError(f"run {run!r} has no model {model!r}" if known else f"no run {run!r}")
        newest = max(events.stored_version(entry.content) for entry in listed.values())
        if newest > VERSION:
            raise UnreadableError(f"model {model!r} of run {run!r} was {newer_version(newest)}")
        return _short(combined(listed, tags)), listed

    def _timeline(
        self, key: tuple[str, str], points: dict[str, list[Point]], token: str, tags: Sequence[str]
    ) -> Timeline:
        # Records that were there at the last request are not decoded again.
        infos = self._infos.stale(key) or history.Infos()
        index: dict[Phase, list[Point]] = {
            phase: points.get(tag, []) for phase, tag in zip(PHASES, tags, strict=True)
        }
        steps = history.timeline(index, infos)
        infos.forget_others({Key(p.step, p.wall) for part in index.values() for p in part})
        self._infos.put(key, "", infos, infos.bytes)
        # Its own tables; what is in them is that of `infos`.
        self._histories.put(key, token, steps, 300 * len(steps.columns))
        return steps

    # --- Answers ---

    def runs(self, source: Source) -> Runs:
        """All runs with records of ours and their models; cheap enough to ask every two seconds."""
        models = self._models(source)
        tags = sorted({tag for names in models.values() for name in names for tag in _tags(name)})
        listed = source.listing(None, tags) if tags else {}
        entries: dict[str, dict[str, ModelEntry]] = {}
        changed: dict[str, list[str]] = {}
        for run, names in models.items():
            here = listed.get(run, {})
            for name in sorted(names):
                if not any(tag in here for tag in _tags(name)):
                    continue
                token = combined(here, _tags(name))
                entry = self._entries.get((run, name), token)
                if entry:
                    entries.setdefault(run, {})[name] = entry
                else:
                    changed.setdefault(run, []).append(name)
        for batch in _batches(sorted(changed), RUNS_PER_READ):
            wanted = sorted({tag for run in batch for name in changed[run] for tag in _tags(name)[2:]})
            points = source.read(batch, wanted)
            for run in batch:
                for name in changed[run]:
                    entry = _entry(name, listed[run], points.get(run, {}))
                    self._entries.put((run, name), combined(listed[run], _tags(name)), entry, 1000)
                    entries.setdefault(run, {})[name] = entry
        return Runs(
            [
                RunEntry(run, [self._with_problem(run, entries[run][name]) for name in sorted(entries[run])])
                for run in sorted(entries)
            ]
        )

    def steps(self, opened: Opened) -> Steps:
        steps = opened.steps
        infos = [steps.info(step) for step in steps.columns]
        return Steps(
            train=list(steps.infos["train"]),
            eval=list(steps.infos["eval"]),
            wall=[info.wall for info in infos],
            time=[info.time for info in infos],
            unit=time_unit(opened.view.graph),
            skipped=[step for step, info in steps.infos["train"].items() if info.skipped],
            restarts=steps.restarts,
            faults=history.faults(steps),
            dropped=history.dropped(steps),
            ranks=[
                [info.step, info.ranks, *info.missing] for info in infos if info.ranks > 1 or info.missing
            ],
        )

    def level(self, opened: Opened, node: str) -> Level:
        return opened.view.level(self.node(opened, node), opened.ran(), len(opened.steps.infos["train"]))

    def graph(self, opened: Opened) -> Graph:
        return opened.view.graph

    def search(self, opened: Opened, query: str) -> Matches:
        return opened.view.search(query)

    def series(self, source: Source, opened: Opened, node: str, limit: int) -> bytes:
        """The body of a `series` answer, see `schema.SeriesAnswer`."""
        index = self.node(opened, node)
        indices = opened.view.series_of(index)
        limit = min(limit, columns_that_fit(opened.view, opened.steps, len(indices)))
        reader = SeriesReader(opened.view, opened.steps, opened.model, indices, limit)
        points = source.read([opened.run], reader.tags).get(opened.run, {}) if reader.tags else {}
        return answer(reader, index, points, time_unit(opened.view.graph))

    def health(self, source: Source, opened: Opened, stat: str, step: int | None) -> Health:
        """`stat` at the last logged step that is not after `step`. Raises NotFoundError before the first."""
        steps, phase = opened.steps, opened.steps.main
        logged = [at for at in steps.infos[phase] if step is None or at <= step]
        if not logged:
            what = "no step is logged yet" if step is None else f"no step is logged up to {step}"
            raise errors.NotFoundError(f"{what} in model {opened.model!r} of run {opened.run!r}")
        tag = events.step_tag(opened.model, phase, "health")
        points = source.read([opened.run], [tag]).get(opened.run, {}).get(tag, [])
        wanted = steps.keys[phase][logged[-1]]
        low, high = self._range(opened, phase, points)
        column = HEALTH.index(stat)
        stored = {Key(point.step, point.wall): point.payload for point in points}
        own = opened.health(phase, logged[-1], stored.get(wanted))[:, column]
        worst = opened.view.worst(own)
        return Health(
            stat=stat,
            step=logged[-1],
            nodes=list(range(len(own))),
            own=_or_none(own),
            worst=_or_none(worst),
            low=_or_none(low)[column],
            high=_or_none(high)[column],
        )

    def node(self, opened: Opened, node: str) -> int:
        """The index of a node. Raises NotFoundError."""
        index = opened.view.index.get(node)
        if index is None:
            raise errors.NotFoundError(
                f"model {opened.model!r} of run {opened.run!r} has no node {node[:200]!r}"
            )
        return index

    # --- Parts ---

    def _models(self, source: Source) -> dict[str, set[str]]:
        """The models of each run, from a listing of all tags that is a few seconds old at most."""
        now = time.monotonic()
        with self._lock:
            fresh = now - self._listed_at < max(LISTING_SECONDS, 20 * self._listing_cost)
            known = self._listing.get(source.experiment) if fresh else None
        if known is not None and known.keys() >= set(source.runs()):
            return known
        found: dict[str, set[str]] = {run: set() for run in source.runs()}
        for run, listed in source.listing().items():
            parsed = [events.parse_tag(tag) for tag in listed]
            found.setdefault(run, set()).update(tag.model for tag in parsed if tag)
        with self._lock:
            self._listing = {source.experiment: found}
            self._listed_at = time.monotonic()
            self._listing_cost = self._listed_at - now
        return found

    def _with_problem(self, run: str, entry: ModelEntry) -> ModelEntry:
        token, problem = self._problems.get((run, entry.name), ("", ""))
        if entry.problem or token != entry.token:
            return entry
        return ModelEntry(entry.name, entry.token, entry.steps, entry.first, entry.last, problem)

    def _range(
        self, opened: Opened, phase: Phase, points: Sequence[Point]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """The smallest and largest finite value of each statistic over all logged steps."""
        key = (opened.run, opened.model, phase)
        known = self._extremes.stale(key) or {}
        wanted = set(opened.steps.keys[phase].values())
        extremes = {}
        for point in points:
            at = Key(point.step, point.wall)
            if at in wanted:
                extremes[at] = known[at] if at in known else _extremes(health_of(point.payload))
        self._extremes.put(key, "", extremes, 200 * len(extremes))
        if not extremes:
            nothing = np.full(len(HEALTH), np.nan, np.float32)
            return nothing, nothing
        both = np.stack(list(extremes.values()))
        return np.fmin.reduce(both[:, 0]), np.fmax.reduce(both[:, 1])


def time_unit(graph: Graph) -> str:
    """The user's time unit (`time_log`)."""
    unit = graph.options.get("unit", "")
    return unit if isinstance(unit, str) else ""


def _tags(model: str) -> list[str]:
    """The tags whose points say whether there is anything new: graphs, then indices, by phase."""
    indices = (events.step_tag(model, phase, "index") for phase in PHASES)
    return [*(events.graph_tag(model, phase) for phase in PHASES), *indices]


def _entry(name: str, listed: dict[str, Listed], points: dict[str, list[Point]]) -> ModelEntry:
    tags = _tags(name)
    token = _short(combined(listed, tags))
    newest = max(events.stored_version(listed[tag].content) for tag in tags if tag in listed)
    if newest > VERSION:
        return ModelEntry(name, token, 0, -1, -1, newer_version(newest))
    problem = "" if tags[0] in listed or tags[1] in listed else "no graph was recorded"
    steps = history.normalised(points.get(tags[2], []))
    try:
        # The rest is decoded when the model is opened: there may be hundreds of runs.
        for point in steps[-1:]:
            events.decode_info(point.payload)
    except (events.DecodeError, events.NewerVersionError) as error:
        problem = str(error)
    if not steps:
        return ModelEntry(name, token, 0, -1, -1, problem)
    return ModelEntry(name, token, len(steps), steps[0].step, steps[-1].step, problem)


def _extremes(health: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """float32 [2, statistics]: smallest and largest finite value, NaN where there is none."""
    extremes = np.full((2, len(HEALTH)), np.nan, np.float32)
    finite = np.where(np.isfinite(health), health, np.nan)[:, : len(HEALTH)]
    if len(finite):
        extremes[0, : finite.shape[1]] = np.fmin.reduce(finite, axis=0)
        extremes[1, : finite.shape[1]] = np.fmax.reduce(finite, axis=0)
    return extremes


def _or_none(values: npt.NDArray[np.float32]) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.astype(np.float64).tolist()]


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _batches(items: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))
