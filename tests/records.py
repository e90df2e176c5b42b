"""Plausible logged steps without any model: for tests of everything behind the capture, and
`python -m tests.records LOGDIR` writes a directory to develop the tab on."""

from __future__ import annotations

import argparse
import math
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events, schema_json
from tensorboard_torchexplorer.schema import HEALTH, Fault, Graph, Series, Status, StepInfo
from tests.record_graphs import resnet, small, vqvae

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
