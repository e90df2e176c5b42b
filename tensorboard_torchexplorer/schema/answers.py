"""What the backend answers over HTTP, and the same answers in the HTML file of a report."""

from __future__ import annotations

from dataclasses import dataclass

from .graph import VERSION, Edge, Group, Kind, Parameter, Phase, Port
from .rows import Fault


@dataclass(frozen=True)
class ModelEntry:
    """A watched model of a run. `token` changes whenever there is something new to fetch. `steps`
    counts its logged training steps, `first` and `last` are the step numbers (-1: none yet).
    `problem` is empty, or says why it can't be shown (newer version, damaged)."""

    name: str
    token: str
    steps: int
    first: int
    last: int
    problem: str = ""


@dataclass(frozen=True)
class RunEntry:
    """A run directory that holds explorer records."""

    name: str
    models: list[ModelEntry]


@dataclass(frozen=True)
class Runs:
    """Answer of `runs`."""

    runs: list[RunEntry]
    version: int = VERSION


@dataclass(frozen=True)
class Steps:
    """Answer of `steps`: the logged steps of both phases, ascending, all of them.
    `unit` is the user's time unit ("" without `time_log`). `restarts` are the steps at which a new
    process went on. `wall` and `time` go with the sorted union of both phases' steps; `skipped` are the
    steps that a loss scaler skipped. `ranks` are the steps with samples of several ranks, or lacking some, as
    [step, of how many it holds, those that it lacks...], see `StepInfo`."""

    train: list[int]
    eval: list[int]
    wall: list[float]
    time: list[float | None]
    unit: str
    skipped: list[int]
    restarts: list[int]
    faults: list[Fault]
    dropped: int
    ranks: list[list[int]]
    version: int = VERSION


@dataclass(frozen=True)
class LevelNode:
    """A node of a level, with what the tab shows of its module. `index` is that of `Graph.nodes`.

    `name` is the module's path relative to the level's module (its full path where it lies
    elsewhere). `calls` is how often the level calls this module; `children` how many invocations
    its own level has; `ran` in how many logged training steps it ran. `size` counts the parameters
    of the module and all below it, each once.
    """

    index: int
    id: str
    name: str
    path: str
    class_name: str
    call: int
    calls: int
    children: int
    ran: int
    size: int
    extra: list[list[str]]
    inputs: list[Port]
    outputs: list[Port]
    arguments: list[list[str]]
    parameters: list[Parameter]
    flags: list[str]
    notes: list[str]
    container: str


@dataclass(frozen=True)
class Level:
    """Answer of `graph`: one level. `node` is the invocation whose forward this is, `ancestors` lead
    from the root to its parent as [id, name, class]. Ends of kind "node" in `edges` carry the
    `LevelNode.index` of one of `nodes`. `steps` counts the logged training steps."""

    model: str
    node: LevelNode
    ancestors: list[list[str]]
    nodes: list[LevelNode]
    edges: list[Edge]
    steps: int
    bins: int
    version: int = VERSION


@dataclass(frozen=True)
class Match:
    """One hit of a search. `level` is the id of the level that shows the node `id`."""

    id: str
    level: str
    path: str
    class_name: str
    shape: str


@dataclass(frozen=True)
class Matches:
    """Answer of `search`: the first hits in graph order, and how many there are in all."""

    matches: list[Match]
    total: int
    version: int = VERSION


@dataclass(frozen=True)
class Health:
    """Answer of `health`: `own[i]` for the node index `nodes[i]` at the logged step `step` (None:
    unknown), `worst[i]` the largest over it and everything below it. `low` and `high` are the
    smallest and largest finite value over all steps and nodes, for a steady legend."""

    stat: str
    step: int
    nodes: list[int]
    own: list[float | None]
    worst: list[float | None]
    low: float | None
    high: float | None
    version: int = VERSION


@dataclass(frozen=True)
class SeriesHead:
    """One series in the JSON head of a `series` answer."""

    group: Group
    kind: Kind
    index: int
    name: str
    phase: Phase
    shape: list[int | None] | None


@dataclass(frozen=True)
class Block:
    """One typed array behind the head: `dtype` is a little-endian numpy code ("u1", "u4", "f4",
    "f8"), `offset` counts bytes from the end of the head, a multiple of 8."""

    name: str
    dtype: str
    shape: list[int]
    offset: int


@dataclass(frozen=True)
class SeriesAnswer:
    """The JSON head of a `series` answer: the histories of one invocation.

    The body is: uint32 (little endian) length of the head in bytes, the head as UTF-8 JSON padded
    with spaces so that the arrays start at a multiple of 8, then the `blocks`. Each field of
    `ROW_FIELDS` has a block of shape [series, steps], `counts` one of shape [series, steps, bins].
    `steps`, `wall`, `time` describe the columns, of which `total` exist and at most `limit` were
    asked for: thinned evenly, first and last kept. A train and an eval series of the same tensor
    are two series; a row of a phase that has no record at a step has status NOT_RUN.
    `level` is the invocation that made this one (its own id for the root). `peers` are the ids of
    that level's invocations of the same class, in the order of the level, this one among them (of
    very many, those around it). `restarts` are as in `Steps`.
    """

    node: str
    level: str
    peers: list[str]
    series: list[SeriesHead]
    steps: list[int]
    wall: list[float]
    time: list[float | None]
    unit: str
    restarts: list[int]
    total: int
    bins: int
    blocks: list[Block]
    version: int = VERSION


REPORT_ID = "torchexplorer-report"
"""Id of the element that holds the records in the page of a report, see `ReportHead`."""


@dataclass(frozen=True)
class Searchable:
    """What a search finds a node by. `forms` are its path and class, `shapes` the shapes of its tensors;
    both are compared without regard to case and to how a shape is written. `match.shape` is the last."""

    match: Match
    forms: list[str]
    shapes: list[str]


@dataclass(frozen=True)
class ReportModel:
    """Where the answers about a model lie: numbers of parts. `steps` is that of `Steps`, `search` of a
    list of `Searchable`, `health[i]` of a list of `Health` of the statistic `HEALTH[i]`, ascending by
    step; `levels[i]` and `series[i]` of the answers of `graph` and `series` for the invocation `ids[i]`."""

    run: str
    model: str
    steps: int
    search: int
    health: list[int]
    ids: list[str]
    levels: list[int]
    series: list[int]


@dataclass(frozen=True)
class ReportHead:
    """What a report holds. Its element holds base64 of: uint32 (little endian) length of the head in
    bytes, the head, then the parts, one behind the other. Head and parts are compressed each by itself
    (zlib); the head is UTF-8 JSON, and `parts` are the lengths in bytes. A model whose entry in `runs`
    names a problem is not among `models`."""

    runs: Runs
    models: list[ReportModel]
    parts: list[int]
    version: int = VERSION
