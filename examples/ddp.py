"""Two processes with DistributedDataParallel: the first one writes, and records hold the samples of both.

    python examples/ddp.py

starts itself twice by way of torchrun. `ranks="all"` sends what the second process samples through the store
that the process group was made with, in the background: no collective is added, and no step waits for it.
"""

from __future__ import annotations

import argparse
import os
import sys

import torch
import torch.distributed as dist
from command_line import command_line
from data import batches, digits
from torch import nn
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from tensorboard_torchexplorer import ExplorerWriter, unwatch_model, watch_model


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    torch.manual_seed(0)
    train, test = digits()
    loader = DataLoader(train, batch_size=16, sampler=DistributedSampler(train), drop_last=True)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5, stride=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 5, stride=2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(64 * 5 * 5, 10),
    )
    parallel = DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    writer = ExplorerWriter(options.logdir) if first else None
    watch_model(writer, parallel, log_freq=options.log_freq, ranks="all")
    for step, (images, labels) in enumerate(batches(loader, options.steps, f"rank {dist.get_rank()}")):
        loss = criterion(parallel(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if writer:
            writer.add_scalar("loss/train", loss.item(), step)
    unwatch_model(writer)
    if writer:
        writer.close()
        model.eval()
        with torch.no_grad():
            images, labels = test[:]
            score = (model(images).argmax(1) == labels).float().mean().item()
        print(f"test accuracy {score:.1%}")
    dist.destroy_process_group()


def main() -> None:
    options = command_line(__doc__, "ddp", steps=300).parse_args()
    if "RANK" in os.environ:  # set by torchrun
        train(options)
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun would do, with a warning
        torchrun(["--standalone", "--nproc-per-node", "2", __file__, *sys.argv[1:]])


if __name__ == "__main__":
    main()
