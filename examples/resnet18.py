"""A ResNet-18 as people write it, trained on handwritten digits.

    python examples/resnet18.py
    tensorboard --logdir runs        # then open the TorchExplorer tab

Activations work in place (`nn.ReLU(inplace=True)`) and so does the residual sum (`out += identity`);
neither needs any change in order to be watched.
"""

from __future__ import annotations

import torch
from command_line import command_line
from data import batches, digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tensorboard_torchexplorer import ExplorerWriter


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """The network of He et al. (2015), with a 3x3 stem because the images are small."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self._stage(width, width, stride=1)
        self.layer2 = self._stage(width, 2 * width, stride=2)
        self.layer3 = self._stage(2 * width, 4 * width, stride=2)
        self.layer4 = self._stage(4 * width, 8 * width, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)

    @staticmethod
    def _stage(channels_in: int, channels: int, stride: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(channels_in, channels, stride), BasicBlock(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


@torch.no_grad()
def accuracy(model: nn.Module, images: Dataset) -> float:
    """The share of `images` that the model classifies right."""
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(images, 99))
    model.train()
    return right / len(images)


def main() -> None:
    parser = command_line(__doc__, "resnet18", steps=400, log_freq=5)
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage (ImageNet: 64)")
    options = parser.parse_args()

    torch.manual_seed(0)
    train, test = digits()
    loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    model = ResNet18(options.width)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=options.steps)

    with ExplorerWriter(options.logdir) as writer:
        writer.watch(model, log_freq=options.log_freq)
        bar = batches(loader, options.steps, "resnet18")
        for step, (images, labels) in enumerate(bar):
            outputs = model(images)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()

            writer.add_scalar("loss/train", loss.item(), step)
            writer.add_scalar("accuracy/train", (outputs.argmax(1) == labels).float().mean().item(), step)
            bar.set_postfix(loss=f"{loss.item():.3f}")
            if (step + 1) % 50 == 0:
                writer.add_scalar("accuracy/test", accuracy(model, test), step)
        score = accuracy(model, test)
        writer.add_scalar("accuracy/test", score, options.steps)
    print(f"test accuracy {score:.1%}")


if __name__ == "__main__":
    main()
