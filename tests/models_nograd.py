"""Where no gradient flows. See models.py."""

from __future__ import annotations

from typing import Any

import torch
from models_register import Built, case, forward_only, on
from torch import Tensor, nn


class RoundedInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(20, 20)

    def forward(self, x: Tensor) -> Tensor:
        return torch.round(self.fc(x)).long().float()


class NonDifferentiableChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(10, 20)
        self.rounded = RoundedInside()
        self.fc2 = nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.fc1(x)
        return self.fc2(self.rounded(skip) + skip)


@case(
    {
        ".": "in0 > fc1 > rounded > fc2 > out0; fc1 > fc2",
        "rounded": "in0 > fc ..> out0",
    }
)
def non_differentiable_child() -> Built:
    """Each level has its own sources: outside, the child's result is one like any other."""
    return NonDifferentiableChild(), on(torch.randn(5, 10))


class Detach(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        return self.b(h.detach()) + self.c(h * (h > 0) + torch.softmax(h, -1).detach())


@case({".": "in0 > a > c > out0; a ..> b > out0"})
def detach() -> Built:
    return Detach(), on(torch.randn(5, 4))


@case({".": "in0 > a > c > out0; a ..> b > out0"})
def detach_in_a_frozen_model() -> Built:
    """Nothing requires a gradient, so only the operators themselves tell what would block one."""
    model = Detach().requires_grad_(False)
    return model, forward_only(torch.randn(5, 4))


class TwoWays(nn.Module):
    """Both with and without a gradient from one child to another, in either order."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Bilinear(4, 4, 4)
        self.c = nn.Bilinear(4, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        return self.b(h, h.detach()) + self.c(h.detach(), h)


@case({".": "in0 > a > b > out0; a > c > out0"})
def two_ways_from_child_to_child() -> Built:
    return TwoWays().requires_grad_(False), forward_only(torch.randn(5, 4))


class NoGradPart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.backbone = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        with torch.no_grad():
            features = self.backbone(h)
        return self.head(features)


@case({".": "in0 > stem ..> backbone ..> head > out0", "backbone": "in0 ..> 0 ..> 1 ..> out0"})
def no_grad_part() -> Built:
    return NoGradPart(), on(torch.randn(5, 4))


class EnableGradInside(nn.Module):
    """Gradients switched on again within a region without."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    @torch.enable_grad()
    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


@case({".": "in0 ..> 0 > out0", "0": "in0 > a > b > out0"})
def enable_grad_inside_no_grad() -> Built:
    x = torch.randn(5, 4)

    def run(model: nn.Module) -> None:
        with torch.no_grad():
            model(x)

    return nn.Sequential(EnableGradInside()), run


class FrozenBackbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).requires_grad_(False)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x / 2) * 3)


@case(
    {
        ".": "in0 > backbone > head > out0",
        "backbone": "in0 > 0 > 1 > out0",
        "backbone/0": "in0 > out0",
    }
)
def frozen_backbone() -> Built:
    return FrozenBackbone(), on(torch.randn(5, 4))


@case({".": "in0 > backbone > head > out0", "backbone": "in0 > 0 > 1 > out0"})
def frozen_whole() -> Built:
    """Drawn as if everything could be trained: what is frozen is a matter of the port."""
    return FrozenBackbone().requires_grad_(False), forward_only(torch.randn(5, 4))


class MarkedNonDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        doubled, shifted = x * 2, x + 1
        ctx.mark_non_differentiable(shifted)
        return doubled, shifted

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Tensor:
        return 2 * gradient


class ZeroAndNoGradients(nn.Module):
    """Operators whose gradient is zero are differentiable, those that have none are not."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        names = "marked signed drawn counted floored zeros data stepped looked_up"
        self.sinks = nn.ModuleDict({name: nn.Linear(4, 4) for name in names.split()})

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        doubled, shifted = MarkedNonDifferentiable.apply(h)
        values = {
            "marked": shifted,
            "signed": torch.sign(h),
            "drawn": torch.bernoulli(h.sigmoid()),
            "counted": torch.histc(h.detach(), 4)[None],
            "floored": torch.floor(h),
            "zeros": torch.zeros_like(h),
            "data": h.data.clone(),
            "stepped": torch.heaviside(h, torch.ones(())).detach(),
            "looked_up": torch.arange(20.0).view(5, 4)[h.argmax(-1)],
        }
        return sum((self.sinks[name](value) for name, value in values.items()), doubled)


@case(
    {
        ".": """in0 > a > out0; a > sinks.signed; a > sinks.drawn; a > sinks.floored
                a ..> sinks.marked; a ..> sinks.counted; a ..> sinks.data; a ..> sinks.stepped
                a ..> sinks.looked_up
                sinks.marked > out0; sinks.signed > out0; sinks.drawn > out0; sinks.counted > out0
                sinks.floored > out0; sinks.zeros > out0; sinks.data > out0; sinks.stepped > out0
                sinks.looked_up > out0"""
    }
)
def zero_and_no_gradients() -> Built:
    return ZeroAndNoGradients(), on(torch.randn(5, 4))


class WithoutDerivative(nn.Module):
    """The operator has a node in the graph, but one that raises as soon as a gradient reaches it."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        binned = torch.bincount(torch.arange(5) % 4, self.a(x)[:, 0], minlength=4)
        return self.b(binned.float())


@case({".": "in0 > a ..> b > out0"})
def operator_without_derivative() -> Built:
    return WithoutDerivative(), forward_only(torch.randn(5, 4))
