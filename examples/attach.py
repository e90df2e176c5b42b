"""Naming a tensor inside a forward: attention weights that are no module's output.

    python examples/attach.py

Modules are recorded by themselves. `attach` adds any other tensor to the module whose forward is
running: its values and gradient norms appear there as one more output of the given name. It returns the
very same tensor, and does nothing while nobody watches.
"""

from __future__ import annotations

import torch
from command_line import command_line
from data import batches, digits
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tensorboard_torchexplorer import ExplorerWriter, attach


class Attention(nn.Module):
    """Self-attention with one head over [batch, places, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).mT / x.shape[-1] ** 0.5
        weights = attach(scores.softmax(-1), "weights")
        return weights @ self.value(x)


class PatchClassifier(nn.Module):
    """Images [batch, 1, 32, 32] to logits [batch, 10], over 4x4 patches of 8x8 pixels."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, kernel_size=8, stride=8)
        self.position = nn.Parameter(0.02 * torch.randn(16, width))
        self.attention = nn.ModuleList(Attention(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).mT + self.position
        for attention in self.attention:
            x = x + attention(x)
        return self.head(self.norm(x).mean(1))


def main() -> None:
    options = command_line(__doc__, "attach", steps=600).parse_args()

    torch.manual_seed(0)
    train, test = digits()
    loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    model = PatchClassifier()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    with ExplorerWriter(options.logdir) as writer:
        writer.watch(model, log_freq=options.log_freq)
        for step, (images, labels) in enumerate(batches(loader, options.steps, "attach")):
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            writer.add_scalar("loss/train", loss.item(), step)

        model.eval()
        with torch.no_grad():
            images, labels = test[:]
            score = (model(images).argmax(1) == labels).float().mean().item()
        writer.add_scalar("accuracy/test", score, options.steps)
    print(f"test accuracy {score:.1%}")


if __name__ == "__main__":
    main()
