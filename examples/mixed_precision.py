"""Mixed precision: bfloat16 on a CPU, float16 with a gradient scaler on a GPU.

    python examples/mixed_precision.py

Tensors are recorded in the precision in which they were computed. What the scaler multiplies into
the loss is divided out of the gradients again, so that they can be compared from step to step.
"""

from __future__ import annotations

import torch
from command_line import command_line
from data import batches, digits
from torch import nn
from torch.utils.data import DataLoader

from tensorboard_torchexplorer import ExplorerWriter


def convolution(channels_in: int, channels: int) -> nn.Sequential:
    """Halves the image."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
    )


def main() -> None:
    options = command_line(__doc__, "mixed_precision", steps=400).parse_args()

    torch.manual_seed(0)
    device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.bfloat16)
    train, test = digits()
    loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    model = nn.Sequential(
        convolution(1, 32),
        convolution(32, 64),
        convolution(64, 128),
        nn.Flatten(),
        nn.Linear(128 * 4 * 4, 10),
    ).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    # bfloat16 has the range of float32 and needs no scaling: the disabled scaler passes all through.
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)

    with ExplorerWriter(options.logdir) as writer:
        writer.watch(model, log_freq=options.log_freq)
        for step, (images, labels) in enumerate(batches(loader, options.steps, "mixed_precision")):
            with torch.autocast(device, dtype):
                loss = criterion(model(images.to(device)), labels.to(device))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            writer.add_scalar("loss/train", loss.item(), step)

        model.eval()
        with torch.no_grad(), torch.autocast(device, dtype):
            images, labels = test[:]
            score = (model(images.to(device)).argmax(1).cpu() == labels).float().mean().item()
        writer.add_scalar("accuracy/test", score, options.steps)
    print(f"test accuracy {score:.1%}, computed in {dtype}")


if __name__ == "__main__":
    main()
