"""Lightning modules small enough to train by hand, and fits of them; see test_integration_lightning.py."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its imports use what other packages have deprecated
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.loggers import TensorBoardLogger
    from torchmetrics import MeanAbsoluteError

from tensorboard_torchexplorer.integrations.lightning import ExplorerCallback

X = torch.randn(24, 8, generator=torch.Generator().manual_seed(1))
Y = torch.randn(24, 3, generator=torch.Generator().manual_seed(2))
BATCH, LR, CLIP = 4, 0.1, 0.05


class Lit(lightning.LightningModule):
    """Calls its network directly in its steps, as most do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        self.criterion = nn.MSELoss()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.criterion(self.net(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("validation", self.criterion(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=LR)


class Forward(Lit):
    """Goes by its own forward."""

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        return self.criterion(self(batch[0]), batch[1])


class OneArgument(Lit):
    def training_step(self, batch):
        return self.criterion(self.net(batch[0]), batch[1])


class Measured(Lit):
    """With a metric among its children, whose hash changes with its state."""

    def __init__(self) -> None:
        super().__init__()
        self.error = MeanAbsoluteError()

    def training_step(self, batch, batch_idx):
        out = self.net(batch[0])
        self.error(out, batch[1])
        self.log("error", self.error)
        return self.criterion(out, batch[1])


class Gan(lightning.LightningModule):
    """Two optimizers, by hand; the critic steps twice as often."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.critic = nn.Linear(8, 3), nn.Linear(3, 1)
        self.judge = nn.Identity()

    def training_step(self, batch, batch_idx):
        for_maker, for_critic = self.optimizers()
        for _ in range(2):
            for_critic.zero_grad()
            self.manual_backward(
                self.critic(batch[1]).mean() - self.critic(self.maker(batch[0]).detach()).mean()
            )
            for_critic.step()
        for_maker.zero_grad()
        self.manual_backward(self.critic(self.maker(batch[0])).mean())
        for_maker.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.maker.parameters(), lr=LR), torch.optim.SGD(
            self.critic.parameters(), lr=LR
        )


def loader() -> DataLoader:
    return DataLoader(TensorDataset(X, Y), batch_size=BATCH)


def trainer(folder, *callbacks, **options):
    options = {"max_epochs": 1, "logger": TensorBoardLogger(folder, name=None, version=""), **options}
    return lightning.Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        **options,
    )


def fit(folder, model=None, callback=None, validate=False, ckpt_path=None, **options):
    """A fit with all recorded; the trainer."""
    callback = callback or ExplorerCallback(log_freq=1, sample_n=None)
    made = trainer(folder, callback, **options)
    made.fit(Lit() if model is None else model, loader(), loader() if validate else None, ckpt_path=ckpt_path)
    return made
