"""Stored graphs of a model to one graph, and to what the tab shows of it: levels, matches, sizes.

A graph only grows while a process lasts, so a process's last graph explains all its records. A resumed run
has one graph per process, which need not number nodes, modules and rows alike: `merged` makes one graph of
them and remembers where each process kept its rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tensorboard_torchexplorer.columns import column, flattened
from tensorboard_torchexplorer.schema import (
    ROOT_ID,
    Edge,
    End,
    Graph,
    Level,
    LevelNode,
    Match,
    Matches,
    Module,
    Searchable,
    Series,
    StepInfo,
)

MAX_MATCHES = 200
MAX_PEERS = 64
TIMES = "\u00d7"


@dataclass(frozen=True)
class Span:
    """What the processes named in `sessions` wrote has one numbering: `entries[i]` says in which shard and
    row `GraphView.graph.series[i]` lies there (None or past the end: it was not recorded), `nodes[i]` is the
    index in the merged graph of the node that the process called i."""

    sessions: frozenset[str]
    entries: Sequence[Series | None]
    nodes: npt.NDArray[np.int64]

    def entry(self, index: int) -> Series | None:
        return self.entries[index] if index < len(self.entries) else None


def merged(graphs: Sequence[tuple[frozenset[str], Graph]]) -> tuple[Graph, list[Span]]:
    """One graph of those of several processes, each with the sessions that it explains. Nodes keep the
    numbers of the last graph; what only others have follows."""
    _, newest = graphs[-1]
    if len(graphs) == 1:
        return newest, [Span(graphs[0][0], newest.series, np.arange(len(newest.nodes)))]
    modules = list(newest.modules)
    nodes = list(newest.nodes)
    edges = list(newest.edges)
    series = list(newest.series)
    module_index = {module.path: index for index, module in enumerate(modules)}
    node_index = {node.id: index for index, node in enumerate(nodes)}
    edge_ends = {(edge.level, edge.source, edge.target) for edge in edges}
    series_index = {_identity(newest, entry): index for index, entry in enumerate(series)}
    spans: list[Span] = []
    for sessions, graph in reversed(graphs):
        for module in graph.modules:
            if module.path not in module_index:
                module_index[module.path] = len(modules)
                modules.append(module)
        for node in graph.nodes:
            if node.id not in node_index:
                node_index[node.id] = len(nodes)
                nodes.append(node)
                # `parent` and `module` are put right below, when all nodes have their number.
        numbers = np.array([node_index[node.id] for node in graph.nodes], np.int64)
        for old, number in zip(graph.nodes, numbers, strict=True):
            if nodes[number] is old and graph is not newest:
                parent = int(numbers[old.parent]) if old.parent >= 0 else -1
                nodes[number] = replace(
                    old, parent=parent, module=module_index[graph.modules[old.module].path]
                )
        for edge in graph.edges:
            moved = Edge(
                int(numbers[edge.level]),
                _moved(edge.source, numbers),
                _moved(edge.target, numbers),
                edge.kind,
                edge.implicit,
            )
            ends = (moved.level, moved.source, moved.target)
            if ends not in edge_ends:
                edge_ends.add(ends)
                edges.append(moved)
        entries: dict[int, Series] = {}
        for entry in graph.series:
            identity = _identity(graph, entry)
            if identity not in series_index:
                series_index[identity] = len(series)
                owner_node = int(numbers[entry.node]) if entry.node >= 0 else -1
                owner = module_index[graph.modules[entry.module].path] if entry.module >= 0 else -1
                series.append(replace(entry, node=owner_node, module=owner))
            entries[series_index[identity]] = entry
        spans.append(Span(sessions, [entries.get(index) for index in range(len(series))], numbers))
    graph = replace(newest, modules=modules, nodes=nodes, edges=edges, series=series)
    return graph, spans[::-1]


def _identity(graph: Graph, entry: Series) -> tuple[object, ...]:
    """What a series is of, without numbers that may differ between processes."""
    if entry.node >= 0:
        name = entry.name if entry.index < 0 else ""
        return ("node", graph.nodes[entry.node].id, entry.group, entry.kind, entry.index, name)
    return ("module", graph.modules[entry.module].path, entry.group, entry.kind, entry.name)


def _moved(end: End, numbers: npt.NDArray[np.int64]) -> End:
    return End("node", int(numbers[end.index])) if end.kind == "node" else end


class GraphView:
    """A merged graph with the look-ups that routes need; built once per stored graph."""

    def __init__(self, graphs: Sequence[tuple[frozenset[str], Graph]]) -> None:
        self.graph, self.spans = merged(graphs)
        self.index = {node_id: index for index, node_id in enumerate(column(self.graph.nodes, "id"))}
        self._parents = column(self.graph.nodes, "parent")
        self.children: list[list[int]] = [[] for _ in self._parents]
        for index, parent in enumerate(self._parents):
            if parent >= 0:
                self.children[parent].append(index)
        self._span_of = {session: span for span in self.spans for session in span.sessions}
        self._edges = _grouped(column(self.graph.edges, "level"))

    def series_of(self, node: int) -> list[int]:
        """Indices of the series of an invocation's ports, then of its module's parameters."""
        module = self.graph.nodes[node].module
        of_node, of_module = self._series
        return of_node.get(node, []) + of_module.get(module, [])

    def span_of(self, session: str) -> Span:
        """The span of a process that has a graph."""
        return self._span_of[session]

    def by_span(self, infos: Mapping[int, StepInfo], steps: Iterable[int]) -> list[tuple[Span, list[int]]]:
        """The spans of those `steps` of a phase that were logged, each with its steps."""
        found: dict[int, tuple[Span, list[int]]] = {}
        for step in steps:
            if step in infos:
                span = self._span_of[infos[step].session]
                found.setdefault(id(span), (span, []))[1].append(step)
        return list(found.values())

    def level(self, index: int, ran: npt.NDArray[np.int64], steps: int) -> Level:
        """What the invocation `index` did; `ran` counts the logged training steps of each node."""
        graph = self.graph
        return Level(
            model=graph.model,
            node=self.level_node(index, ran),
            ancestors=[
                [graph.nodes[above].id, self._name(above), self.module(above).class_name]
                for above in self._ancestors(index)
            ],
            nodes=[self.level_node(child, ran) for child in self.children[index]],
            edges=[graph.edges[edge] for edge in self._edges.get(index, ())],
            steps=steps,
            bins=graph.bins,
        )

    def peers(self, index: int) -> list[int]:
        """The invocations of the same level whose modules are of the same class as that of `index`, which is
        one of them; at most `MAX_PEERS`, those around it."""
        parent = self._parents[index]
        level = self.children[parent] if parent >= 0 else [index]
        class_name = self.module(index).class_name
        same = [node for node in level if self.module(node).class_name == class_name]
        first = max(0, min(same.index(index) - MAX_PEERS // 2, len(same) - MAX_PEERS))
        return same[first : first + MAX_PEERS]

    def module(self, index: int) -> Module:
        return self.graph.modules[self.graph.nodes[index].module]

    def level_node(self, index: int, ran: npt.NDArray[np.int64]) -> LevelNode:
        """A node with what the tab shows of its module."""
        node, module = self.graph.nodes[index], self.module(index)
        return LevelNode(
            index=index,
            id=node.id,
            name=self._name(index),
            path=module.path,
            class_name=module.class_name,
            call=node.call,
            calls=self._calls[node.parent, node.module],
            children=len(self.children[index]),
            ran=int(ran[index]),
            size=self.sizes[node.module],
            extra=module.extra,
            inputs=node.inputs,
            outputs=node.outputs,
            arguments=node.arguments,
            parameters=module.parameters,
            flags=module.flags,
            notes=node.notes,
            container=module.container,
        )

    def search(self, query: str) -> Matches:
        """Nodes whose module path, class or a shape contains `query`, without regard to case."""
        wanted = _search_form(query)
        found: list[Match] = []
        total = 0
        for entry in self.searchable:
            shape = next((shape for shape in entry.shapes if wanted in _search_form(shape)), "")
            if shape or any(wanted in form for form in entry.forms):
                total += 1
                if len(found) < MAX_MATCHES:
                    found.append(replace(entry.match, shape=shape) if shape else entry.match)
        return Matches(found, total)

    def worst(self, own: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """For each node the largest of `own` over it and everything below it; NaN where nothing is known."""
        worst = own.copy()
        for index in self._bottom_up:
            parent = self._parents[index]
            if parent >= 0:
                worst[parent] = np.fmax(worst[parent], worst[index])
        return worst

    @cached_property
    def sizes(self) -> list[int]:
        """For each module how many parameters it and all below it have; a shared one counts once."""
        paths = column(self.graph.modules, "path")
        counts, parameters = flattened(column(self.graph.modules, "parameters"))
        holders = [path for path, count in zip(paths, counts, strict=True) for _ in range(count)]
        names = column(parameters, "name")
        own = [f"{path}.{name}".lstrip(".") for path, name in zip(holders, names, strict=True)]
        known = set(own)
        held: dict[str, tuple[int, set[str]]] = {}
        for holder, name, full, shared, shape in zip(
            holders, names, own, column(parameters, "shared"), column(parameters, "shape"), strict=True
        ):
            # `shared` is the first owner's path; accept that of its module as well.
            of_module = f"{shared}.{name}"
            first = of_module if shared not in known and of_module in known else shared or full
            size, by = held.setdefault(first, (0 if shape is None else math.prod(shape), set()))
            by.update(_and_above(holder))
        sizes: Counter[str] = Counter()
        for size, by in held.values():
            for path in by:
                sizes[path] += size
        return [sizes[path] for path in paths]

    @cached_property
    def _series(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """The indices of the series of each node, and of each module."""
        series = self.graph.series
        of_node, of_module = (_grouped(column(series, owner)) for owner in ("node", "module"))
        return of_node, of_module

    @cached_property
    def _calls(self) -> Counter[tuple[int, int]]:
        """How often a level calls a module."""
        return Counter(zip(self._parents, column(self.graph.nodes, "module"), strict=True))

    def _name(self, index: int) -> str:
        """The module's path relative to that of its parent invocation, in full where it lies elsewhere."""
        parent, path = self._parents[index], self.module(index).path
        if parent < 0:
            return path
        above = self.module(parent).path
        return path[len(above) + 1 :] if above and path.startswith(above + ".") else path

    def _ancestors(self, index: int) -> list[int]:
        found = []
        above = self._parents[index]
        while above >= 0:
            found.append(above)
            above = self._parents[above]
        return found[::-1]

    @cached_property
    def _bottom_up(self) -> list[int]:
        order = [0]
        for index in order:
            order.extend(self.children[index])
        return order[::-1]

    @cached_property
    def searchable(self) -> list[Searchable]:
        """What `search` looks in, by node."""
        found = []
        for index, node in enumerate(self.graph.nodes):
            module = self.module(index)
            ports = [*node.inputs, *node.outputs]
            shapes = list(dict.fromkeys(_shape(port.shape) for port in ports if port.shape))
            level = self.graph.nodes[node.parent].id if node.parent >= 0 else ROOT_ID
            match = Match(node.id, level, module.path, module.class_name, shapes[-1] if shapes else "")
            forms = [_search_form(module.path), _search_form(module.class_name)]
            found.append(Searchable(match, forms, shapes))
        return found


def _and_above(path: str) -> Iterator[str]:
    """The path of a module and those of all that it lies in."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def _grouped(keys: Sequence[int]) -> dict[int, list[int]]:
    """Where each key stands, ascending."""
    found: dict[int, list[int]] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, []).append(index)
    return found


def _shape(shape: list[int | None]) -> str:
    return TIMES.join("?" if size is None else str(size) for size in shape)


def _search_form(text: str) -> str:
    """A shape is found as 8x64, as 8, 64 and as it is shown; a path or class in any capitals."""
    return text.casefold().replace(TIMES, "x").replace(", ", "x").strip()
