"""Models to train, and tools that watch them, behind one face each.

A *subject* watches a model: `start(model)` once, `after_backward(model, step)` in each logged step where
the tool wants to be called, `settle()` until all it does in the background is done, `stop()`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Loss = Callable[[nn.Module], Tensor]


# --- models -------------------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int, inplace: bool) -> None:
        super().__init__()
        self.inplace = inplace
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=inplace)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.inplace:
            out += identity
        else:
            out = out + identity
        return self.relu(out)


class ResNet18(nn.Module):
    """With the stem for ImageNet and in-place activations, unless a tool can't take those."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(64), nn.ReLU(inplace=inplace)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages = []
        for channels_in, channels, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
            first = BasicBlock(channels_in, channels, stride, inplace)
            stages.append(nn.Sequential(first, BasicBlock(channels, channels, 1, inplace)))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet18(inplace: bool = True) -> tuple[nn.Module, Loss]:
    x, y = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    return ResNet18(inplace), lambda model: F.cross_entropy(model(x), y)


def encoder(inplace: bool = True) -> tuple[nn.Module, Loss]:
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, dropout=0.1)
    x = torch.randn(16, 64, 256)
    return nn.TransformerEncoder(layer, 6), lambda model: model(x).square().mean()


def gpt2(inplace: bool = True) -> tuple[nn.Module, Loss]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=6, n_embd=256, n_head=8, vocab_size=512, n_positions=128)
    config.bos_token_id = config.eos_token_id = 0
    ids = torch.randint(512, (8, 64))
    return GPT2LMHeadModel(config), lambda model: model(input_ids=ids, labels=ids).loss


class Unit(nn.Module):
    """Three leaf modules, and a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(width, width), nn.LayerNorm(width), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(self.norm(self.linear(x)))


def many_modules(units: int = 200) -> tuple[nn.Module, Loss]:
    """600 leaf modules of little work, 3,000 series."""
    x = torch.randn(4, 16)
    return nn.Sequential(*(Unit(16) for _ in range(units))), lambda model: model(x).square().mean()


MODELS = {"ResNet18, batch 32": resnet18, "encoder, 6 x 256": encoder, "GPT-2, 6 x 256": gpt2}


# --- subjects -----------------------------------------------------------------------------------------


class Plain:
    """Nobody watches."""

    name = "plain"
    inplace = True

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()

    def start(self, model: nn.Module) -> None: ...

    def after_backward(self, model: nn.Module, step: int) -> None: ...

    def settle(self) -> None: ...

    def stop(self) -> None:
        self.folder.cleanup()

    def bytes(self) -> int:
        """Size of all that was written."""
        return sum(path.stat().st_size for path in Path(self.folder.name).rglob("*") if path.is_file())


class Scalars(Plain):
    """TensorBoard's own writer, with one scalar a step: what a training that logs has anyway."""

    name = "SummaryWriter, a scalar"

    def start(self, model: nn.Module) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(self.folder.name)

    def after_backward(self, model: nn.Module, step: int) -> None:
        self.writer.add_scalar("step", step, step)

    def stop(self) -> None:
        self.writer.close()
        super().stop()


class Explorer(Plain):
    """This package, all four kinds, at every step."""

    name = "torchexplorer tab"
    options: ClassVar[dict[str, Any]] = {"log_freq": 1}

    def start(self, model: nn.Module) -> None:
        from tensorboard_torchexplorer import ExplorerWriter

        self.writer = ExplorerWriter(self.folder.name)
        self.watch = self.writer.watch(model, **self.options)

    def settle(self) -> None:
        self.writer.flush()

    def stop(self) -> None:
        self.writer.close()
        if self.watch.faults.list():
            raise RuntimeError(f"{self.name}: {self.watch.faults.list()}")
        super().stop()


class ExplorerExact(Explorer):
    """The same with exact mean, std and zeros."""

    name = "the same, exact=True"
    options: ClassVar[dict[str, Any]] = {"log_freq": 1, "exact": True}


class Idle(Explorer):
    """This package between logged steps."""

    name = "torchexplorer tab"
    options: ClassVar[dict[str, Any]] = {"log_freq": 10**9}


class Original(Plain):
    """torchexplorer 1.1.2 without a backend: it can't take in-place operations."""

    name = "torchexplorer 1.1.2"
    inplace = False
    log_freq = 1

    def start(self, model: nn.Module) -> None:
        import torchexplorer

        torchexplorer.watch(
            model, log_freq=self.log_freq, log=["io", "io_grad", "params", "params_grad"], backend="none"
        )


class OriginalIdle(Original):
    log_freq = 10**9


class Wandb(Plain):
    """wandb.watch(log="all"), offline: parameters and their gradients only."""

    name = 'wandb.watch("all")'
    log_freq = 1

    def start(self, model: nn.Module) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        self.run = wandb.init(mode="offline", dir=self.folder.name, project="bench")
        wandb.watch(model, log="all", log_freq=self.log_freq)

    def after_backward(self, model: nn.Module, step: int) -> None:
        self.run.log({"step": step})

    def stop(self) -> None:
        self.run.finish()
        super().stop()


class WandbIdle(Wandb):
    log_freq = 10**9

    def after_backward(self, model: nn.Module, step: int) -> None: ...


class ByHand(Plain):
    """SummaryWriter.add_histogram on every parameter, gradient and activation."""

    name = "add_histogram"

    def start(self, model: nn.Module) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(self.folder.name)
        self.step = 0
        for path, module in model.named_modules():
            module.register_forward_hook(self._hook(path or "root"))

    def _hook(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, result: Any) -> None:
            if isinstance(result, Tensor):
                self.writer.add_histogram(f"activations/{path}", result.detach(), self.step)

        return hook

    def after_backward(self, model: nn.Module, step: int) -> None:
        self.step = step
        for name, parameter in model.named_parameters():
            self.writer.add_histogram(f"parameters/{name}", parameter, step)
            if parameter.grad is not None:
                self.writer.add_histogram(f"gradients/{name}", parameter.grad, step)

    def settle(self) -> None:
        self.writer.flush()

    def stop(self) -> None:
        self.writer.close()
        super().stop()
