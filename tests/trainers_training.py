"""Fits of Lightning and of the Hugging Face Trainer under torchrun; see test_integration_processes.py.

torchrun --nproc-per-node 2 tests/trainers_training.py FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import lightning.pytorch as lightning
import torch
import transformers
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

from tensorboard_torchexplorer.integrations.lightning import ExplorerCallback as OfLightning
from tensorboard_torchexplorer.integrations.transformers import ExplorerCallback as OfTransformers

BATCH, LR, STEPS = 4, 0.1, 3
X = torch.randn(BATCH * 2 * STEPS, 8, generator=torch.Generator().manual_seed(1))

OPTIONS = {"ranks": "all", "log_freq": 1, "sample_n": None}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


class Lit(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def training_step(self, batch, batch_idx):
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=LR)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x):
        return {"loss": self.net(x).square().mean()}


class Sharded(Lit):
    """Each layer's parameters are shared out with `fully_shard`, when the strategy says over which ranks."""

    def configure_model(self):
        for layer in (self.net[0], self.net[2], self.net):
            fully_shard(layer, mesh=self.device_mesh["data_parallel"])


def fit_lightning(folder: Path, model: Lit, strategy: str | ModelParallelStrategy) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy=strategy,
        devices=2,
        max_epochs=1,
        logger=TensorBoardLogger(folder, name=None, version=""),
        callbacks=[OfLightning(**OPTIONS)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(X, batch_size=BATCH))


def fit_transformers(folder: Path) -> None:
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder)
    arguments = transformers.TrainingArguments(
        str(folder.parent / "out"),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        lr_scheduler_type="constant",
        optim="sgd",
        learning_rate=LR,
        max_grad_norm=0.0,
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        report_to="tensorboard",
    )
    transformers.Trainer(
        Net(), arguments, train_dataset=[{"x": x} for x in X], callbacks=[OfTransformers(**OPTIONS)]
    ).train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    fit_lightning(Path(sys.argv[1], "lightning"), Lit(), "ddp")
    fit_lightning(Path(sys.argv[1], "sharded"), Sharded(), ModelParallelStrategy(2, tensor_parallel_size=1))
    fit_transformers(Path(sys.argv[1], "transformers"))
