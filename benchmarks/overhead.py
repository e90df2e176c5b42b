"""What watching costs, as ratios of CPU time: logged and idle steps against steps without a watch.

    python benchmarks/overhead.py [--rounds 20] [--width 64]

Each model is compared with itself, so that the memory layout of a copy does not count: with
`log_freq=2` every other step is logged, and for idle steps the watch is put on and taken off again. A
step's time includes the background thread's work for it, and everything runs on one thread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from tensorboard_torchexplorer import ExplorerWriter

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from resnet18 import ResNet18

WARM_UP = 3  # logged steps before the clock counts, the first of which also traces the graph


def training(model: nn.Module, forward: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """One optimizer step of `model`, whose loss `forward` computes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        forward().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def resnet(width: int) -> tuple[nn.Module, Callable[[], None]]:
    model, images, labels = ResNet18(width), torch.randn(32, 1, 32, 32), torch.randint(10, (32,))
    return model, training(model, lambda: nn.functional.cross_entropy(model(images), labels))


def encoder() -> tuple[nn.Module, Callable[[], None]]:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 6), torch.randn(8, 64, 256)
    return model, training(model, lambda: model(x).square().mean())


def gpt() -> tuple[nn.Module, Callable[[], None]]:
    config = GPT2Config(
        vocab_size=256, n_positions=64, n_embd=256, n_layer=6, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model, tokens = GPT2LMHeadModel(config), torch.randint(256, (8, 64))
    return model, training(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def leaves() -> tuple[nn.Module, Callable[[], None]]:
    model, x = nn.Sequential(*(nn.Linear(16, 16) for _ in range(600))), torch.randn(8, 16)
    return model, training(model, lambda: model(x).square().mean())


def seconds(step: Callable[[], None], writer: ExplorerWriter) -> float:
    """CPU time of a step and of all that it leaves to the background."""
    start = time.process_time()
    step()
    writer.flush()
    return time.process_time() - start


def logged_against_idle(model: nn.Module, step: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Time of a logged step over that of an idle one, and bytes written per logged step."""
    with tempfile.TemporaryDirectory() as logdir, ExplorerWriter(logdir) as writer:
        writer.watch(model, log_freq=2)
        for _ in range(2 * WARM_UP):
            seconds(step, writer)
        (file,) = Path(logdir).iterdir()
        before = file.stat().st_size
        pairs = [(seconds(step, writer), seconds(step, writer)) for _ in range(rounds)]
        written = (file.stat().st_size - before) / rounds
    logged, idle = map(statistics.median, zip(*pairs, strict=True))
    return logged / idle, written


def idle_against_plain(model: nn.Module, step: Callable[[], None], rounds: int) -> float:
    """Time of an idle step of a watched model over that of the same model unwatched."""
    idle, plain = [], []
    with tempfile.TemporaryDirectory() as logdir, ExplorerWriter(logdir) as writer:
        for _ in range(rounds):
            with writer.watch(model, log_freq=1_000_000):
                seconds(step, writer)  # step 0 is always logged
                idle.append(min(seconds(step, writer) for _ in range(3)))
            plain.append(min(seconds(step, writer) for _ in range(3)))
    return statistics.median(idle) / statistics.median(plain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="pairs of steps per figure (default 20)")
    parser.add_argument(
        "--width", type=int, default=64, help="channels of the ResNet's first stage (default 64)"
    )
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    models = {
        "ResNet-18, batch 32, 32x32": resnet(options.width),
        "encoder, 6 layers, d = 256": encoder(),
        "GPT-2, 6 layers, d = 256": gpt(),
    }
    for name, (model, step) in models.items():
        ratio, written = logged_against_idle(model, step, options.rounds)
        print(f"{name:<28} logged step {ratio:5.2f}x   {written / 1024:6.1f} KiB", flush=True)
    print(f"{'600 leaf modules':<28} idle step   {idle_against_plain(*leaves(), options.rounds):5.2f}x")


if __name__ == "__main__":
    main()
