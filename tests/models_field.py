"""Small models as people build and train them, of many fields; without hand-written edges.

`FIELD[name]()` gives a fresh model and a function that runs one forward of it and returns a loss. Always the
same weights and inputs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from models_register import Built, on, registering
from torch import Tensor, nn

FIELD: dict[str, Callable[[], Built]] = {}
model = registering(FIELD)


class MessagePassing(nn.Module):
    """Two rounds over the edges of a graph; messages are summed, or the largest is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.norm, self.update = nn.Linear(16, 8), nn.BatchNorm1d(8), nn.GRUCell(8, 8)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        for how in ("sum", "amax"):
            messages = self.message(torch.cat([x[source], x[target]], -1))
            total = torch.zeros_like(x)
            if how == "sum":
                total.index_add_(0, target, messages)
            else:
                total = total.scatter_reduce(0, target[:, None].expand_as(messages), messages, how)
            x = self.update(self.norm(total), x)
        return x


@model
def graph_network() -> Built:
    return MessagePassing(), on(torch.randn(6, 8), torch.randint(6, (2, 12)))


class TimedBlock(nn.Module):
    """Of a denoiser: in-place activations, scale and shift by the time."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(2, inputs), nn.Conv2d(inputs, outputs, 3, 1, 1)
        self.norm2, self.conv2 = nn.GroupNorm(2, outputs), nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.time = nn.Linear(8, 2 * outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv1(F.silu(self.norm1(x), inplace=True))
        scale, shift = self.time(time)[:, :, None, None].chunk(2, 1)
        hidden = self.norm2(hidden) * (1 + scale) + shift
        return self.conv2(F.silu(hidden, inplace=True)) + self.skip(x)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8))
        self.first, self.last = nn.Conv2d(3, 4, 3, 1, 1), nn.Conv2d(4, 3, 1)
        self.down = nn.ModuleList([TimedBlock(4, 8), TimedBlock(8, 8)])
        self.up = nn.ModuleList([TimedBlock(16, 8), TimedBlock(16, 4)])
        self.middle, self.pool, self.larger = TimedBlock(8, 8), nn.AvgPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        angles = step[:, None] * torch.exp(-math.log(1e4) * torch.arange(4) / 4)
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        x, kept = self.first(x), []
        for block in self.down:
            kept.append(block(x, time))
            x = self.pool(kept[-1])
        x = self.middle(x, time)
        for block in self.up:
            x = block(torch.cat([self.larger(x), kept.pop()], 1), time)
        return self.last(x)


@model
def diffusion() -> Built:
    images = torch.randn(2, 3, 8, 8)

    def run(model: nn.Module) -> Tensor:
        noise, step = torch.randn_like(images), torch.randint(1, 10, (2,))
        return F.mse_loss(model(images + noise * step.view(-1, 1, 1, 1) / 10, step), noise)

    return Denoiser(), run


class Radiance(nn.Module):
    """A radiance field: encoded points, in-place activations, colours summed along rays."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(27, 16), nn.Linear(43, 16)])
        self.density, self.colour = nn.Linear(16, 1), nn.Sequential(nn.Linear(19, 3), nn.Sigmoid())

    def forward(self, origins: Tensor, directions: Tensor, depths: Tensor) -> Tensor:
        points = origins[:, None] + directions[:, None] * depths[None, :, None]
        angles = (points[..., None] * 2.0 ** torch.arange(4)).flatten(-2)
        encoded = hidden = torch.cat([points, angles.sin(), angles.cos()], -1)
        for number, layer in enumerate(self.layers):
            hidden = F.relu_(layer(torch.cat([hidden, encoded], -1) if number else hidden))
        opaque = 1 - torch.exp(-F.softplus(self.density(hidden)[..., 0]))
        seen = torch.cumprod(torch.cat([torch.ones(len(origins), 1), 1 - opaque], -1), -1)[:, :-1]
        along = directions[:, None].expand(-1, len(depths), -1)
        return ((opaque * seen)[..., None] * self.colour(torch.cat([hidden, along], -1))).sum(1)


@model
def radiance_field() -> Built:
    return Radiance(), on(torch.randn(4, 3), torch.randn(4, 3), torch.linspace(0, 1, 5))


class Translator(nn.Module):
    """Attention over an encoded sequence, in a loop that now and then takes its own word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.encoder = nn.Embedding(10, 8), nn.GRU(8, 8, bidirectional=True, batch_first=True)
        self.bridge, self.cell = nn.Linear(16, 8), nn.LSTMCell(8, 8)
        self.score, self.out = nn.Bilinear(8, 16, 1), nn.Linear(24, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        encoded, last = self.encoder(self.words(tokens))
        hidden = self.bridge(torch.cat([last[0], last[1]], -1)).tanh()
        cell, word, results = torch.zeros_like(hidden), tokens[:, 0], []
        for step in range(3):
            hidden, cell = self.cell(self.words(word), (hidden, cell))
            asked = hidden[:, None].expand(-1, encoded.shape[1], -1).contiguous()
            context = (self.score(asked, encoded).softmax(1) * encoded).sum(1)
            results.append(self.out(torch.cat([hidden, context], -1)))
            word = results[-1].argmax(-1) if step % 2 else tokens[:, step]
        return torch.stack(results, 1)


@model
def translation_with_attention() -> Built:
    return Translator(), on(torch.randint(10, (3, 5)))


class Coupling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept, changed = x.chunk(2, -1)
        scale, shift = self.net(kept).chunk(2, -1)
        scale = scale.tanh()
        return torch.cat([changed * scale.exp() + shift, kept], -1), scale.sum(-1)


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(Coupling() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        volume = torch.zeros(len(x))
        for coupling in self.couplings:
            x, logarithm = coupling(x)
            volume += logarithm
        return (x.square().sum(-1) / 2 - volume).mean()


@model
def normalizing_flow() -> Built:
    x = torch.randn(6, 8)
    return Flow(), lambda model: model(x)


class SelfTaught(nn.Module):
    """A student, and a teacher that follows it; keys of earlier batches in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(True), nn.Linear(8, 4))
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(4, 12), dim=0))
        self.place = 0

    def forward(self, x: Tensor) -> Tensor:
        asked = F.normalize(self.student(x), dim=1)
        with torch.no_grad():
            for mine, followed in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                mine.mul_(0.9).add_(followed, alpha=0.1)
            keys = F.normalize(self.teacher(x + 0.1 * torch.randn_like(x)), dim=1)
        same = (asked * keys).sum(1, keepdim=True)
        logits = torch.cat([same, asked @ self.queue.clone()], 1)
        with torch.no_grad():
            self.queue[:, self.place : self.place + len(x)] = keys.T
            self.place = (self.place + len(x)) % 12
        return F.cross_entropy(logits / 0.1, torch.zeros(len(x), dtype=torch.long))


@model
def self_taught() -> Built:
    x = torch.randn(6, 8)
    return SelfTaught(), lambda model: model(x)


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.torso = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.policy, self.value = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[torch.distributions.Categorical, Tensor]:
        hidden = self.torso(x)
        return torch.distributions.Categorical(logits=self.policy(hidden)), self.value(hidden)[:, 0]


@model
def actor_critic() -> Built:
    seen, reward = torch.randn(6, 8), torch.randn(6)

    def run(model: nn.Module) -> Tensor:
        policy, value = model(seen)
        action = policy.sample()
        advantage = (reward - value).detach()
        return F.mse_loss(value, reward) - (policy.log_prob(action) * advantage + policy.entropy()).mean()

    return ActorCritic(), run


class Adapted(nn.Module):
    """A frozen layer with an adapter of low rank beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2 * self.up(self.down(x))


@model
def adapters_of_low_rank() -> Built:
    layers = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8)).requires_grad_(False)
    layers[0], layers[3] = Adapted(layers[0]), Adapted(layers[3])
    return layers, on(torch.randn(6, 8))


class Equilibrium(torch.autograd.Function):
    """The fixed point of a module, differentiated at the point and not along the way to it."""

    @staticmethod
    def forward(ctx: Any, cell: nn.Module, x: Tensor, *parameters: Tensor) -> Tensor:
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(4):
                z = cell(z, x)
        ctx.cell, ctx.parameters = cell, parameters
        ctx.save_for_backward(z, x)
        return z.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        z, x = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        with torch.enable_grad():
            again = ctx.cell(z, x)
        total = gradient
        for _ in range(3):
            total = gradient + torch.autograd.grad(again, z, total, retain_graph=True)[0]
        return None, *torch.autograd.grad(again, (x, *ctx.parameters), total)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(0.5 * self.linear(z) + x)


class DeepEquilibrium(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.cell, self.last = nn.Linear(8, 8), Cell(), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(Equilibrium.apply(self.cell, self.first(x), *self.cell.parameters()))


@model
def deep_equilibrium() -> Built:
    return DeepEquilibrium(), on(torch.randn(6, 8))


@model
def learning_to_learn() -> Built:
    """The loss of a model after a step of its own, which is differentiated, too."""
    x, y = torch.randn(6, 8), torch.randn(6, 2)

    def run(model: nn.Module) -> Tensor:
        start = dict(model.named_parameters())
        loss = F.mse_loss(torch.func.functional_call(model, start, (x,)), y)
        gradients = torch.autograd.grad(loss, list(start.values()), create_graph=True)
        moved = {name: p - 0.1 * g for (name, p), g in zip(start.items(), gradients, strict=True)}
        return F.mse_loss(torch.func.functional_call(model, moved, (x,)), y)

    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)), run
