"""The callbacks under torchrun, in two processes with DistributedDataParallel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("lightning")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from tests.recording import assert_row_holds, read_back

ROOT = Path(__file__).parent.parent
LR, STEPS = 0.1, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where trainers_training.py has left its records."""
    where = tmp_path_factory.mktemp("trainers")
    script = str(ROOT / "tests" / "trainers_training.py")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [sys.executable, *torchrun, script, str(where)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return where


def by_hand(rows: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of the first weight, of a net that sees both ranks' batches `rows` [steps, rows, 8]."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    found = []
    for batch in rows:
        net(batch).square().mean().backward()
        found.append(net[0].weight.grad.clone())
        optimizer.step()
        optimizer.zero_grad()
    return found


@pytest.mark.parametrize("trainer", ["lightning", "sharded", "transformers"])
def test_the_first_rank_writes_what_both_have_seen(trainer, folder):
    recorded = read_back(str(folder / trainer))
    inputs = recorded.series["net", "input", "value", "input"]

    assert len(list((folder / trainer).glob("events.out.tfevents.*"))) == 1
    assert recorded.steps == list(range(STEPS))
    assert [info.ranks for info in recorded.history.infos] == [2] * STEPS
    assert list(inputs["size"]) == [2 * 4 * 8] * STEPS
    assert [info.faults for info in recorded.history.infos if info.faults] == []
    assert "module" not in {part for node in recorded.ids() for part in node.split(".")}


@pytest.mark.parametrize("trainer", ["lightning", "sharded"])
def test_the_gradient_is_the_reduced_one(folder, trainer):
    """Of the loss of both ranks' batches, which Lightning's sampler deals out."""
    from torch.utils.data import DistributedSampler

    from tests.trainers_training import BATCH, X

    order = [list(DistributedSampler(X, 2, rank, shuffle=True, seed=0)) for rank in range(2)]
    rows = torch.stack(
        [torch.cat([X[ranks[at : at + BATCH]] for ranks in order]) for at in range(0, BATCH * STEPS, BATCH)]
    )
    recorded = read_back(str(folder / trainer))
    for step, gradient in enumerate(by_hand(rows)):
        assert_row_holds(recorded.row("net.0", "param", "grad", "weight", step), gradient, rel=1e-5)
