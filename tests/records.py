"""Plausible graphs and logged steps without any model: for tests of everything behind the capture, and
`python -m tests.records LOGDIR` writes a directory to develop the tab on."""

from __future__ import annotations

import argparse
import math
import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events, schema_json
from tensorboard_torchexplorer.schema import (
    HEALTH,
    Edge,
    End,
    Fault,
    Graph,
    Module,
    Node,
    Parameter,
    Port,
    Series,
    Status,
    StepInfo,
)

ROWS_PER_SHARD = 128
ODD_NAMES = (
    "a b",
    "trailing ",
    "ü✓層",
    "#%?&=+",
    "a/b//c",
    "<img src=x onerror=alert(1)>",
    "'\"`",
    "new\nline",
    "..",
    "%2F",
    "run…",
    "{}[]\\",
)
"""Names of models; those without a slash serve as run directories as well."""


class GraphBuilder:
    """Adds invocations in the order in which their calls would begin."""

    def __init__(self, model: str, root_class: str, bins: int = 30, **options: object) -> None:
        self.model, self.bins, self.options = model, bins, options
        self.modules = [Module("", root_class)]
        self.nodes = [Node(".", 0, -1, 0)]
        self.edges: list[Edge] = []
        self.series: list[Series] = []
        self._rows = 0

    def ports(self, node: int, inputs: list[Port], outputs: list[Port]) -> None:
        old = self.nodes[node]
        self.nodes[node] = Node(old.id, old.module, old.parent, old.call, inputs, outputs)
        for group, ports in (("input", inputs), ("output", outputs)):
            for index, port in enumerate(ports):
                for kind in ("value", "grad"):
                    self._add(node, -1, group, kind, index, port.name)

    def call(
        self,
        parent: int,
        name: str,
        class_name: str,
        inputs: list[Port],
        outputs: list[Port],
        extra: str = "",
        parameters: dict[str, list[int]] | None = None,
    ) -> int:
        """The index of a new invocation of the submodule `name` of the module that `parent` calls."""
        above = self.modules[self.nodes[parent].module].path
        path = f"{above}.{name}" if above else name
        module = next(
            (index for index, module in enumerate(self.modules) if module.path == path), len(self.modules)
        )
        call = sum(node.parent == parent and node.module == module for node in self.nodes)
        if module == len(self.modules):
            parts = [part for part in re.split(r", (?![^(]*\))", extra) if part]
            pairs = [part.split("=", 1) if "=" in part else ["", part] for part in parts]
            found = [Parameter(key, shape, "float32", True) for key, shape in (parameters or {}).items()]
            self.modules.append(Module(path, class_name, pairs, found))
            for index, parameter in enumerate(found):
                for kind in ("value", "grad"):
                    self._add(-1, module, "param", kind, index, parameter.name)
        own = (
            name.replace("%", "%25")
            .replace("/", "%2F")
            .replace("#", "%23")
            .replace("^", "%5E")
            .replace(".", "/")
        )
        prefix = "" if parent == 0 else self.nodes[parent].id + "/"
        self.nodes.append(Node(prefix + own + (f"#{call}" if call else ""), module, parent, call))
        self.ports(len(self.nodes) - 1, inputs, outputs)
        return len(self.nodes) - 1

    def edge(self, level: int, source: End, target: End, kind: str = "gradient") -> None:
        self.edges.append(Edge(level, source, target, kind))

    def graph(self) -> Graph:
        return Graph(
            self.model,
            list(self.modules),
            list(self.nodes),
            list(self.edges),
            list(self.series),
            self.bins,
            dict(self.options),
        )

    def _add(self, node: int, module: int, group: str, kind: str, index: int, name: str) -> None:
        shard, row = divmod(self._rows, ROWS_PER_SHARD)
        self.series.append(Series(node, module, group, kind, index, name, shard, row))
        self._rows += 1


def port(*shape: int | None, name: str = "x", requires_grad: bool = True) -> Port:
    return Port(name, list(shape), "float32", requires_grad)


def resnet(model: str = "resnet18", batch: int = 32, **options: object) -> Graph:
    """The levels of a ResNet-18: stem, four layers of two blocks each, head."""
    builder = GraphBuilder(model, "ResNet", **options)
    image = port(batch, 3, 64, 64, name="x", requires_grad=False)
    builder.ports(0, [image], [port(batch, 10, name="")])

    def conv(level: int, name: str, source: Port, width: int, size: int, kernel: int) -> tuple[int, Port]:
        out = port(batch, width, size, size, name="")
        assert source.shape is not None
        fan_in = source.shape[1] or 0
        extra = f"{fan_in}, {width}, kernel_size=({kernel}, {kernel}), stride=(1, 1), bias=False"
        weight = {"weight": [width, fan_in, kernel, kernel]}
        return builder.call(
            level, name, "Conv2d", [port(*source.shape, name="input")], [out], extra, weight
        ), out

    def simple(level: int, name: str, class_name: str, source: Port, **shapes: list[int]) -> tuple[int, Port]:
        assert source.shape is not None
        out = port(*source.shape, name="")
        extra = "inplace=True" if class_name == "ReLU" else f"{source.shape[1]}, eps=1e-05, momentum=0.1"
        return builder.call(
            level, name, class_name, [port(*source.shape, name="input")], [out], extra, shapes
        ), out

    def chain(level: int, nodes: list[int], first: End) -> End:
        for node in nodes:
            builder.edge(level, first, End("node", node))
            first = End("node", node)
        return first

    stem, x = conv(0, "conv1", image, 64, 32, 7)
    norm, x = simple(0, "bn1", "BatchNorm2d", x, weight=[64], bias=[64])
    relu, x = simple(0, "relu", "ReLU", x)
    end = chain(0, [stem, norm, relu], End("input", 0))
    width, size = 64, 32
    for number in range(1, 5):
        width, size = 64 * 2 ** (number - 1), 32 // 2 ** (number - 1)
        wide = port(batch, width, size, size, name="")
        layer = builder.call(0, f"layer{number}", "Sequential", [port(*x.shape, name="input")], [wide])
        end = chain(0, [layer], end)
        inner = End("input", 0)
        for position in range(2):
            block = builder.call(layer, str(position), "BasicBlock", [port(*x.shape, name="x")], [wide])
            inner = chain(layer, [block], inner)
            one, y = conv(block, "conv1", x, width, size, 3)
            two, y = simple(block, "bn1", "BatchNorm2d", y, weight=[width], bias=[width])
            three, y = simple(block, "relu", "ReLU", y)
            four, y = conv(block, "conv2", y, width, size, 3)
            five, y = simple(block, "bn2", "BatchNorm2d", y, weight=[width], bias=[width])
            six, y = simple(block, "relu", "ReLU", y)
            chain(block, [one, two, three, four, five, six], End("input", 0))
            builder.edge(block, End("input", 0), End("node", six))
            builder.edge(block, End("node", six), End("output", 0))
            x = wide
        builder.edge(layer, inner, End("output", 0))
    pooled = port(batch, width, 1, 1, name="")
    pool = builder.call(
        0, "avgpool", "AdaptiveAvgPool2d", [port(*x.shape, name="input")], [pooled], "output_size=(1, 1)"
    )
    head = builder.call(
        0,
        "fc",
        "Linear",
        [port(batch, width, name="input")],
        [port(batch, 10, name="")],
        f"in_features={width}, out_features=10, bias=True",
        {"weight": [10, width], "bias": [10]},
    )
    builder.edge(0, chain(0, [pool, head], end), End("output", 0))
    return builder.graph()


def vqvae(model: str = "vqvae") -> Graph:
    """Encoder, a quantiser that no gradient passes (a data edge), decoder called twice."""
    builder = GraphBuilder(model, "VQVAE", unit="epoch")
    image, code = port(16, 1, 28, 28, name="image", requires_grad=False), port(16, 32, 7, 7, name="")
    builder.ports(0, [image], [port(16, 1, 28, 28, name="reconstruction"), port(16, 1, 28, 28, name="mean")])
    encoder = builder.call(0, "encoder", "Encoder", [image], [code])
    hidden = builder.call(
        encoder, "conv", "Conv2d", [image], [code], "1, 32, kernel_size=(4, 4)", {"weight": [32, 1, 4, 4]}
    )
    quantiser = builder.call(
        0, "quantiser", "Quantiser", [code], [code], "512 codes", {"codebook": [512, 32]}
    )
    builder.edge(encoder, End("input", 0), End("node", hidden))
    builder.edge(encoder, End("node", hidden), End("output", 0))
    builder.edge(0, End("input", 0), End("node", encoder))
    builder.edge(0, End("node", encoder), End("node", quantiser), "data")
    for index in range(2):
        decoder = builder.call(
            0,
            "decoder",
            "ConvTranspose2d",
            [code],
            [port(16, 1, 28, 28, name="")],
            "32, 1",
            {"weight": [32, 1, 4, 4]},
        )
        builder.edge(0, End("node", quantiser if index == 0 else encoder), End("node", decoder))
        builder.edge(0, End("node", decoder), End("output", index))
    return builder.graph()


def small(model: str = "model", bins: int = 30, layers: int = 3, **options: object) -> Graph:
    """A chain of linear layers at one level."""
    builder = GraphBuilder(model, "Sequential", bins, **options)
    builder.ports(0, [port(4, 8, name="input", requires_grad=False)], [port(4, 8, name="")])
    end = End("input", 0)
    for index in range(layers):
        extra, shapes = "in_features=8, out_features=8, bias=True", {"weight": [8, 8], "bias": [8]}
        node = builder.call(
            0, str(index), "Linear", [port(4, 8, name="input")], [port(4, 8, name="")], extra, shapes
        )
        builder.edge(0, end, End("node", node))
        end = End("node", node)
    builder.edge(0, end, End("output", 0))
    return builder.graph()


def wide(invocations: int, model: str = "model", bins: int = 30) -> Graph:
    """`invocations` linear layers in groups of 20, about 8 series each: the size to measure with."""
    builder = GraphBuilder(model, "Wide", bins)
    builder.ports(0, [port(4, 8, requires_grad=False)], [port(4, 8, name="")])
    group = 0
    end = End("input", 0)
    for index in range(invocations):
        if index % 20 == 0:
            group = builder.call(0, f"group{index // 20}", "Group", [port(4, 8)], [port(4, 8, name="")])
            builder.edge(0, end, End("node", group))
            end = End("node", group)
            inner = End("input", 0)
        shapes = {"weight": [8, 8], "bias": [8]}
        node = builder.call(
            group, f"layer{index % 20}", "Linear", [port(4, 8)], [port(4, 8, name="")], "8, 8", shapes
        )
        builder.edge(group, inner, End("node", node))
        inner = End("node", node)
    builder.edge(0, end, End("output", 0))
    return builder.graph()


def rows_for(values: np.ndarray, bins: int, keep: float = 0.9) -> np.ndarray:
    """One row of `row_dtype(bins)` for each line of `values` [rows, samples], as sampling would make it."""
    rows = np.zeros(len(values), events.row_dtype(bins))
    samples = values.shape[1]
    values = values.astype(np.float32)
    rows["size"], rows["sampled"] = samples * 50, samples
    distance = np.abs(values - np.median(values, axis=1, keepdims=True))
    order = np.argsort(distance, axis=1)[:, : max(1, round(samples * keep))]
    kept = np.take_along_axis(values, order, axis=1).astype(np.float64)
    rows["min"], rows["max"] = values.min(1) - np.float32(0.01), values.max(1) + np.float32(0.01)
    rows["low"], rows["high"] = kept.min(1), kept.max(1)
    rows["mean"], rows["std"] = values.mean(1), values.std(1)
    rows["zeros"] = (values == 0).mean(1, dtype=np.float32)
    extent = np.where(rows["high"] > rows["low"], rows["high"] - rows["low"], 1)
    bin_of = np.minimum(((kept - rows["low"][:, None]) / extent[:, None] * bins).astype(int), bins - 1)
    np.add.at(rows["counts"], (np.arange(len(rows))[:, None], bin_of), 1)
    return rows


@dataclass
class Run:
    """Steps of one process for one graph; `values` draws what a series looks like at a step."""

    graph: Graph
    session: str = "one"
    seed: int = 0
    samples: int = 100
    wall: float = 1_790_000_000.0
    time_of: dict[int, float] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    plateau: int = 60

    def record(self, step: int, phase: str = "train", *, skipped: bool = False) -> events.StepRecord:
        random = np.random.default_rng([self.seed, step, phase == "eval"])
        shards: dict[int, np.ndarray] = {}
        by_shard: dict[int, list[Series]] = {}
        for series in self.graph.series:
            by_shard.setdefault(series.shard, []).append(series)
        for shard, members in by_shard.items():
            rows = rows_for(self._values(members, step, random), self.graph.bins)
            for row, series in enumerate(members):
                self._special(rows, row, series, step, phase)
            shards[shard] = rows
        info = StepInfo(
            step=step,
            wall=self.wall + step,
            time=self.time_of.get(step),
            forwards=1,
            ran=[[0, len(self.graph.nodes)]],
            scale=None,
            skipped=skipped,
            dropped=0,
            session=self.session,
            faults=self.faults,
        )
        return events.StepRecord(self.graph.model, phase, info, self._health(step, random), shards)

    def _values(self, members: list[Series], step: int, random: np.random.Generator) -> np.ndarray:
        progress = min(1.0, step / self.plateau)
        values = np.empty((len(members), self.samples), np.float32)
        for row, series in enumerate(members):
            owner = max(series.node, series.module)
            depth = (owner * 37 % 11) / 10
            if series.kind == "grad" and series.group != "param":
                scale = 10 ** (-1 - 2 * depth) * math.exp(-2 * progress)
                values[row] = np.abs(random.normal(scale, scale / 4, self.samples))
            elif series.kind == "grad":
                values[row] = random.normal(0, 0.02 * math.exp(-1.5 * progress) * (1 + depth), self.samples)
            elif series.group == "param":
                values[row] = random.normal(0.05 * progress * depth, 0.1 + 0.15 * progress, self.samples)
            else:
                values[row] = random.normal(depth - 0.3 + progress, 0.5 + progress, self.samples)
                class_name = self.graph.modules[self.graph.nodes[series.node].module].class_name
                if class_name == "ReLU" and series.group == "output":
                    values[row] = np.maximum(values[row], 0)
        return values

    def _special(self, rows: np.ndarray, row: int, series: Series, step: int, phase: str) -> None:
        blank = 0
        node = self.graph.nodes[series.node] if series.node >= 0 else None
        if phase == "eval" and series.kind == "grad":
            blank = Status.EVAL
        elif phase == "eval" and series.group == "param":
            blank = Status.NOT_RUN
        elif series.node == 0 and series.group == "input" and series.kind == "grad":
            blank = Status.ROOT_INPUT
        elif node and node.id == "avgpool" and series.kind == "grad" and step % 20 == 10:
            blank = Status.NO_GRADIENT
        elif series.group == "param" and series.name == "codebook" and series.kind == "grad":
            blank = Status.FROZEN
        if blank:
            rows[row] = np.zeros((), rows.dtype)
            rows["status"][row] = blank
        elif node and node.id.startswith("layer3/1/conv2") and 30 <= step < 34:
            rows["nan"][row], rows["posinf"][row] = 3 + step, step % 3
        elif node and node.id == "fc" and step == 40:
            rows["max"][row] = 1e6  # one spike

    def _health(self, step: int, random: np.random.Generator) -> np.ndarray:
        nodes = len(self.graph.nodes)
        health = np.exp(random.normal(-2 - step / 100, 1, (nodes, len(HEALTH)))).astype(np.float32)
        health[:, HEALTH.index("zeros")] = random.uniform(0, 1, nodes)
        health[:, HEALTH.index("nonfinite")] = 0
        owns = np.array([bool(self.graph.modules[node.module].parameters) for node in self.graph.nodes])
        for name in ("parameter", "parameter_gradient", "update"):
            health[~owns, HEALTH.index(name)] = np.nan
        return health


def write(
    writer: SummaryWriter, run: Run, steps: Iterator[int] | range, phase: str = "train", graph: bool = True
) -> None:
    """Logs the steps of `run`, the graph with the first."""
    for step in steps:
        values = events.graph_values(run.graph) if graph else []
        graph = False
        values += events.step_values(run.record(step, phase))
        writer._get_file_writer().add_summary(Summary(value=values), step)


def stored_graph(graph: Graph, version: int) -> bytes:
    """The payload of a graph as a later version of this package may write it."""
    return zlib.compress(schema_json.dumps_in_columns(graph, version))


def demo(logdir: Path, steps: int = 60) -> None:
    """Three runs: a ResNet with evaluation, the same resumed, and a VQ-VAE beside an odd name."""
    for seed, name in enumerate(("resnet18/first", "resnet18/second")):
        run = Run(resnet(log_freq=1), seed=seed, wall=time.time() - steps)
        with SummaryWriter(logdir / name, max_queue=1000) as writer:
            write(writer, run, range(steps))
            write(writer, run, range(0, steps, 10), "eval", graph=False)
            for step in range(steps):
                writer.add_scalar("loss", 2 * math.exp(-step / 30), step)
    run.session, run.seed = "two", 7
    run.faults = [Fault("layer2.0.conv1", "output gradient", "RuntimeError: an example of a fault")]
    time.sleep(1.1)  # TensorBoard reads the files of a directory in the order of their names: by start second
    with SummaryWriter(logdir / "resnet18/second", max_queue=1000, purge_step=steps - 10) as writer:
        write(writer, run, range(steps - 10, steps + 10))
    with SummaryWriter(logdir / "several models", max_queue=1000) as writer:
        generator = Run(vqvae(), seed=3, time_of={step: step / 8 for step in range(steps)})
        write(writer, generator, range(0, steps, 2))
        write(writer, Run(small(ODD_NAMES[5])), range(0, steps, 3))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logdir", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    demo(arguments.logdir, arguments.steps)
