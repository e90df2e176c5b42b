"""A training loop with Accelerate, which needs nothing of ours but `watch`."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerate = pytest.importorskip("accelerate")

from tensorboard_torchexplorer import ExplorerWriter  # noqa: E402
from tests.recording import assert_row_holds, read_back  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Accelerate's own

X = torch.randn(24, 8, generator=torch.Generator().manual_seed(1))
Y = torch.randn(24, 3, generator=torch.Generator().manual_seed(2))
BATCH, LR, CLIP = 4, 0.1, 0.05


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def by_hand(steps: int, accumulate: int) -> list[dict[str, torch.Tensor]]:
    """The clipped gradients that a plain loop uses."""
    model, found = build(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for step in range(steps):
        for part in range(accumulate):
            at = BATCH * (step * accumulate + part)
            loss = nn.functional.mse_loss(model(X[at : at + BATCH]), Y[at : at + BATCH])
            (loss / accumulate).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        found.append({name: p.grad.clone() for name, p in model.named_parameters()})
        optimizer.step()
        optimizer.zero_grad()
    return found


@pytest.mark.parametrize("named", [False, True])
def test_gradients_are_those_that_the_optimizer_used(named, tmp_path):
    """Also where the optimizer is named: `prepare` has wrapped it."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = build()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=LR), DataLoader(TensorDataset(X, Y), batch_size=BATCH)
    )
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1, sample_n=None, optimizer=optimizer if named else None)
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
                optimizer.zero_grad()
    recorded = read_back(str(tmp_path))

    assert recorded.steps == [0, 1, 2]
    assert [info.forwards for info in recorded.history.infos] == [2, 2, 2]
    for at, gradients in enumerate(by_hand(3, 2)):
        for name in ("0.weight", "2.bias"):
            path, _, leaf = name.rpartition(".")
            assert_row_holds(recorded.row(path, "param", "grad", leaf, at), gradients[name], rel=1e-5)
