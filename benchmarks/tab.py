"""What large models cost in the tab: models of 10,000 modules, and levels of 2,000 and 10,000, are
recorded under a real writer, served by TensorBoard and opened in Chromium. Prints a table; `--quick` for a
tenth of the modules.

python -m benchmarks.tab [--quick]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from tensorboard_torchexplorer import ExplorerWriter
from tests.tensorboard_server import ROOT, tensorboard_server

GOALS = "goals: usable below 1000 ms, frames about 17 ms (60 Hz) in a level of 2,000"


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.act, self.two = nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(self.act(self.one(x)))


class Group(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.items = nn.ModuleList(Pair() for _ in range(size))

    def forward(self, x: Tensor) -> Tensor:
        for item in self.items:
            x = item(x)
        return x


class Wired(nn.Module):
    """All modules on one level, each fed by one or two of those shortly before it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        chance = random.Random(1)
        self.layers = nn.ModuleList(
            nn.Linear(4, 4) if chance.random() < 0.6 else nn.Tanh() for _ in range(size)
        )
        self.sources = [
            [max(0, index - int(chance.expovariate(0.25))) for _ in range(1 + (chance.random() < 0.35))]
            for index in range(size)
        ]

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for layer, sources in zip(self.layers, self.sources, strict=True):
            values.append(layer(sum(values[source] for source in sources) / len(sources)))
        return values[-1]


def models(part: int) -> dict[str, nn.Module]:
    """By name; with a `part`-th of the modules."""
    groups = 50 // part
    return {
        "nested 10,000": nn.Sequential(*(Group(50) for _ in range(groups))),
        "level of 2,000": Wired(2000 // part),
        "level of 10,000": Wired(10_000 // part),
        "chain of 10,000": nn.Sequential(
            *(nn.Linear(4, 4) if index % 2 else nn.Tanh() for index in range(10_000 // part))
        ),
    }


def record(logdir: Path, name: str, model: nn.Module) -> None:
    """Two logged steps."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with ExplorerWriter(logdir / name) as writer:
        writer.watch(model, name, log_freq=1)
        for _ in range(2):
            model(torch.randn(2, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the modules")
    part = 10 if parser.parse_args().quick else 1
    with tempfile.TemporaryDirectory() as scratch:
        logdir = Path(scratch)
        names = []
        for name, model in models(part).items():
            record(logdir, name, model)
            names.append(name)
        with tensorboard_server(logdir) as server:
            for name in names:
                server.wait_for_steps(name, name, 1, seconds=300)
            measured = subprocess.run(
                ["node", "bench/tab.mjs", server.url, *names],
                cwd=ROOT / "frontend",
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            ).stdout
    heads = ["model", "calls sent", "kB", "usable, ms", "unfold all, ms"]
    heads += ["pan, near", "zoom, near", "pan, far", "zoom, far"]
    print("\n|", " | ".join(heads), "|")
    print("|" + "---|" * len(heads))
    for line in map(json.loads, measured.splitlines()):
        frames = [line[view][move] for view in ("near", "far") for move in ("pan", "zoom")]
        cells = [line["run"], line["sent"], line["kB"], line["usable"], line["unfold"]]
        cells += [f"{mean:.0f} / {late:.0f} / {worst:.0f}" for mean, late, worst in frames]
        print("|", " | ".join(map(str, cells)), "|")
    print(f"\nms between frames: mean / 95th percentile / worst. {GOALS}")


if __name__ == "__main__":
    main()
