"""Chains, residuals, reuse, custom functions. See models.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from models_register import Built, case, forward_only, mean_square, on
from torch import Tensor, nn


@case({".": "in0 > 0 > 1 > 2 > out0", "1": "in0 > out0"})
def chain() -> Built:
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2)), on(torch.randn(5, 10))


class BasicBlock(nn.Module):
    """The residual block of ResNet-18, in-place operations and all."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """ResNet-18 as torchvision writes it, narrower."""

    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self.stage(width, width, 1)
        self.layer2 = self.stage(width, 2 * width, 2)
        self.layer3 = self.stage(2 * width, 4 * width, 2)
        self.layer4 = self.stage(4 * width, 8 * width, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)

    @staticmethod
    def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


@case(
    {
        ".": "in0 > conv1 > bn1 > relu > maxpool > layer1 > layer2 > layer3 > layer4 > avgpool > fc > out0",
        "layer1": "in0 > 0 > 1 > out0",
        "layer1/0": "in0 > conv1 > bn1 > relu > conv2 > bn2 > relu#1 > out0; in0 > relu#1",
        "layer2/0": "in0 > conv1 > bn1 > relu > conv2 > bn2 > relu#1 > out0; in0 > downsample > relu#1",
        "layer1/0/relu": "in0 > out0",
    }
)
def resnet18() -> Built:
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(10, (4,))
    return ResNet18(), lambda model: F.cross_entropy(model(images), labels)


@case(
    {
        ".": "in0 > 0 > 1 > 1.0 > 3 > 1.0#1 > out0",
        "1": "in0 > 0 > 1 > out0",
    }
)
def reused_at_two_levels() -> Built:
    relu = nn.ReLU()
    inner = nn.Sequential(relu, nn.Linear(20, 20))
    # named_modules() lists the shared module once, under the first path
    model = nn.Sequential(nn.Linear(10, 20), inner, relu, nn.Linear(20, 2), relu)
    return model, on(torch.randn(5, 10))


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(self.a(x))


@case({".": "in0 > a > a#1 > out0", "a#1": "in0 > out0"})
def called_twice() -> Built:
    return CalledTwice(), on(torch.randn(3, 4))


class IdentityResidual(nn.Module):
    """`Identity` returns its argument itself: one object stands for both summands."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(10, 10)
        self.id = nn.Identity()
        self.id2 = nn.Identity()
        self.out = nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc(x)
        return self.out(h + self.id2(self.id(h)))


@case({".": "in0 > fc > id > id2 > out > out0; fc > out", "id": "in0 > out0"})
def identity_residual() -> Built:
    return IdentityResidual(), on(torch.randn(5, 10))


@case({".": "in0 > 0 > 1 > 2 > 3 > 4 > out0", "1": "in0 > out0", "2": "in0 > out0", "3": "in0 > out0"})
def pass_through_chain() -> Built:
    """Eval dropout, Identity and an empty Sequential all return the object they got."""
    model = nn.Sequential(
        nn.Linear(10, 10), nn.Dropout(0.5), nn.Identity(), nn.Sequential(), nn.Linear(10, 2)
    )
    model[1].eval()
    return model, on(torch.randn(5, 10))


class SeveralInputsAndOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.join = nn.Bilinear(4, 4, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, None, Tensor]:
        u, v = self.a(x), self.b(y)
        return u, self.join(u, v * 2), None, v + x


@case({".": "in0 > a > join > out1; in1 > b > join; a > out0; b > out2; in0 > out2"})
def several_inputs_and_outputs() -> Built:
    x, y = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)

    def run(model: nn.Module) -> Tensor:
        return mean_square(*(output for output in model(x, y) if output is not None))

    return SeveralInputsAndOutputs(), run


class DeadEnd(nn.Module):
    """A child whose result nobody uses, and an input that nobody does."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.unused(x)
        return self.used(x)


@case({".": "in0 > used > out0; in0 > unused"})
def dead_end() -> Built:
    return DeadEnd(), on(torch.randn(3, 4), torch.randn(3, 4))


class SquareAndMask(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        return x * x, y > 0

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, None]:
        return 2 * ctx.saved_tensors[0] * gradient, None


class RoundStraightThrough(torch.autograd.Function):
    """Rounds forward, hands the gradient through."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.round().long().float()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class ReturnsItsInput(torch.autograd.Function):
    """Gradient reversal."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class DoublesInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2).add_(y)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * gradient, gradient


class CustomFunctions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in "abcde":
            self.add_module(name, nn.Linear(4, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h, mask = SquareAndMask.apply(self.a(x), x)
        h = self.b(RoundStraightThrough.apply(h))
        h = self.c(ReturnsItsInput.apply(h))
        h = self.d(DoublesInPlace.apply(h.clone(), x))
        return self.e(h), mask


@case({".": "in0 > a > b > c > d > e > out0; in0 > b; in0 > d; in0 ..> out1"})
def custom_functions() -> Built:
    """To autograd a Function joins each tensor argument to each differentiable result."""
    x = torch.randn(5, 4)
    return CustomFunctions(), lambda model: mean_square(model(x)[0])


@case({".": "in0 > a > b > c > d > e > out0; in0 > b; in0 > d; in0 ..> out1"})
def custom_functions_in_a_frozen_model() -> Built:
    return CustomFunctions().requires_grad_(False), forward_only(torch.randn(5, 4))
