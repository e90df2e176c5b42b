"""What records cost: bytes, writing, loading, answering. Prints a table; `--quick` for a tenth of the steps.

python -m benchmarks.records [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events
from tensorboard_torchexplorer.background import background_of
from tensorboard_torchexplorer.crc import _fastest
from tensorboard_torchexplorer.record_file import write_values
from tests.plugin_client import Loaded
from tests.record_graphs import resnet, wide
from tests.records import Run
from tests.tensorboard_server import PLUGIN, Server, tensorboard_server

INVOCATIONS = 1000
STEPS = 500


class Figure(NamedTuple):
    """One line of the table. `goal` is an upper limit."""

    what: str
    value: float
    unit: str
    goal: float | None = None


def sizes() -> list[Figure]:
    """Bytes of the event of a logged step, all of protocol buffers and checksums included."""
    graph = wide(INVOCATIONS)
    large = _event_size(events.step_values(Run(graph).record(3)))
    small = _event_size(events.step_values(Run(resnet()).record(3)))
    return [
        Figure("histogram, amortised over a step", large / len(graph.series), "B", 50),
        Figure("logged step, ResNet-18, all kinds", small / 1024, "KiB", 20),
        Figure("graph of 1,000 invocations", _event_size(events.graph_values(graph)) / 1024, "KiB"),
    ]


def writing() -> list[Figure]:
    """Time of one record of 500 kB on the training thread, and on the thread beside it."""
    record = Run(wide(INVOCATIONS)).record(3)
    values = events.step_values(record)
    filler = _event_size(values)
    with tempfile.TemporaryDirectory() as path, SummaryWriter(path) as writer:
        thread = background_of(writer)
        submits = []
        for step in range(20):
            start = time.perf_counter()
            thread.submit(lambda step=step: (values, step), filler)
            submits.append(time.perf_counter() - start)
            thread.flush()
        encoding = _processor_seconds(lambda: events.step_values(record), 9)

        start = time.process_time()
        for step in range(20):
            write_values(writer, values, step, lambda error: None)
        writer.flush()
        writes = (time.process_time() - start) / 20
    return [
        Figure("submit of a record, training thread", statistics.median(submits) * 1e3, "ms", 3),
        Figure(f"encode {filler // 1000} kB, thread beside it, processor time", encoding * 1e3, "ms"),
        Figure(
            f"write {filler // 1000} kB with {_fastest().__module__.rpartition('.')[2]} CRC, processor time",
            writes * 1e3,
            "ms",
        ),
    ]


def write_large(path: Path, steps: int) -> int:
    """1,000 invocations of 8 histograms over `steps` steps; returns the size of the file. Sixteen different
    steps are repeated, since making up numbers would take longer than all else."""
    run = Run(wide(INVOCATIONS))
    records = [run.record(step) for step in range(16)]
    encoded = [events.step_values(record) for record in records]
    with SummaryWriter(path, max_queue=4) as writer:
        for step in range(steps):
            values = events.graph_values(run.graph) if step == 0 else []
            values += encoded[step % 16][:-1]
            info = records[step % 16].info.__class__(**(vars(records[step % 16].info) | {"step": step}))
            index = events.Summary.Value.FromString(encoded[0][-1].SerializeToString())
            index.tensor.tensor_content = events.encode_info(info)
            index.tensor.tensor_shape.dim[0].size = len(index.tensor.tensor_content)
            write_values(writer, [*values, index], step, print)
    (file,) = path.glob("events.*")
    return file.stat().st_size


def serving(path: Path, load_fast: str, steps: int, load_goal: float) -> list[Figure]:
    """Loading and answering in a real TensorBoard. Processor times are of the server and what it started;
    the others are of the client, HTTP included."""
    name = {"true": "data server", "false": "Python loader"}[load_fast]
    with tempfile.TemporaryDirectory() as empty, tensorboard_server(empty, load_fast) as idle:
        idle.wait_for(lambda: idle.plugin("runs")["runs"] == [])
        idle_cpu = idle.cpu()
    start = time.perf_counter()
    with tensorboard_server(path, load_fast) as server:
        server.wait_for_steps(".", "model", steps - 1, 900)
        loaded, load_cpu, memory = time.perf_counter() - start, server.cpu() - idle_cpu, server.memory()
        query = {"run": ".", "model": "model"}
        before = server.cpu()
        first_graph = _once(server, "graph", **query)
        graph_cpu = server.cpu() - before
        # Each another invocation, none cached.
        nodes = [f"group{index}/layer{index}" for index in range(3, 15)]
        before = server.cpu()
        series = statistics.median(_once(server, "series", node=node, **query) for node in nodes)
        series_cpu = (server.cpu() - before) / len(nodes)
        level = _once(server, "graph", node="group7", **query)
        return [
            Figure(f"{name}: load, processor time", load_cpu, "s", load_goal),
            Figure(f"{name}: load, start of the command included", loaded, "s"),
            Figure(f"{name}: memory of the server", memory / 1e6, "MB", 350),
            Figure(f"{name}: first graph, processor time", graph_cpu * 1e3, "ms", 100),
            Figure(f"{name}: first graph", first_graph * 1e3, "ms"),
            Figure(f"{name}: graph of another level", level * 1e3, "ms", 100),
            Figure(f"{name}: series of one invocation, processor time", series_cpu * 1e3, "ms"),
            Figure(f"{name}: series of one invocation", series * 1e3, "ms"),
            Figure(f"{name}: runs, when polled", _median(server, "runs") * 1e3, "ms"),
            Figure(f"{name}: first health", _once(server, "health", stat="gradient", **query) * 1e3, "ms"),
            Figure(f"{name}: search", _once(server, "search", q="layer7", **query) * 1e3, "ms"),
        ]


def over_provider(path: Path) -> list[Figure]:
    """What the plugin adds to the provider's own read of the same tags, without HTTP, in processor
    time."""
    loaded = Loaded(path)
    loaded.json("graph", run=".", model="model")
    inside: list[float] = []
    for name in ("read_tensors", "list_tensors"):
        original = getattr(loaded.provider, name)

        def timed(*args, original=original, **options):
            start = time.thread_time()
            try:
                return original(*args, **options)
            finally:
                inside.append(time.thread_time() - start)

        setattr(loaded.provider, name, timed)
    added = []
    for index in range(20):
        inside.clear()
        start = time.thread_time()
        loaded.get("series", run=".", model="model", node=f"group{index}/layer{index}")
        added.append(time.thread_time() - start - sum(inside))
    return [
        Figure("series of one invocation, over the provider call", statistics.median(added) * 1e3, "ms", 30)
    ]


def _event_size(values: list) -> int:
    return Event(wall_time=1.0, step=3, summary=Summary(value=values)).ByteSize() + 16


def _processor_seconds(call: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        start = time.thread_time()
        call()
        found.append(time.thread_time() - start)
    return min(found)


def _once(server: Server, route: str, **query: object) -> float:
    start = time.perf_counter()
    answer = server.get(PLUGIN + route, **query)
    seconds = time.perf_counter() - start
    assert answer.status == 200, answer.body[:500]
    return seconds


def _median(server: Server, route: str, **query: object) -> float:
    return float(np.median([_once(server, route, **query) for _ in range(9)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    steps = STEPS // 10 if parser.parse_args().quick else STEPS
    figures = sizes() + writing()
    with tempfile.TemporaryDirectory() as path:
        figures.append(Figure(f"event file, {steps} steps", write_large(Path(path), steps) / 1e6, "MB"))
        figures += serving(Path(path), "true", steps, 2)
        figures += serving(Path(path), "false", steps, 60)
        figures += over_provider(Path(path))
    for what, value, unit, goal in figures:
        limit = "" if goal is None else f"  goal {goal:g} {unit}" + ("" if value <= goal else "  MISSED")
        print(f"{what:<62}{value:>10.1f} {unit:<4}{limit}")


if __name__ == "__main__":
    main()
