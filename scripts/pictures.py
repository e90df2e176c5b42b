"""Take the pictures of README and docs/ anew, in some minutes.

python scripts/pictures.py                  all of them
python scripts/pictures.py panel dead-relu  only these

Trains what they show, with TensorBoard on it, and lets frontend/pictures.mjs look. Needs what `make setup`
sets up, and Chromium (CHROMIUM=path, if it is not called chromium). docs/heat-maps.md speaks of what is to be
seen in them: read that page again afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

from tensorboard_torchexplorer import ExplorerWriter
from tensorboard_torchexplorer.serve import serve

ROOT = Path(__file__).resolve().parent.parent
STEPS = 200


def train(logdir: Path, model: nn.Module, width: int, lr: float) -> None:
    """`STEPS` of regression, all logged: random inputs [64, width] to four smooth functions of them."""
    data = torch.Generator().manual_seed(0)
    to = torch.randn(width, 4, generator=data) / width**0.5
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    with ExplorerWriter(logdir) as writer:
        writer.watch(model, log_freq=1)
        for _ in range(STEPS):
            x = torch.randn(64, width, generator=data)
            nn.functional.mse_loss(model(x), torch.sin(2 * x @ to)).backward()
            optimizer.step()
            optimizer.zero_grad()


def linear() -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            first=nn.Linear(16, 32),
            tanh=nn.Tanh(),
            second=nn.Linear(32, 32),
            relu=nn.ReLU(),
            last=nn.Linear(32, 4),
        )
    )


def vanishing() -> nn.Module:
    layers = [part for _ in range(8) for part in (nn.Linear(32, 32), nn.Sigmoid())]
    return nn.Sequential(
        OrderedDict(first=nn.Linear(32, 32), layers=nn.Sequential(*layers), last=nn.Linear(32, 4))
    )


def dying() -> nn.Module:
    return nn.Sequential(OrderedDict(first=nn.Linear(16, 64), relu=nn.ReLU(), last=nn.Linear(64, 4)))


SHOWN = {
    "panel": (linear, 16, 0.02),
    "vanishing": (vanishing, 32, 0.05),
    "dead-relu": (dying, 16, 1.0),
}


def main() -> None:
    wanted = sys.argv[1:] or ["screenshot", *SHOWN]
    unknown = set(wanted) - {"screenshot", *SHOWN}
    if unknown:
        sys.exit(f"pictures: {', '.join(unknown)} is none of screenshot, {', '.join(SHOWN)}")
    with tempfile.TemporaryDirectory() as folder:
        logdir = Path(folder)
        for name in wanted:
            if name in SHOWN:
                make, width, lr = SHOWN[name]
                torch.manual_seed(0)
                train(logdir / name, make(), width, lr)
            else:
                options = ["--steps", "160", "--log-freq", "2", "--logdir", str(logdir / name)]
                subprocess.run([sys.executable, str(ROOT / "examples" / "resnet18.py"), *options], check=True)
        with serve(logdir) as server:
            command = [
                "node",
                str(ROOT / "frontend" / "pictures.mjs"),
                server.url,
                str(ROOT / "docs"),
                *wanted,
            ]
            chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
            subprocess.run(command, env=os.environ | {"CHROMIUM": chromium}, check=True)


if __name__ == "__main__":
    main()
