"""Event files for tests of the routes."""

from __future__ import annotations

import time

from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events
from tests.record_graphs import resnet, small, vqvae
from tests.records import Run, write

ROUTES = ("runs", "steps", "graph", "series", "health", "search")


def write_runs(path) -> None:
    """Run "a" with two models and evaluation, run "b/c" that was resumed, and one without records."""
    with SummaryWriter(path / "a") as writer:
        write(writer, Run(resnet()), range(0, 40, 2))
        write(writer, Run(resnet()), range(0, 40, 10), "eval", graph=False)
        write(writer, Run(vqvae(), time_of={step: step / 4 for step in range(9)}), range(9))
    with SummaryWriter(path / "b" / "c") as writer:
        write(writer, Run(small()), range(10))
    time.sleep(1.1)
    with SummaryWriter(path / "b" / "c") as writer:
        write(writer, Run(small(), session="two", seed=5), range(6, 13))
    with SummaryWriter(path / "scalars only") as writer:
        writer.add_scalar("loss", 1, 1)


def put(value, payload: bytes) -> None:
    """Replaces the bytes of a Summary.Value."""
    value.tensor.tensor_content = payload
    value.tensor.tensor_shape.dim[0].size = len(payload)


def write_records(path, run, records) -> None:
    """One event file with the graph of `run` and the given records."""
    with SummaryWriter(path) as writer:
        values = events.graph_values(run.graph)
        for record in records:
            values += events.step_values(record)
            writer._get_file_writer().add_summary(Summary(value=values), record.info.step)
            values = []
