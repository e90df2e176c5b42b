"""Small models, one difficulty each, with the edges that each of their levels must have.

Shared by all tests of the capture engine. `CASES[name].build()` gives a fresh model and a function
that runs one forward of it and returns a loss, or None where there is nothing to train. Always the
same weights and inputs.

Levels are written as chains, one per line or between semicolons, by the ids of `schema.Node`:

    in0 > fc > out0      a gradient path from the input to `fc`, and from `fc` to the output
    in0 ..> embed        values flow, no gradient can
    a ~> b   a .~> b     the same, through an attribute or a closure
    relu#1               the second call of `relu` within the level
    outside              where a tensor comes from that is neither argument nor result of a child
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

Run = Callable[[Any], Any]
Built = tuple[nn.Module, Run]


class Case(NamedTuple):
    """A model with what its levels must look like, by the id of the level's invocation."""

    build: Callable[[], Built]
    levels: dict[str, str]


CASES: dict[str, Case] = {}


def case(levels: dict[str, str]) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Register a model under the name of the function that builds it."""

    def register(function: Callable[[], Built]) -> Callable[[], Built]:
        def build() -> Built:
            torch.manual_seed(0)
            return function()

        CASES[function.__name__] = Case(build, levels)
        return build

    return register


def mean_square(*tensors: Tensor) -> Tensor:
    """A loss that every element of every tensor matters to."""
    total = torch.zeros(())
    for tensor in tensors:
        total = total + tensor.float().square().mean()
    return total


def on(*inputs: Any, **named: Any) -> Run:
    """Run the model on these inputs, which it must return one tensor for."""
    return lambda model: mean_square(model(*inputs, **named))


# --- Chains, residuals, reuse ------------------------------------------------------------------------


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


# --- Where no gradient flows -------------------------------------------------------------------------


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
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3, 1, 1))
        self.quantizer = VectorQuantizer(16, 4, straight_through)
        self.decoder = nn.Sequential(nn.Conv2d(4, 8, 3, 1, 1), nn.ReLU(True), nn.ConvTranspose2d(8, 3, 4, 2, 1))

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


class NoGradPart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.backbone(x * 2)
        return self.head(features)


@case({".": "in0 ..> backbone ..> head > out0", "backbone": "in0 ..> 0 ..> 1 ..> out0"})
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


# --- Attention, recurrence ---------------------------------------------------------------------------


@case(
    {
        ".": "in0 > layers.0 > layers.1 > out0; in1 ..> layers.0; in1 ..> layers.1",
        "layers.0": """in0 > self_attn > dropout1 > norm1 > linear1 > dropout > linear2 > dropout2 > norm2 > out0
                       in0 > norm1 > norm2; in1 > self_attn""",
        # query, key, value and the float mask
        "layers.0/self_attn": "in0 > out0; in1 > out0; in2 > out0; in3 > out0",
    }
)
def encoder_in_training() -> Built:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True
    return nn.TransformerEncoder(layer, 2), on(torch.randn(3, 5, 16), src_key_padding_mask=mask)


@case(
    {
        # padding is cut off before the first layer, as a nested tensor
        ".": "in0 ..> layers.0 ..> layers.1 ..> out0; in1 ..> layers.0",
        "layers.0": "in0 ..> out0",
    }
)
def encoder_fused_in_eval() -> Built:
    """One kernel does the work of a layer; its children are never called."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    x, mask = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True

    def run(model: nn.Module) -> None:
        with torch.no_grad():
            model(x, src_key_padding_mask=mask)

    return nn.TransformerEncoder(layer, 2).eval(), run


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        attended, weights = self.attention(x, context, context, need_weights=False)
        assert weights is None
        return self.norm(x + attended)


@case(
    {
        ".": "in0 > attention > norm > out0; in1 > attention; in0 > norm",
        "attention": "in0 > out0; in1 > out0; in2 > out0",
    }
)
def attention_without_weights() -> Built:
    return CrossAttention(), on(torch.randn(2, 3, 8), context=torch.randn(2, 4, 8))


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


@case({".": "in0 > attention > out0", "attention": "in0 > out0; in1 > out0; in2 > out0; in0 > out1; in1 > out1; in2 > out1"})
def one_tensor_three_arguments() -> Built:
    """One object is three inputs. The weights don't depend on the value, but it is the same object."""
    return SelfAttention(), on(torch.randn(2, 3, 8))


class PackedRecurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.rnn = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(x), lengths, batch_first=True, enforce_sorted=False
        )
        packed, (hidden, _) = self.rnn(packed)
        output, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        return self.head(output), hidden


@case({".": "in0 > embed > rnn > head > out0; rnn > out1; in1 ..> rnn"})
def lstm_on_a_packed_sequence() -> Built:
    x, lengths = torch.randn(3, 5, 4), torch.tensor([5, 2, 3])
    return PackedRecurrence(), lambda model: mean_square(*model(x, lengths))


class TwoLayers(nn.Module):
    """h feeds a head, and both states start the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        _, (hidden, cell) = self.rnn(x)
        output, _ = self.rnn(x.flip(1), (hidden, cell))
        return self.head(hidden[-1]) + output.mean()


@case(
    {
        ".": "in0 > rnn > rnn#1 > out0; in0 > rnn#1; rnn > head > out0",
        "rnn#1": "in0 > out0; in0 > out1; in0 > out2; in1 > out0; in1 > out1; in1 > out2; in2 > out0; in2 > out1; in2 > out2",
    }
)
def lstm_states() -> Built:
    return TwoLayers(), on(torch.randn(3, 5, 4))


class GRUCellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 4)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state


@case({".": "in0 > cell > cell#1 > cell#2 > out0; in0 > cell#1; in0 > cell#2"})
def gru_cell_in_a_loop() -> Built:
    return GRUCellLoop(), on(torch.randn(3, 3, 4))


class KeyValueCache(nn.Module):
    """Steps of a decoder: keys are kept in a buffer of the caller, written by slices."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(4, 4)
        self.read = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        cache = x.new_zeros(x.shape[0], 2, 4)
        cache[:, 0] = self.key(x)
        first = self.read(cache[:, :1])
        cache[:, 1] = self.key(first[:, 0])
        return self.read(cache).sum(1)


@case({".": "in0 > key > read > key#1 > read#1 > out0; key > read#1"})
def key_value_cache() -> Built:
    return KeyValueCache(), on(torch.randn(3, 4))


# --- Parameters --------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.hidden = nn.Linear(6, 6)
        self.out = nn.Linear(6, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.hidden(self.embed(tokens)))


@case({".": "in0 ..> embed > hidden > out > out0"})
def weight_tying() -> Built:
    tokens = torch.randint(10, (3, 4))
    return Tied(), lambda model: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


@case(
    {
        ".": "in0 > 0 > 1 > 2 > 3 > out0",
        "0": "in0 > out0; parametrizations.weight > out0",
        "0/parametrizations.weight": "0 > out0",
        "2": "in0 > out0; parametrizations.weight > out0",
        "3": "in0 > out0",
    }
)
def parametrized() -> Built:
    """New parametrizations are modules that run inside; the old kind runs before the module does."""
    with_warnings_off = nn.utils.spectral_norm(nn.Linear(6, 3))
    model = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(6, 6)),
        nn.ReLU(),
        parametrizations.weight_norm(nn.Linear(6, 6)),
        with_warnings_off,
    )
    return model, on(torch.randn(5, 6))


class ReturnsParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self) -> Tensor:
        return self.weight


class Prompt(nn.Module):
    """A child without inputs whose result is a leaf."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = ReturnsParameter()
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + self.prompt())


@case({".": "in0 > out > out0; prompt > out", "prompt": ""})
def module_that_returns_a_parameter() -> Built:
    return Prompt(), on(torch.randn(3, 4))


@case({".": "in0 > 0 > 1 > 2 > out0", "0": "in0 > out0"})
def lazy() -> Built:
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    return model, on(torch.randn(5, 3))


# --- Custom functions, views, in-place operations ----------------------------------------------------


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
    x = torch.randn(5, 4)

    def run(model: nn.Module) -> None:
        model(x)

    return CustomFunctions().requires_grad_(False), run


class Slices(nn.Module):
    """A result put together by writing to slices and views of an empty tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.c = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0], 8)
        out[:, :4] = self.a(x)
        right = out[:, 4:]
        right.copy_(self.b(x[:, [3, 2, 1, 0]]))
        out[:, 0].mul_(2.0)
        return self.c(out)


@case({".": "in0 > a > c > out0; in0 > b > c"})
def slices() -> Built:
    return Slices(), on(torch.randn(5, 4))


class WritesToItsArgument(nn.Module):
    """A child that overwrites a part of what it was given and returns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 2)

    def forward(self, target: Tensor, x: Tensor) -> None:
        target[:, :2] = self.l(x)


class FilledByChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.fill = WritesToItsArgument()
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        self.fill(h, x)
        return self.b(h)


@case({".": "in0 > a > fill > b > out0; in0 > fill; a > b", "fill": "in1 > l"})
def child_writes_to_its_argument() -> Built:
    """The part that was not written still stems from `a`."""
    return FilledByChild(), on(torch.randn(5, 4))


@case({".": "in0 > a > fill > b > out0; in0 > fill; a > b"})
def child_writes_to_its_argument_frozen() -> Built:
    x = torch.randn(5, 4)

    def run(model: nn.Module) -> None:
        model(x)

    return FilledByChild().requires_grad_(False), run


@case({".": "in0 > 0 > 1 > 2 > out0", "1": "in0 > out0"})
def inplace_on_a_view() -> Built:
    """On 3-D input, Linear returns a view of its matrix product."""
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)), on(torch.randn(2, 3, 4))


class FlattenedInPlace(nn.Module):
    """The convolution's result is modified through its flattened view."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.flatten = nn.Flatten()
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 4)
        self.conv2 = nn.Conv2d(2, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.conv(x)
        return self.head(self.relu(self.flatten(features))), self.conv2(features)


@case(
    {
        ".": """in0 > conv > flatten > relu > head > out0
                relu > conv2 > out1""",
        "relu": "in0 > out0",
    }
)
def flattened_in_place() -> Built:
    x = torch.randn(2, 1, 4, 4)
    return FlattenedInPlace(), lambda model: mean_square(*model(x))


class InplaceStatement(nn.Module):
    """The result of the in-place call is thrown away, its effect is not."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.relu = nn.ReLU(inplace=True)
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        self.relu(h)
        return self.b(h + x)


@case({".": "in0 > a > relu > b > out0; in0 > b"})
def inplace_statement() -> Built:
    return InplaceStatement(), on(torch.randn(3, 4))


class Chunks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out((self.norm(q) @ k.transpose(-1, -2)).softmax(-1) @ v)


@case({".": "in0 > qkv > norm > out > out0; qkv > out"})
def chunks_of_one_result() -> Built:
    return Chunks(), on(torch.randn(2, 3, 4))


class ViewOfFlattened(nn.Module):
    """Views of a pass-through view belong to it, not to whoever made the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.flatten = nn.Flatten()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.flatten(self.conv(x))[:, :4])


@case({".": "in0 > conv > flatten > head > out0"})
def view_of_a_view() -> Built:
    return ViewOfFlattened(), on(torch.randn(2, 1, 4, 4))


class DetachedThenChanged(nn.Module):
    """A detached view shares memory with what is changed afterwards: values flow, no gradient does."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.a(x)
        view = h.detach()
        h.add_(self.b(x))
        return self.c(view), h


@case({".": "in0 > a > out1; in0 > b > out1; a ..> c > out0; b ..> c"})
def detached_then_changed() -> Built:
    x = torch.randn(3, 4)
    return DetachedThenChanged(), lambda model: mean_square(*model(x))


class OutArgument(nn.Module):
    """One buffer serves two products in turn; what was in it before is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        buffer = torch.empty_like(x)
        torch.mul(self.a(x), 2, out=buffer)
        first = self.c(buffer)
        torch.mul(self.b(x), 2, out=buffer)
        return self.c(buffer) + first


@case({".": "in0 ..> a ..> c ..> out0; in0 ..> b ..> c#1 ..> out0"})
def out_argument() -> Built:
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> None:
        with torch.no_grad():
            model(x)

    return OutArgument(), run


class ReusedBatchNorm(nn.Module):
    """Running statistics are written by each call, but no result of this forward is made of them."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.a(x)) * self.norm(self.b(x))


@case({".": "in0 > a > norm > out0; in0 > b > norm#1 > out0", "norm": "in0 > out0"})
def reused_batch_norm() -> Built:
    return ReusedBatchNorm(), on(torch.randn(5, 4))


# --- Control flow ------------------------------------------------------------------------------------


class ReadsAnAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.stash: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.l(x + self.stash[0])


class PassesByAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.wrap = nn.Sequential(ReadsAnAttribute())
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.wrap[0].stash = [self.a(x) * 2]
        return self.c(self.wrap(x))


@case(
    {
        ".": "in0 > a ~> wrap > c > out0; in0 > wrap",
        "wrap": "in0 > 0 > out0; outside ~> 0",
        "wrap/0": "in0 > l > out0; outside ~> l",
    }
)
def passed_by_attribute() -> Built:
    return PassesByAttribute(), on(torch.randn(3, 4))


class LeavesAnAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.auxiliary = self.l(x).tanh()
        self.detached = self.auxiliary.detach() * 1
        return x * 2


class TakesFromAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.s = LeavesAnAttribute()
        self.c = nn.Linear(4, 4)
        self.d = nn.Linear(4, 4)
        self.e = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.s(x)
        return self.c(y) + self.d(self.s.auxiliary + 1) + self.e(self.s.detached)


@case(
    {
        ".": "in0 > s > c > out0; s ~> d > out0; s .~> e > out0",
        "s": "in0 > l; in0 > out0",
    }
)
def left_as_attribute() -> Built:
    return TakesFromAttribute(), on(torch.randn(3, 4))


class WritesABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.register_buffer("memory", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.memory[0] = self.l(x).mean(0)
        return x + 1


class ReadsTheBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.write = WritesABuffer()
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.write(x)
        return self.out(h + self.write.memory[0])


@case({".": "in0 > write > out > out0", "write": "in0 > out0; in0 ..> l"})
def buffer_written_by_child() -> Built:
    """The values in the buffer give no gradient, but the result of the same child does."""
    return ReadsTheBuffer(), on(torch.randn(3, 4))


class Closure(nn.Module):
    """A module that only holds a function, which reads a tensor of its surroundings."""

    def __init__(self) -> None:
        super().__init__()
        self.function: Callable[[Tensor], Tensor] = lambda x: x

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class CallsClosure(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.f = Closure()

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        h = self.a(x)
        self.f.function = lambda y: y * scale.float() + h.detach()
        return self.f(h)


@case({".": "in0 > a > f > out0; in1 .~> f", "f": "in0 > out0; outside .~> out0"})
def closure() -> Built:
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> Tensor:
        loss = mean_square(model(x, torch.tensor([1, 2, 3, 4])))
        model.f.function = lambda x: x  # or it would keep this step's tensors
        return loss

    return CallsClosure(), run


class Recursive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, depth: int = 2) -> Tensor:
        x = self.l(x)
        return self(x, depth - 1) + x if depth > 0 else x


@case(
    {
        "tree": "in0 > l > ^tree > out0; l > out0",
        "tree/^tree": "in0 > l > ^tree > out0; l > out0",
        "tree/^tree/^tree": "in0 > l > out0",
    }
)
def recursion() -> Built:
    model = nn.Sequential()
    model.add_module("tree", Recursive())
    return model, on(torch.randn(3, 4))


class Ping(nn.Module):
    """Calls its partner, which calls it again."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.partner: Any = None

    def forward(self, x: Tensor, left: int) -> Tensor:
        x = self.l(x)
        return self.partner(x, left - 1) if left else x


class MutualRecursion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ping = Ping()
        self.pong = Ping()
        # not registered, or a module would be its own descendant
        self.ping.__dict__["partner"] = self.pong
        self.pong.__dict__["partner"] = self.ping

    def forward(self, x: Tensor) -> Tensor:
        return self.ping(x, 2)


@case(
    {
        ".": "in0 > ping > out0",
        "ping": "in0 > l > ^pong > out0",
        "ping/^pong": "in0 > l > ^ping > out0",
        "ping/^pong/^ping": "in0 > l > out0",
    }
)
def mutual_recursion() -> Built:
    return MutualRecursion(), on(torch.randn(3, 4))


class CallsForwardDirectly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.block.forward(x))


@case({".": "in0 > block.0 > block.1 > out > out0"})
def forward_called_directly() -> Built:
    """The block itself can't be seen, but what it calls lands in the caller."""
    return CallsForwardDirectly(), on(torch.randn(3, 4))


class Branches(nn.Module):
    """One branch on odd forwards, the other on even ones."""

    def __init__(self) -> None:
        super().__init__()
        self.odd = nn.Linear(4, 4)
        self.even = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.forwards = 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += 1
        return self.odd(x) if self.forwards % 2 else self.even(x)


@case({".": "in0 > odd > out0"})
def branches() -> Built:
    return Branches(), on(torch.randn(3, 4))


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.heads = nn.ModuleDict({"left": nn.Linear(4, 2), "right": nn.Linear(4, 2)})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for layer in self.layers:
            x = layer(x)
        return self.heads["left"](x), self.heads["right"](x)


@case(
    {".": "in0 > layers.0 > layers.1 > heads.left > out0; layers.1 > heads.right > out1"}
)
def module_containers() -> Built:
    x = torch.randn(3, 4)
    return Containers(), lambda model: mean_square(*model(x))


class CatchesError(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bad = Raises()
        self.ok = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        try:
            x = self.bad(x)
        except ValueError:
            x = x * 2
        return self.ok(x)


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deeper = nn.Sequential(nn.Linear(4, 4), AlwaysRaises())

    def forward(self, x: Tensor) -> Tensor:
        return self.deeper(x)


class AlwaysRaises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("always")


@case({".": "in0 > bad; in0 > ok > out0", "bad": "in0 > deeper", "bad/deeper": "in0 > 0 > 1"})
def error_caught_inside() -> Built:
    return CatchesError(), on(torch.randn(3, 4))


class Wrapper(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


@case({".": "in0 > module > out0", "module": "in0 > 0 > 1 > out0"})
def wrapper() -> Built:
    return Wrapper(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), on(torch.randn(3, 4))


# --- Arguments and results ---------------------------------------------------------------------------


class NeedsKeywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, *, x: Tensor, mask: Tensor, mode: str = "mean") -> Tensor:
        return self.l(x) * mask


class KeywordsAtBothLevels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 4)
        self.block = NeedsKeywords()

    def forward(self, x: Tensor, mask: Tensor | None = None, extra: Tensor | None = None) -> Tensor:
        return self.block(x=x, mask=self.gate(mask).sigmoid(), mode="max")


@case({".": "in0 > block > out0; in1 > gate > block", "block": "in0 > l > out0; in1 > out0"})
def keyword_arguments() -> Built:
    return KeywordsAtBothLevels(), on(x=torch.randn(3, 4), extra=None, mask=torch.randn(3, 4))


@dataclasses.dataclass
class Packed:
    first: Tensor
    nested: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class FrozenResult:
    y: Tensor
    kind: str
    boxes: list[Tensor]


@dataclasses.dataclass
class SlotsResult:
    __slots__ = ("y", "z")
    y: Tensor
    z: Tensor


class NamedPair(NamedTuple):
    left: Tensor
    right: Tensor | None


class Nested(nn.Module):
    """Takes a dataclass with a dictionary of lists, and a keyword; returns a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, packed: Packed, *, scale: Tensor) -> dict[str, Any]:
        first, (second, number) = packed.nested["list"]
        return {"packed": Packed(self.l(packed.first) * scale + second, {}), "first": first * number}


class NestedArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = Nested()
        self.q = nn.Linear(4, 4)

    def forward(self, tensors: dict[str, Tensor], pair: list[Tensor]) -> dict[str, Any]:
        packed = Packed(tensors["x"], {"list": [pair[0], (tensors["y"], 3)]})
        result = self.p(packed, scale=pair[1])
        return {"o": self.q(result["packed"].first), "z": [result["first"]]}


@case(
    {
        ".": "in0 > p > q > out0; in1 > p; in2 > p; in3 > p; p > out1",
        "p": "in0 > l > out0; in2 > out0; in3 > out0; in1 > out1",
    }
)
def nested_containers() -> Built:
    x, y, u, v = (torch.randn(3, 4) for _ in range(4))

    def run(model: nn.Module) -> Tensor:
        result = model({"x": x, "y": y}, pair=[u, v])
        return mean_square(result["o"], *result["z"])

    return NestedArguments(), run


class OddResults(nn.Module):
    """Returns one kind of container after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, kind: str) -> Any:
        y = self.l(x)
        if kind == "frozen":
            return FrozenResult(y, "meta", [x * 2, y + 1])
        if kind == "slots":
            return SlotsResult(y, x * 2)
        if kind == "named":
            return NamedPair(y, None)
        return deque([y, x * 2])


class UsesOddResults(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.odd = OddResults()
        self.a = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        frozen = self.odd(x, "frozen")
        slots = self.odd(frozen.boxes[0], "slots")
        named = self.odd(slots.z, "named")
        items = self.odd(named.left, "deque")
        return self.a(items[1])


@case(
    {
        ".": "in0 > odd > odd#1 > odd#2 > odd#3 > a > out0",
        "odd": "in0 > l > out0; in0 > out1; l > out2",
        "odd#1": "in0 > l > out0; in0 > out1",
        "odd#2": "in0 > l > out0",
        "odd#3": "in0 > l > out0; in0 > out1",
    }
)
def results_in_odd_containers() -> Built:
    return UsesOddResults(), on(torch.randn(3, 4))


class ListArgument(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(8, 4)

    def forward(self, xs: Iterable[Tensor]) -> Tensor:
        return self.l(torch.cat(list(xs), -1))


class PassesLists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.join = ListArgument()

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        total = self.join([h, x]) + self.join((h, x)) + self.join(deque([h, x]))
        return total + self.join(t for t in (h, x))


@case(
    {
        # the tensors in a generator are only seen as they come out of it, inside
        ".": """in0 > a > join > out0; in0 > join; a > join#1 > out0; in0 > join#1
                a > join#2 > out0; in0 > join#2; a ~> join#3 > out0; in0 ~> join#3""",
        "join": "in0 > l > out0; in1 > l",
        "join#3": "outside ~> l > out0",
    }
)
def lists_as_arguments() -> Built:
    return PassesLists(), on(torch.randn(3, 4))


class FromGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, tensors: Iterator[Tensor]) -> Tensor:
        total = torch.zeros(())
        for tensor in tensors:
            total = total + self.l(tensor)
        return total


@case({".": "l > out0; l#1 > out0"})
def generator_as_root_input() -> Built:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    return FromGenerator(), lambda model: mean_square(model(t for t in (x, y)))


class OddArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, none: None, number: int, flag: bool, text: str, array: Any, z: Tensor) -> Tensor:
        return self.l(x) * number + z


class PassesOddArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b = OddArguments()

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        import numpy as np

        return self.b(x, None, 2, True, "mean", np.ones(3), z)


@case({".": "in0 > b > out0; in1 > b", "b": "in0 > l > out0; in1 > out0"})
def arguments_that_are_no_tensors() -> Built:
    return PassesOddArguments(), on(torch.randn(3, 4), torch.randn(3, 4))


# --- Other ways to run -------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.a = nn.Linear(6, 6)
        self.block = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.ReLU())
        self.b = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        h = checkpoint(lambda t: self.block(t) + t, h, use_reentrant=self.reentrant)
        h = checkpoint(self.block, h, use_reentrant=self.reentrant)
        return self.b(h)


CHECKPOINTED = {
    ".": "in0 > a > block > block#1 > b > out0; a > block#1",
    "block": "in0 > 0 > 1 > 2 > out0",
    "block/0": "in0 > out0",
}


@case(CHECKPOINTED)
def checkpoint_reentrant() -> Built:
    return Checkpointed(reentrant=True), on(torch.randn(5, 6))


@case(CHECKPOINTED)
def checkpoint_not_reentrant() -> Built:
    return Checkpointed(reentrant=False), on(torch.randn(5, 6))


class NestedCheckpoint(nn.Module):
    """A checkpoint within one, two tensors through both, one of them without a gradient inside."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.a = nn.Linear(6, 6)
        self.b = nn.Linear(6, 6)
        self.c = nn.Linear(6, 6)

    def inner(self, h: Tensor, x: Tensor) -> Tensor:
        return self.b(h) + x.detach()

    def outer(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = checkpoint(self.inner, h, x, use_reentrant=self.reentrant)
        return self.c(h), h * 2

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return checkpoint(self.outer, self.a(x), x, use_reentrant=self.reentrant)


NESTED_CHECKPOINT = {".": "in0 > a > b > c > out0; b > out1; in0 ..> c; in0 ..> out1"}


@case(NESTED_CHECKPOINT)
def nested_checkpoint_reentrant() -> Built:
    x = torch.randn(5, 6)
    return NestedCheckpoint(reentrant=True), lambda model: mean_square(*model(x))


@case(NESTED_CHECKPOINT)
def nested_checkpoint_not_reentrant() -> Built:
    x = torch.randn(5, 6)
    return NestedCheckpoint(reentrant=False), lambda model: mean_square(*model(x))


class InnerGradient(nn.Module):
    """Energy model: the forward differentiates a child's result, and that can be differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        energy = self.net(x)
        (force,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
        return self.c(force) + energy


@case({".": "in0 ..> net > out0; net ~> c > out0"})
def gradient_in_forward() -> Built:
    """The force is made from what the child has saved, not from its result."""
    return InnerGradient(), on(torch.randn(3, 4))


class FunctionalGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.func.grad(lambda h: self.net(h).square().sum())(self.a(x)))


@case({".": "in0 > a > net > c > out0", "net": "in0 > 0 > 1 > out0"})
def functional_gradient() -> Built:
    return FunctionalGradient(), on(torch.randn(3, 4))


class Vmapped(nn.Module):
    """A function, and a module with its children, mapped over samples."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.vmap(lambda row: row * row.sum())(self.a(x))
        return self.c(torch.vmap(self.b)(h))


@case({".": "in0 > a > b > c > out0", "b": "in0 > 0 > 1 > out0"})
def vmapped() -> Built:
    return Vmapped(), on(torch.randn(3, 4))


@case({".": "in0 > 0 > 1 > out0", "0": "in0 > out0"})
def functional_call() -> Built:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> Tensor:
        doubled = {name: parameter * 2 for name, parameter in model.named_parameters()}
        return mean_square(torch.func.functional_call(model, doubled, (x,)))

    return model, run


@case({".": "in0 > 0 > 1 > out0"})
def inside_a_transform() -> Built:
    """The whole forward runs under torch.func.grad, as functional training loops do it."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> None:
        def loss(parameters: dict[str, Tensor]) -> Tensor:
            return mean_square(torch.func.functional_call(model, parameters, (x,)))

        torch.func.grad(loss)({name: p.detach() for name, p in model.named_parameters()})

    return model, run


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        self.traced = torch.jit.trace(nn.Linear(4, 4), torch.randn(3, 4))
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.traced(self.scripted(self.a(x))))


@case({".": "in0 > a > scripted > traced > b > out0", "scripted": "in0 > out0", "traced": "in0 > out0"})
def scripted() -> Built:
    """Leaves: what runs inside has no Python hooks."""
    return Scripted(), on(torch.randn(3, 4))


@case({".": "in0 > 0 > 1 > 2 > 3 > out0", "0": "in0 > out0"})
def autocast() -> Built:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    x = torch.randn(5, 8)

    def run(model: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return mean_square(model(x))

    return model, run


class UserBackwardHook(nn.Module):
    """A full backward hook wraps arguments and results of the module in nodes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.split = SplitInTwo()
        self.split.register_full_backward_hook(lambda module, grad_input, grad_output: None)
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        u, v = self.split(self.a(x), y)
        return self.c(u), v


class SplitInTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.l(u), v * 2


@case(
    {
        ".": "in0 > a > split > c > out0; in1 > split > out1",
        "split": "in0 > l > out0; in1 > out1",
    }
)
def full_backward_hook_of_the_user() -> Built:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    return UserBackwardHook(), lambda model: mean_square(*model(x, y))


@case({".": "in0 ..> 0 ..> 1 ..> out0", "0": "in0 ..> out0"})
def inference_mode() -> Built:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)).eval()
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> None:
        with torch.inference_mode():
            model(x)

    return model, run


@case({".": "in0 > 0 > 1 > out0"})
def complex_numbers() -> Built:
    model = nn.Sequential(nn.Linear(4, 4, dtype=torch.cfloat), nn.Linear(4, 2, dtype=torch.cfloat))
    x = torch.randn(3, 4, dtype=torch.cfloat)
    return model, lambda model: model(x).abs().square().mean()


class ToFloat8(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float8_e4m3fn)


class FromFloat8(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float32) * 2


@case({".": "in0 > 0 > 1 > 2 > out0", "1": "in0 > out0"})
def float8() -> Built:
    return nn.Sequential(nn.Linear(4, 4), ToFloat8(), FromFloat8()), on(torch.randn(3, 4))


@case({".": "in0 > 0 > 1 > out0"})
def meta_tensors() -> Built:
    with torch.device("meta"):
        model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), torch.randn(3, 4)

    def run(model: nn.Module) -> None:
        model(x)

    return model, run


@case({".": "in0 > 0 > 1 > out0"})
def empty_batch() -> Built:
    x = torch.randn(0, 4)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), lambda model: model(x).sum()


class SparseProduct(nn.Module):
    """Graph convolution: a sparse adjacency matrix is an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, adjacency: Tensor, x: Tensor) -> Tensor:
        return torch.sparse.mm(adjacency, self.l(x))


@case({".": "in0 > 0 > out0; in1 > 0", "0": "in0 > out0; in1 > l > out0"})
def sparse_tensors() -> Built:
    model = Wrapper2(SparseProduct())
    adjacency = torch.eye(3).to_sparse()
    return model, on(adjacency, torch.randn(3, 4))


class Wrapper2(nn.Sequential):
    """A Sequential of one child that takes several arguments."""

    def forward(self, *args: Any) -> Any:
        return self[0](*args)


class QuantizeInside(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)


class Dequantize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.dequantize()


@case({".": "in0 > 0 > 1 ..> 2 > out0", "1": "in0 ..> out0", "2": "in0 ..> out0"})
def quantized_tensors() -> Built:
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> None:
        model(x)

    return nn.Sequential(nn.Linear(4, 4), QuantizeInside(), Dequantize()), run
