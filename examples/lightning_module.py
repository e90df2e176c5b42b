"""Lightning: one callback, and the fit's own TensorBoard logger holds the records.

    python examples/lightning_module.py

The graph is that of `training_step`: the batch goes in, and the modules that the step calls are its nodes.
The validation at the end of each epoch is a series beside that of the training; time is counted in epochs.
"""

from __future__ import annotations

import math

import lightning
import torch
from command_line import command_line
from data import digits
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tensorboard_torchexplorer.integrations.lightning import ExplorerCallback


class Classifier(lightning.LightningModule):
    """Images [batch, 1, 32, 32] to logits [batch, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 5, stride=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 5, stride=2),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        self.head = nn.Linear(64 * 5 * 5, 10)
        self.criterion = nn.CrossEntropyLoss()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        loss = self.criterion(self.head(self.features(images)), labels)
        self.log("loss/train", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        hits = self.head(self.features(images)).argmax(1) == labels
        self.log("accuracy/test", hits.float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    options = command_line(__doc__, "lightning_module", steps=300).parse_args()

    lightning.seed_everything(0)
    train, test = digits()
    loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    trainer = lightning.Trainer(
        max_steps=options.steps,
        max_epochs=math.ceil(options.steps / len(loader)),
        gradient_clip_val=1.0,
        logger=TensorBoardLogger(options.logdir, name=None, version=""),
        callbacks=[ExplorerCallback(log_freq=options.log_freq, epochs=True)],
        enable_checkpointing=False,
        log_every_n_steps=1,
    )
    model = Classifier()
    trainer.fit(model, loader, DataLoader(test, batch_size=len(test)))

    model.eval()
    with torch.no_grad():
        images, labels = test[:]
        score = (model.head(model.features(images)).argmax(1) == labels).float().mean().item()
    print(f"test accuracy {score:.1%}")


if __name__ == "__main__":
    main()
