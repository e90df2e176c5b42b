"""A program as users write it, which mypy reads with the package (`make check`): it must find no fault in it,
and know the types. Never run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter
from typing_extensions import assert_type

from tensorboard_torchexplorer import (
    ExplorerWriter,
    Report,
    Watch,
    attach,
    log_to_wandb,
    read,
    unwatch_model,
    verify,
    watch_model,
)
from tensorboard_torchexplorer.reader import History, Model, Run
from tensorboard_torchexplorer.report import export
from tensorboard_torchexplorer.schema import STATUS, Status
from tensorboard_torchexplorer.serve import Server


class Gated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * assert_type(attach(x.sigmoid(), "gate"), Tensor)


class Mine(ExplorerWriter):
    """A writer of the user's own."""


def epoch(model: nn.Module, step: int) -> float:
    return step / 100


def is_wanted(path: str, module: nn.Module) -> bool:
    return path != "head"


def loss_of(model: nn.Module, step: int) -> Tensor:
    loss: Tensor = model(torch.full((2, 2), step)).sum()
    return loss


def made(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with ExplorerWriter(Path("runs") / "a", flush_secs=3) as writer:
        assert_type(writer, ExplorerWriter)
        writer.watch(
            model,
            "mine",
            log=["io", "params"],
            include=["layer*", nn.Linear, is_wanted],
            exclude=nn.Dropout,
            optimizer=optimizer,
            time_log=("epoch", epoch),
            sample_n=None,
        )
        with writer.watch(model, log="io") as watch:
            assert_type(watch, Watch)
            assert_type(watch.model, nn.Module | None)
        writer.unwatch(model)
        with writer.serve(port=0, browser=True) as server:
            assert_type(server, Server)
        assert_type(writer.export_report("report.html", models=["mine"], steps=10), int)
        log_to_wandb(writer, object(), report_every=3).close()
    with Mine() as mine:
        assert_type(mine, Mine)
    plain = SummaryWriter("runs/b")
    watch_model(plain, model)
    unwatch_model(plain)


def look() -> None:
    for run in read("runs").values():
        assert_type(run, Run)
        for model in run.values():
            assert_type(model, Model)
            history = model.history("eval")
            assert_type(history, History)
            assert_type(history.steps, npt.NDArray[np.int64])
            assert_type(history.health(), npt.NDArray[np.float32])
            for index, series in enumerate(model.graph.series):
                rows = history.rows(index)
                counts: npt.NDArray[Any] = rows["counts"]
                print(series.name, series.kind == "grad", counts.sum(1), STATUS[Status.EMPTY])
    export("runs", Path("all.html"), runs=["a", "b"], models="mine")
    report = verify(nn.Linear(2, 2), loss_of, steps=2, optimizer=made, log_freq=1)
    assert_type(report, Report)
    assert_type(report.identical, bool)
