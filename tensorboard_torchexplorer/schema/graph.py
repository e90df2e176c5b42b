"""The graph of a model, and where the history of each of its tensors lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
    modules: Sequence[Module]
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    series: Sequence[Series]
    bins: int
    options: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION
