"""A log directory with made-up runs and a TensorBoard that serves it, for the browser tests.

Prints one line of JSON: `url` of the runs, `empty` of a server without any, `report`: a report file of some
of them, `more`: whenever a file of that name appears, ten more steps of the run "training now" are logged and
the file is removed. Ends with stdin.
"""

from __future__ import annotations

import json
import select
import sys
import tempfile
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import ExplorerWriter
from tensorboard_torchexplorer.report import export
from tensorboard_torchexplorer.schema import End, Graph
from tests import record_graphs, records
from tests.tensorboard_server import tensorboard_server

STEPS = 40
HOSTILE = "<img src=x onerror=document.title='broken'>\u202e" + "y" * 10_000


def hostile() -> Graph:
    """Names that try to be markup, to turn the text about, to burst the page, to be a placeholder."""
    builder = record_graphs.GraphBuilder("hostile", "Output 0")
    builder.ports(0, [record_graphs.port(4, 8)], [record_graphs.port(4, 8, name="")])
    ports = [record_graphs.port(4, 8, name=HOSTILE)], [record_graphs.port(4, 8, name="")]
    odd = builder.call(0, HOSTILE, HOSTILE, *ports, f"key={HOSTILE}, {HOSTILE}", {HOSTILE: [8]})
    plain = builder.call(0, "Input", "Output 0", *ports)
    builder.edge(0, End("input", 0), End("node", odd))
    builder.edge(0, End("node", odd), End("node", plain))
    builder.edge(0, End("node", plain), End("output", 0))
    return builder.graph()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(self.norm(x))


class Grouped(nn.Module):
    """Containers that are never called: a list of equal blocks, a dict of different heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(12))
        self.heads = nn.ModuleDict({"box": nn.Linear(8, 4), "label": nn.Linear(8, 3)})

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return tuple(head(x) for head in self.heads.values())


def train(logdir: Path, model: nn.Module) -> None:
    """Two steps under a real writer."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with ExplorerWriter(logdir) as writer:
        writer.watch(model, "model", log_freq=1)
        for _ in range(2):
            outputs = model(torch.randn(4, 8))
            sum(output.square().mean() for output in outputs).backward()
            optimizer.step()
            optimizer.zero_grad()


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        logdir, empty = Path(scratch) / "runs", Path(scratch) / "empty"
        empty.mkdir()
        records.demo(logdir, STEPS)
        with SummaryWriter(logdir / "unfriendly names", max_queue=1000) as writer:
            records.write(writer, records.Run(hostile()), range(3))
        with SummaryWriter(logdir / "unrolled", max_queue=1000) as writer:
            records.write(writer, records.Run(record_graphs.small(layers=12)), range(3))
        with SummaryWriter(logdir / "very large", max_queue=1000) as writer:
            records.write(writer, records.Run(record_graphs.small(layers=2000)), range(1))
        train(logdir / "with groups", Grouped())
        layers = (layer for _ in range(5) for layer in (nn.Linear(8, 8), nn.Tanh()))
        train(logdir / "with layers in turn", nn.Sequential(*layers))
        live = records.Run(record_graphs.resnet(), seed=5)
        steps = count()
        with (
            SummaryWriter(logdir / "training now") as writer,
            tensorboard_server(logdir) as server,
            tensorboard_server(empty) as without,
        ):

            def log(graph: bool) -> None:
                records.write(writer, live, [next(steps) for _ in range(10)], graph=graph)
                writer.flush()

            log(graph=True)
            more, report = Path(scratch) / "more", Path(scratch) / "report.html"
            export(logdir, report, runs=["resnet18/*", "several models", "unfriendly names"])
            addresses = {"url": server.url, "empty": without.url, "report": str(report), "more": str(more)}
            print(json.dumps(addresses), flush=True)
            while not select.select([sys.stdin], [], [], 0.1)[0]:
                if more.exists():
                    log(graph=False)
                    more.unlink()


if __name__ == "__main__":
    main()
