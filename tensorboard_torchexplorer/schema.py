"""The contract between the training process, the event file, the backend and the tab.

Standard library only. `frontend/src/schema.ts` is generated from this file
(`python -m tensorboard_torchexplorer.schema_ts`), so a name means the same in Python, in JSON, in
TypeScript and on screen.

The cast. A *module* is an `nn.Module` object of the watched model. An *invocation* (a `Node`) is one
call of a module within one forward of the root; a module called twice is two nodes that share one
`Module` entry. A *level* is what one invocation's forward did: its child invocations, its input and
output placeholders, and the edges between them. A *series* is the history of one tensor: one row
(a histogram with statistics) per logged step.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, get_args

VERSION = 1
"""Version of everything below, on disk and over HTTP. Readers refuse a newer one with a clear text."""

PLUGIN_NAME = "torchexplorer"

ROOT_ID = "."
"""Id of the root invocation. Ids of others are paths of calls, see `Node.id`."""

Phase = Literal["train", "eval"]
Group = Literal["input", "output", "param"]
Kind = Literal["value", "grad"]
EdgeKind = Literal["gradient", "data"]
EndKind = Literal["input", "node", "output", "outside"]

PHASES: tuple[Phase, ...] = get_args(Phase)
GROUPS: tuple[Group, ...] = get_args(Group)
KINDS: tuple[Kind, ...] = get_args(Kind)

# --- Graph -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Port:
    """One tensor leaf that enters or leaves an invocation.

    `name` is the argument's name and the path inside it, as one would write it in Python: `x`,
    `hidden_states[1]`, `out.logits`. `shape` is that of the first pass, with None where later passes
    differed, and None as a whole where a tensor has none (nested). `requires_grad` says whether
    autograd reached the port in the first pass.
    """

    name: str
    shape: list[int | None] | None
    dtype: str
    requires_grad: bool


@dataclass(frozen=True)
class Parameter:
    """An immediate parameter (`module._parameters`). `shared` is the path of the first owner of the
    same object, empty if this is the first or only one."""

    name: str
    shape: list[int] | None
    dtype: str
    requires_grad: bool
    shared: str = ""


@dataclass(frozen=True)
class Module:
    """A module of the model. `path` is its name in `named_modules()` (empty for the root).

    `extra` is `extra_repr()` split on top-level commas: `key=value` becomes [key, value], anything
    else ["", value]. `flags` are short words for the tab's badges: "unregistered" (held in a plain
    list, the optimizer can't see it), "excluded", "scripted", "parametrized: weight_norm".
    `container` is the class of a ModuleList / ModuleDict / ParameterList parent, else empty.
    """

    path: str
    class_name: str
    extra: list[list[str]] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    container: str = ""


@dataclass(frozen=True)
class Node:
    """One invocation.

    `id` is the path of calls from the root: `layer1/0/conv1`; the second call of the same module in
    the same parent invocation ends in `#1`. Each part is the module's path relative to the calling
    module where it lies below it, else its full path after a `^`; `%`, `/`, `#` and `^` in names are
    percent-escaped. Ids are stable between steps and between runs of the same model.
    `module` and `parent` index `Graph.modules` and `Graph.nodes` (parent of the root: -1).
    `call` counts the calls of this module within the parent invocation, from 0.
    `arguments` are the non-tensor arguments as [name, short text]. `notes` are facts about the
    invocation worth a badge: "fused", "called by .forward()", "recursion cut at depth 64".
    """

    id: str
    module: int
    parent: int
    call: int
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    arguments: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class End(NamedTuple):
    """One end of an edge: the `index`-th input or output placeholder of the level, or the node with
    that index in `Graph.nodes`. "outside": a tensor that came by attribute or closure (index 0)."""

    kind: EndKind
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here


@dataclass(frozen=True)
class Edge:
    """A -> B within the forward of the invocation `level` (an index of `Graph.nodes`).

    "gradient": a differentiable path leads from an output of A to an input of B, where every module
    output and every parent input counts as a fresh differentiable source. "data": values flow, but
    no gradient can. At most one edge per pair. `implicit`: through an attribute, closure or global,
    not through arguments and results.
    """

    level: int
    source: End
    target: End
    kind: EdgeKind
    implicit: bool = False


@dataclass(frozen=True)
class Series:
    """Where the history of one tensor lies: row `row` of shard `shard`.

    Inputs and outputs belong to an invocation (`node` >= 0, `module` = -1; `index` counts its ports),
    parameters to a module (`module` >= 0, `node` = -1; `index` counts `Module.parameters`).
    `group` "param" with `index` -1: a computed tensor of the module, named by `name` (attached
    tensors, effective weights of parametrizations).
    """

    node: int
    module: int
    group: Group
    kind: Kind
    index: int
    name: str
    shard: int
    row: int


@dataclass(frozen=True)
class Graph:
    """All invocations of a model that any logged step has seen; only ever grows while a run lasts."""

    model: str
    modules: list[Module]
    nodes: list[Node]
    edges: list[Edge]
    series: list[Series]
    bins: int
    options: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION


# --- Rows: one histogram with statistics -----------------------------------------------------------

ROW_FIELDS: tuple[tuple[str, str], ...] = (
    ("status", "u1"),  # index into STATUS; all else is 0 unless status is 0
    ("size", "u8"),  # elements of the tensor (per-sample norms: of the batch)
    ("sampled", "u4"),  # elements looked at for bins, mean, std, zeros; == size: exact
    ("nan", "u8"),  # exact over the whole tensor, like posinf, neginf, min, max
    ("posinf", "u8"),
    ("neginf", "u8"),
    ("min", "f8"),  # of the finite values; NaN where there is none
    ("max", "f8"),
    ("low", "f8"),  # the bins are equal and cover [low, high], both ends closed
    ("high", "f8"),
    ("mean", "f8"),  # of the finite sampled values, outliers included
    ("std", "f8"),  # population standard deviation of the same
    ("zeros", "f8"),  # share of exact zeros among the same, 0..1
)
"""Columns of a row, as numpy type codes in memory (events.py narrows them on disk). A row also has
`counts`: `bins` whole numbers, how many kept sampled values fell into each bin."""

STATUS: tuple[str, ...] = (
    "",
    "this invocation did not run in this step",
    "no gradient reached it in this step",
    "frozen: requires_grad is False",
    "evaluation: there is no backward pass",
    "the tensor is empty",
    "sparse layout: not recorded",
    "nested tensor: not recorded",
    "meta tensor: it holds no data",
    "this dtype has no histogram",
    "the gradient of a model input is recorded only with root_input_grad=True",
    "lost to an in-place operation before it could be read",
    "an error while recording; see the run's faults",
    "not initialised yet (lazy module)",
    "excluded by the watch options",
    "not differentiable: integer or boolean tensor",
    "inside a compiled or transformed region: not observed",
    "no backward pass completed in this step",
    "a wrapper tensor that holds no plain values",
    "it requires no gradient: data, detached, or made of such",
)
"""Why a row is blank; `status` 0 means that it is not. Append only: the numbers are on disk."""


class Status:
    """Names for the entries of `STATUS`."""

    OK = 0
    NOT_RUN = 1
    NO_GRADIENT = 2
    FROZEN = 3
    EVAL = 4
    EMPTY = 5
    SPARSE = 6
    NESTED = 7
    META = 8
    DTYPE = 9
    ROOT_INPUT = 10
    OVERWRITTEN = 11
    FAULT = 12
    LAZY = 13
    EXCLUDED = 14
    NOT_DIFFERENTIABLE = 15
    NOT_OBSERVED = 16
    NO_BACKWARD = 17
    SUBCLASS = 18
    REQUIRES_NONE = 19


HEALTH: tuple[str, ...] = (
    "gradient",  # mean per-sample gradient norm of the outputs, the largest over outputs
    "output_std",  # standard deviation of the outputs, the largest over outputs
    "zeros",  # share of zeros in the outputs, the largest over outputs
    "nonfinite",  # NaN and Inf values in outputs, gradients and parameters together
    "parameter",  # root mean square of the immediate parameters
    "parameter_gradient",  # root mean square of their gradients
    "update",  # length of the last update over length of the parameter, the largest over parameters
)
"""Statistics of a node for colouring, one number per node and logged step; NaN where unknown."""


@dataclass(frozen=True)
class Fault:
    """An error inside our own hooks. `place` says what was being recorded, `path` the module."""

    path: str
    place: str
    error: str


@dataclass(frozen=True)
class StepInfo:
    """What is known of one logged step apart from its rows.

    `step` counts optimizer steps from 0; `wall` is seconds since 1970; `time` is the user's own time
    value (`time_log`) or None. `forwards` counts the root forwards of the step, of which the first is
    recorded. `ran` are the indices of the nodes that ran, as [first, count] ranges. `scale` is the
    loss scale of a GradScaler (the gradients shown are divided by it) or None, `skipped` whether the
    optimizer skipped the step. `dropped` counts records lost so far because the writer was too slow.
    `session` changes when the process does, which marks restarts. `ranks` is how many ranks of a
    distributed training the samples are of.
    """

    step: int
    wall: float
    time: float | None
    forwards: int
    ran: list[list[int]]
    scale: float | None
    skipped: bool
    dropped: int
    session: str
    faults: list[Fault] = field(default_factory=list)
    ranks: int = 1
    version: int = VERSION


# --- HTTP: what the backend answers ---------------------------------------------------------------


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
    steps that a loss scaler skipped."""

    train: list[int]
    eval: list[int]
    wall: list[float]
    time: list[float | None]
    unit: str
    skipped: list[int]
    restarts: list[int]
    faults: list[Fault]
    dropped: int
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


# --- Report: the same answers in one HTML file -----------------------------------------------------

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


def to_json(value: Any) -> Any:
    """The plain JSON form of a dataclass of this module (an `End` is a two-element list)."""
    return asdict(value)
