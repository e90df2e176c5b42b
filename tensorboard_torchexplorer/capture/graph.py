"""Calls of many forwards in, one growing `schema.Graph` out.

Graphs of different steps are united: nodes, edges and series are only ever added, so an index once
written stays true for the whole run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from ..schema import Edge, End, Graph, Group, Kind, Module, Node, Parameter, Port, Series
from .calls import Call, escape
from .leaves import forward_of
from .sharding import shard_flag
from .survey import CONTAINERS, Survey, own_parameters

MAX_DEPTH = 64
"""Nesting deeper than this (a recursive module) is cut, with a note that counts what was cut."""

SHARD_ROWS = 128
"""Rows of a shard: about 16 invocations with 4 ports of value and gradient each. One shard is what the
backend reads to show one invocation; fewer, larger ones cost there, more, smaller ones cost in the file."""

NOT_CALLED = "not called through __call__"


class Histories(NamedTuple):
    """The series of the ports of a node, or of the parameters of a module, by position; empty where they
    are not recorded."""

    values: list[int]
    grads: list[int]

    def of(self, kind: Kind) -> list[int]:
        """Those of one kind."""
        return self.values if kind == "value" else self.grads


_NO_SERIES = Histories([], [])


class GraphBuilder:
    """Unites the call trees of a model. `changed` says whether there is news since `snapshot`."""

    def __init__(
        self,
        model: str,
        log: Iterable[str],
        bins: int,
        options: dict[str, Any],
        excluded: Callable[[str, nn.Module], bool],
    ) -> None:
        self.model = model
        self.log = frozenset(log)
        self.bins = bins
        self.options = options
        self.changed = False
        self.series: list[Series] = []
        self.modules: list[Module] = []
        self.nodes: list[Node] = []
        self.module_of: dict[str, int] = {}
        self._excluded = excluded
        self._node_of: dict[str, int] = {}
        self._edges: dict[tuple[int, End, End], Edge] = {}
        self._first_node: dict[str, int] = {}
        self._parameters: dict[int, tuple[tuple[tuple[str, int, bool], ...], dict[str, int]]] = {}
        self._outdated: set[str] = set()
        self._surveyed: weakref.ref[Survey] | None = None
        self._objects: dict[str, tuple[int, type[nn.Module]]] = {}
        self._shard, self._row = 0, 0
        # By node, module and group, see `schema.Series`.
        self._histories: dict[tuple[int, int, Group], Histories] = {}

    def go_on(self, before: GraphBuilder) -> None:
        """Start from the graph of an earlier watch: records on disk count on its indices. Those with another
        number of bins are spread over the present one by whoever reads them."""
        self.series = list(before.series)
        self._histories = {
            key: Histories(list(known.values), list(known.grads)) for key, known in before._histories.items()
        }
        self.modules, self.nodes = list(before.modules), list(before.nodes)
        self.module_of = dict(before.module_of)
        self._node_of, self._edges = dict(before._node_of), dict(before._edges)
        self._first_node = dict(before._first_node)
        self._shard, self._row = before._shard, before._row
        self._outdated = set(self.module_of)
        self.changed = bool(self.nodes)

    # --- what the recorder asks ------------------------------------------------------------------

    def series_of_node(self, node: int, group: Group) -> Histories:
        """The series of the input or output ports of an invocation."""
        return self._histories.get((node, -1, group), _NO_SERIES)

    def series_of_module(self, module: int) -> Histories:
        """The series of the parameters of a module."""
        return self._histories.get((-1, module, "param"), _NO_SERIES)

    def snapshot(self) -> Graph:
        """The graph as it stands."""
        self.changed = False
        return Graph(
            self.model,
            list(self.modules),
            list(self.nodes),
            list(self._edges.values()),
            list(self.series),
            self.bins,
            self.options,
        )

    def add_calls(self, calls: list[Call], survey: Survey) -> dict[int, int]:
        """Add the calls of one forward, with their links if it was traced. Returns call index -> node
        index; calls below the depth limit are missing."""
        self._compare(survey)
        depth: dict[Call, int] = {}
        found: dict[int, int] = {}
        cut: dict[int, int] = {}
        for call in calls:
            depth[call] = depth[call.parent] + 1 if call.parent is not None else 0
            if depth[call] > MAX_DEPTH:
                last = call
                while depth[last] > MAX_DEPTH and last.parent is not None:
                    last = last.parent
                cut[found[last.index]] = cut.get(found[last.index], 0) + 1
                continue
            found[call.index] = self._add_call(call, found, survey)
        for index, count in cut.items():
            self._note(index, f"recursion cut at depth {MAX_DEPTH}: {count} more calls below")
        for call in calls:
            if call.index in found:
                self._add_links(call, found)
        return found

    def add_uncalled(self, survey: Survey) -> None:
        """Nodes for modules that own parameters but have never been seen called, below the nearest
        ancestor that has: their weights are used by other means (`.forward()`, a fused kernel). Where there
        was something to call, they and their children get a note."""
        self._compare(survey)
        for module, path in survey.paths.items():
            if path in self._first_node:
                continue
            callable_ = not isinstance(module, CONTAINERS) and forward_of(module) is not nn.Module.forward
            if callable_:
                self._note_children(module, path)
            if not any(True for _ in own_parameters(module)):
                continue
            above = path
            while above and above not in self._first_node:
                above = above.rpartition(".")[0]
            if above not in self._first_node:
                continue
            parent = self._first_node[above]
            name = escape(path[len(above) + 1 :] if above else path)
            node_id = name if self.nodes[parent].parent < 0 else f"{self.nodes[parent].id}/{name}"
            if node_id not in self._node_of:
                notes = [NOT_CALLED] if callable_ else []
                self._append(Node(node_id, self.add_module(module, survey), parent, 0, notes=notes))

    def _note_children(self, module: nn.Module, path: str) -> None:
        for name in module._modules.keys():  # noqa: SIM118  a scripted module has a mapping that does not iterate
            child = self._first_node.get(f"{path}.{name}" if path else name)
            if child is not None:
                self._note(child, f"{path!r} around it was {NOT_CALLED}")

    def add_unobserved(self, root: nn.Module, survey: Survey) -> None:
        """Nodes for a model of which no forward has been seen, so that its parameters have a place."""
        if not self.nodes:
            call = Call(root, "", None, 0)
            call.notes = (NOT_CALLED,)
            self.add_calls([call], survey)
        self.add_uncalled(survey)

    def was_called(self, path: str) -> bool:
        """Whether any forward has called the module of that path."""
        return path in self._first_node

    def _compare(self, survey: Survey) -> None:
        """Note which modules stand in the place of others, or have become something else."""
        if self._surveyed is not None and self._surveyed() is survey:
            return
        self._surveyed = weakref.ref(survey)
        for module, path in survey.paths.items():
            now = (id(module), type(module))
            before = self._objects.get(path, now)
            self._objects[path] = now
            if now != before and path in self.module_of:
                self._outdated.add(path)

    def add_module(self, module: nn.Module, survey: Survey) -> int:
        """The index of a module's entry, new or brought up to date."""
        path = survey.paths[module]
        index = self.module_of.get(path)
        if index is None:
            self.modules.append(survey.entry(module, self._excluded(path, module)))
            index = self.module_of[path] = len(self.modules) - 1
            self.changed = True
            self._module_series(index)
        elif path in self._outdated:
            entry = survey.entry(module, self._excluded(path, module))
            self._outdated.discard(path)
            self.modules[index] = replace(entry, parameters=self.modules[index].parameters)
            self._renew_parameters(index, entry.parameters)
            self._module_series(index)
            for node, known in enumerate(self.nodes):
                if known.module == index:
                    self._node_series(node)
            self.changed = True
        return index

    def refresh(
        self, module: nn.Module, survey: Survey, own: list[tuple[str, Tensor]]
    ) -> tuple[int, dict[str, int]]:
        """The index of a module's entry, and those of its parameters by name. `own` are its parameters as
        they are now; those that are gone stay in the entry, so that indices hold."""
        index = self.add_module(module, survey)
        state = tuple((name, id(parameter), parameter.requires_grad) for name, parameter in own)
        if self._parameters.get(index, ((), {}))[0] != state:
            self._renew_parameters(index, survey.parameters(module))
            flag = shard_flag(own, survey.parts.get(module), self.options.get("ranks", "first"))
            if flag and flag not in self.modules[index].flags:
                self.modules[index] = replace(self.modules[index], flags=[*self.modules[index].flags, flag])
                self.changed = True
            positions = {parameter.name: i for i, parameter in enumerate(self.modules[index].parameters)}
            self._parameters[index] = (state, positions)
        return index, self._parameters[index][1]

    def _renew_parameters(self, index: int, parameters: list[Parameter]) -> None:
        known = self.modules[index].parameters
        now = {parameter.name: parameter for parameter in parameters}
        merged = [now.pop(old.name, old) for old in known]
        merged += now.values()
        if merged != known:
            self.modules[index] = replace(self.modules[index], parameters=merged)
            self.changed = True
            self._module_series(index)

    # --- nodes -----------------------------------------------------------------------------------

    def _add_call(self, call: Call, found: Mapping[int, int], survey: Survey) -> int:
        index = self._node_of.get(call.id)
        if index is None:
            parent = found[call.parent.index] if call.parent is not None else -1
            module = self.add_module(call.module, survey)
            arguments = [list(pair) for pair in call.arguments]
            node = Node(
                call.id,
                module,
                parent,
                call.number,
                list(call.inputs),
                list(call.outputs),
                arguments,
                list(call.notes),
            )
            index = self._append(node)
            self._first_node.setdefault(call.path, index)
            return index
        self._first_node.setdefault(call.path, index)
        if self._outdated:
            self.add_module(call.module, survey)
        known = self.nodes[index]
        same = known.inputs == call.inputs and known.outputs == call.outputs
        if same and not call.notes and NOT_CALLED not in known.notes:
            return index
        inputs, outputs = _unite(known.inputs, call.inputs), _unite(known.outputs, call.outputs)
        notes = [note for note in known.notes if note != NOT_CALLED]
        notes += [note for note in call.notes if note not in notes]
        if (inputs, outputs, notes) != (known.inputs, known.outputs, known.notes):
            self.nodes[index] = replace(known, inputs=inputs, outputs=outputs, notes=notes)
            self.changed = True
            self._node_series(index)
        return index

    def _append(self, node: Node) -> int:
        index = self._node_of[node.id] = len(self.nodes)
        self.nodes.append(node)
        self.changed = True
        self._node_series(index)
        return index

    def _note(self, index: int, note: str) -> None:
        known = self.nodes[index]
        if note not in known.notes:
            self.nodes[index] = replace(known, notes=[*known.notes, note])
            self.changed = True

    def _add_links(self, call: Call, found: Mapping[int, int]) -> None:
        level = found[call.index]
        for (source, target), (kind, implicit) in call.links.items():
            ends = []
            for end in (source, target):
                if end.kind == "node":
                    child = found.get(call.children[end.index].index)
                    if child is None:
                        break
                    end = End("node", child)
                ends.append(end)
            if len(ends) < 2:
                continue
            key = (level, ends[0], ends[1])
            old = self._edges.get(key)
            if old is None:
                self._edges[key] = Edge(level, ends[0], ends[1], kind, implicit)
                self.changed = True
            elif old.kind == "data" and kind == "gradient":
                self._edges[key] = replace(old, kind=kind)
                self.changed = True

    # --- series ----------------------------------------------------------------------------------

    def _node_series(self, index: int) -> None:
        node = self.nodes[index]
        if "excluded" not in self.modules[node.module].flags:
            kinds = self._kinds("io", "io_grad")
            self._place(index, -1, {"input": node.inputs, "output": node.outputs}, kinds)

    def _module_series(self, index: int) -> None:
        if "excluded" not in self.modules[index].flags:
            kinds = self._kinds("params", "params_grad")
            self._place(-1, index, {"param": self.modules[index].parameters}, kinds)

    def _kinds(self, values: str, grads: str) -> list[Kind]:
        """Those of "value" and "grad" that are to be recorded, by their names in `log`."""
        kinds: tuple[tuple[Kind, str], ...] = (("value", values), ("grad", grads))
        return [kind for kind, name in kinds if name in self.log]

    def _place(
        self, node: int, module: int, owned: Mapping[Group, Sequence[Port | Parameter]], kinds: list[Kind]
    ) -> None:
        """Give the series that one owner lacks a row each, together where they fit."""
        new: list[tuple[Group, Kind, int]] = []
        for group, items in owned.items():
            known = self._histories.setdefault((node, module, group), Histories([], []))
            for position in range(len(items)):
                new += [(group, kind, position) for kind in kinds if position >= len(known.of(kind))]
        if not new:
            return
        if self._row and self._row + len(new) > SHARD_ROWS:
            self._shard, self._row = self._shard + 1, 0
        for group, kind, position in new:
            self._histories[node, module, group].of(kind).append(len(self.series))
            name = owned[group][position].name
            self.series.append(Series(node, module, group, kind, position, name, self._shard, self._row))
            self._row += 1
        self.changed = True


def _unite(known: list[Port], seen: Sequence[Port]) -> list[Port]:
    """Ports of an invocation in another pass: names and types of the first stay, differing
    dimensions become None, more ports than before are added."""
    united = [
        old if old.shape == new.shape else replace(old, shape=_unite_shape(old.shape, new.shape))
        for old, new in zip(known, seen, strict=False)
    ]
    return [*united, *known[len(seen) :], *seen[len(known) :]]


def _unite_shape(known: list[int | None] | None, seen: list[int | None] | None) -> list[int | None] | None:
    if known is None or seen is None or len(known) != len(seen):
        return None
    return [old if old == new else None for old, new in zip(known, seen, strict=True)]
