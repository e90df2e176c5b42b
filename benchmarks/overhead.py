"""What watching costs, beside what other tools cost: one table per question, as ratios of one run.

    python benchmarks/overhead.py [--rounds 15] [--only logged,idle,memory,structure]

Models and tools are interleaved step by step, in a random order per round, because machines are noisy: only
ratios of the same run mean anything. Times are CPU time of one thread of torch; "all" includes what a tool
does in the background, waited for after each step. A tool that is not installed, or fails on a model, is
shown so.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from subjects import (
    MODELS,
    ByHand,
    Explorer,
    ExplorerExact,
    Idle,
    Loss,
    Original,
    OriginalIdle,
    Plain,
    Scalars,
    Wandb,
    WandbIdle,
    many_modules,
)
from torch import nn

from tensorboard_torchexplorer import read

WARM_UP = 2


@dataclass
class Trained:
    """A model with its watcher, and what its steps took."""

    subject: Plain
    model: nn.Module
    loss: Loss
    main: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)
    failed: str = ""
    bytes_per_step: float = 0.0

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.step = 0
        try:
            self.subject.start(self.model)
        except Exception as error:  # a peer that is not installed is a row of the table, not the end
            self.failed = f"{type(error).__name__}: {str(error)[:60]}"

    def run(self) -> None:
        """One step; keeps CPU seconds of this thread, and of the process with the background work."""
        if self.failed:
            return
        try:
            thread, process = time.thread_time(), time.process_time()
            loss = self.loss(self.model)
            loss.backward()
            self.subject.after_backward(self.model, self.step)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.main.append(time.thread_time() - thread)
            self.subject.settle()
            self.all.append(time.process_time() - process)
            self.step += 1
        except Exception as error:
            self.failed = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"


def interleaved(
    build: Callable[..., tuple[nn.Module, Loss]], kinds: Sequence[type[Plain]], rounds: int
) -> list[Trained]:
    """Train copies of one model, each watched by one of `kinds`, in turns."""
    torch.manual_seed(0)
    originals = {
        inplace: build(inplace) if build is not many_modules else build() for inplace in (True, False)
    }
    trained = []
    for kind in kinds:
        subject = kind()
        model, loss = originals[subject.inplace]
        trained.append(Trained(subject, copy.deepcopy(model).train(), loss))
    order = list(trained)
    for turn in range(WARM_UP + rounds):
        if turn == WARM_UP:
            for one in trained:
                one.main.clear()
                one.all.clear()
                one.bytes_per_step = -one.subject.bytes()
        random.shuffle(order)
        for one in order:
            one.run()
    for one in trained:
        one.bytes_per_step = (one.bytes_per_step + one.subject.bytes()) / rounds
        if not one.failed:
            one.subject.stop()
    return trained


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}\n")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
    sys.stdout.flush()


def ratio(values: Sequence[float], base: Sequence[float]) -> str:
    return f"{statistics.median(values) / statistics.median(base):.2f} ({min(values) / min(base):.2f})"


def compare(trained: list[Trained]) -> list[list[str]]:
    base = trained[0]
    rows = [[base.subject.name, f"{1e3 * statistics.median(base.main):.1f} ms", "", ""]]
    for one in trained[1:]:
        if one.failed:
            rows.append([one.subject.name, "failed", one.failed, ""])
        else:
            size = f"{one.bytes_per_step / 1024:.1f}"
            rows.append([one.subject.name, ratio(one.main, base.main), ratio(one.all, base.all), size])
    return rows


def logged(rounds: int) -> None:
    kinds = [Plain, Explorer, ExplorerExact, Original, Wandb, ByHand]
    for name, build in MODELS.items():
        head = ["", "training thread", "all threads", "KiB per logged step"]
        title = f"Logged step, {name}: times plain, median (minimum)"
        table(title, head, compare(interleaved(build, kinds, rounds)))


def idle(rounds: int) -> None:
    trained = interleaved(many_modules, [Plain, Idle, OriginalIdle, WandbIdle], max(rounds, 30))
    head = ["", "training thread", "all threads", ""]
    table("Idle step, 600 leaf modules: times plain, median (minimum)", head, compare(trained))


def structure(rounds: int) -> None:
    """The first logged step, which finds the edges, and the others, of a model with 3,000 series."""
    torch.manual_seed(0)
    model, loss = many_modules()
    plain = Trained(Plain(), copy.deepcopy(model), loss)
    watched = Trained(Explorer(), copy.deepcopy(model), loss)
    for _ in range(1 + rounds):
        plain.run()
        watched.run()
    base = min(plain.main)
    first = watched.main[0]
    rows = [
        ["first logged step over a plain one", f"{1e3 * (first - base):.0f} ms"],
        [
            "structure: first logged step over a later one, median",
            f"{1e3 * (first - statistics.median(watched.main[1:])):.0f} ms",
        ],
        ["logged step over a plain one, minimum", f"{1e3 * (min(watched.main[1:]) - base):.0f} ms"],
        [
            "the same, median",
            f"{1e3 * (statistics.median(watched.main[1:]) - statistics.median(plain.main)):.0f} ms",
        ],
        ["series", str(_series(watched.subject))],
    ]
    watched.subject.stop()
    table("600 leaf modules, training thread", ["", ""], rows)


def _series(subject: Plain) -> int:
    (run,) = read(subject.folder.name).values()
    return sum(len(model.graph.series) for model in run.values())


# With glibc, every large block is then a mapping of its own, given back when freed.
STEADY = {"MALLOC_MMAP_THRESHOLD_": "65536"}
MEMORY_KINDS = (Plain, Scalars, Explorer, ExplorerExact, Original, Wandb, ByHand)


def memory(rounds: int) -> None:
    """Peak resident memory, each in processes of its own: of what is in use, which varies by a MiB from run
    to run, and with the holes that the allocator leaves, which vary by tens of MiB: the median of five."""
    for title, surroundings, kinds, times in (
        ("in use", STEADY, MEMORY_KINDS, 1),
        ("with the allocator's holes", {}, (Plain, Scalars, Explorer), 5),
    ):
        rows = []
        for name in MODELS:
            peaks = [statistics.median(peaks_of(name, kind, surroundings, times)) for kind in kinds]
            rows.append([name, f"{peaks[0]:.0f}", *(f"{peak - peaks[0]:+.0f}" for peak in peaks[1:])])
        table(f"Peak memory {title}, MiB: plain, and over plain", ["", *(kind.name for kind in kinds)], rows)


def peaks_of(name: str, kind: type[Plain], surroundings: dict[str, str], times: int) -> list[float]:
    """Peaks of trainings of one model under one tool, in MiB; not a number where the tool failed."""
    command = [sys.executable, __file__, "--peak", name, kind.__name__]
    environment = os.environ | surroundings
    runs = [subprocess.run(command, capture_output=True, text=True, env=environment) for _ in range(times)]
    return [float(run.stdout.split()[-1]) if run.returncode == 0 else float("nan") for run in runs]


def peak(name: str, kind: str) -> None:
    """Print the peak of ten steps of one model under one tool."""
    subject = next(k for k in MEMORY_KINDS if k.__name__ == kind)()
    torch.manual_seed(0)
    model, loss = MODELS[name](subject.inplace)
    one = Trained(subject, model.train(), loss)
    for _ in range(10):
        one.run()
    if one.failed:
        sys.exit(one.failed)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


QUESTIONS = {"logged": logged, "idle": idle, "structure": structure, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="measured steps of each (default 15)")
    parser.add_argument("--only", default=",".join(QUESTIONS), help=f"some of {','.join(QUESTIONS)}")
    parser.add_argument("--peak", nargs=2, metavar=("MODEL", "SUBJECT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(0)
    if options.peak:
        peak(*options.peak)
        return
    for question in options.only.split(","):
        QUESTIONS[question](options.rounds)


if __name__ == "__main__":
    main()
