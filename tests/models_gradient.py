"""Chains, residuals and reuse; and where no gradient flows. See models.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from models_register import Built, case, mean_square, on
from torch import Tensor, nn

# --- Chains, residuals, reuse --------------------------------------------------------------------------


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


# --- Where no gradient flows ---------------------------------------------------------------------------


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


class VectorQuantizer(nn.Module):
    """The quantiser of a VQ-VAE: nearest code, with or without the straight-through estimator."""

    def __init__(self, codes: int, size: int, straight_through: bool) -> None:
        super().__init__()
        self.codebook = nn.Embedding(codes, size)
        self.straight_through = straight_through

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        nearest = torch.cdist(flat, self.codebook.weight).argmin(1)
        codes = self.codebook(nearest).view(z.shape[0], z.shape[2], z.shape[3], -1).permute(0, 3, 1, 2)
        loss = F.mse_loss(codes, z.detach()) + 0.25 * F.mse_loss(codes.detach(), z)
        if self.straight_through:
            codes = z + (codes - z).detach()
        return loss, codes, nearest


class VQVAE(nn.Module):
    def __init__(self, straight_through: bool) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3, 1, 1)
        )
        self.quantizer = VectorQuantizer(16, 4, straight_through)
        self.decoder = nn.Sequential(
            nn.Conv2d(4, 8, 3, 1, 1), nn.ReLU(True), nn.ConvTranspose2d(8, 3, 4, 2, 1)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss, quantized, codes = self.quantizer(self.encoder(x))
        return loss, self.decoder(quantized), codes


def vqvae(straight_through: bool) -> Built:
    x = torch.randn(2, 3, 8, 8)

    def run(model: nn.Module) -> Tensor:
        loss, reconstruction, _ = model(x)
        return loss + F.mse_loss(reconstruction, x)

    return VQVAE(straight_through), run


VQVAE_TOP = "in0 > encoder > quantizer > decoder > out1; quantizer > out0; quantizer ..> out2"


@case(
    {
        ".": VQVAE_TOP,
        "encoder": "in0 > 0 > 1 > 2 > out0",
        # connected: the loss, and the codes through z + (codes - z).detach()
        "quantizer": "in0 > out0; in0 > out1; in0 ..> out2; in0 ..> codebook > out0; codebook ..> out1",
    }
)
def vqvae_straight_through() -> Built:
    return vqvae(straight_through=True)


@case(
    {
        ".": VQVAE_TOP,
        # disconnected: the codes are looked up by integers
        "quantizer": "in0 > out0; in0 ..> out2; in0 ..> codebook > out0; codebook > out1",
    }
)
def vqvae_hard() -> Built:
    return vqvae(straight_through=False)


class HardQuantizer(nn.Module):
    """The disconnection at the top level itself."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 8)
        self.codebook = nn.Embedding(16, 8)
        self.decoder = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = self.encoder(x)
        nearest = torch.cdist(z, self.codebook.weight).argmin(-1)
        return self.decoder(self.codebook(nearest)), nearest, z


@case(
    {
        ".": """in0 > encoder > out2; encoder ..> codebook > decoder > out0
                encoder ..> out1""",
        "codebook": "in0 ..> out0",
    }
)
def hard_quantizer() -> Built:
    x = torch.randn(5, 8)

    def run(model: nn.Module) -> Tensor:
        decoded, _, z = model(x)
        return mean_square(decoded, z)

    return HardQuantizer(), run


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
    x = torch.randn(5, 4)

    def run(model: nn.Module) -> None:
        model(x)

    return model, run


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
    x = torch.randn(5, 4)

    def run(model: nn.Module) -> None:
        model(x)

    return TwoWays().requires_grad_(False), run


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
    x = torch.randn(5, 4)

    def run(model: nn.Module) -> None:
        model(x)

    return FrozenBackbone().requires_grad_(False), run


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
    x = torch.randn(5, 4)

    def run(model: nn.Module) -> None:
        model(x)

    return WithoutDerivative(), run


@case({".": "in0 ..> embed > 1 > out0", "embed": "in0 ..> out0"})
def embedding() -> Built:
    model = nn.Sequential()
    model.add_module("embed", nn.Embedding(10, 4))
    model.add_module("1", nn.Linear(4, 2))
    return model, on(torch.randint(10, (3, 5)))


@case({".": "in0 ..> 0 > 1 > out0"})
def embedding_bag() -> Built:
    return nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 2)), on(torch.randint(10, (3, 5)))


class MixtureOfExperts(nn.Module):
    """Routing by integers: which expert sees a sample is not differentiable, how much it counts is."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, slots = (chosen == number).nonzero(as_tuple=True)
            total.index_add_(0, rows, expert(x[rows]) * weights[rows, slots, None])
        return self.out(total)


@case(
    {
        ".": """in0 > gate > out > out0
                in0 > experts.0 > out; in0 > experts.1 > out; in0 > experts.2 > out
                gate ..> experts.0; gate ..> experts.1; gate ..> experts.2"""
    }
)
def mixture_of_experts() -> Built:
    return MixtureOfExperts(), on(torch.randn(16, 4))


class NumpyRoundTrip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        array = h.detach().numpy()
        return self.b(torch.from_numpy(array) + 1) + self.b(torch.tensor(h.tolist())) + h


@case({".": "in0 > a > out0; a ..> b > out0; b#1 > out0"})
def numpy_round_trip() -> Built:
    """Shared memory is followed; numbers that became Python objects are not."""
    return NumpyRoundTrip(), on(torch.randn(3, 4))
