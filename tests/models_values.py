"""Small models whose tensors are hard: odd dtypes, layouts, subclasses, values, and sources of chance.

Beside models.py, which is about structure. `VALUES[name]()` gives a fresh model and a function that runs one
forward of it and returns a loss, or None where there is nothing to train. Always the same weights and
inputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from models_register import Built, mean_square, on, registering
from torch import Tensor, nn

VALUES: dict[str, Callable[[], Built]] = {}
model = registering(VALUES)


def small(dtype: torch.dtype) -> Built:
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to(dtype)
    return model, on(torch.randn(4, 6, dtype=dtype))


@model
def bfloat16() -> Built:
    return small(torch.bfloat16)


@model
def float16() -> Built:
    return small(torch.float16)


@model
def float64() -> Built:
    return small(torch.float64)


class Beyond(nn.Module):
    """Values and gradients that float32 can't hold."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3, dtype=torch.float64), nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x) * 1e200) * 1e-200


@model
def float64_beyond_float32() -> Built:
    x = torch.randn(4, 3, dtype=torch.float64)
    return Beyond(), lambda model: model(x).square().mean()


class Mixed(nn.Module):
    """Bytes in; booleans, bytes and numbers of every whole dtype on the way; half precision out."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.mask, self.rank = ToFloat(), Above(), Rank()
        self.wide, self.head = Wide(), nn.Linear(6, 3)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.bytes(image)
        return self.head(x * self.mask(x)), self.wide(self.rank(x))


class ToFloat(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image.float() / 255


class Above(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x > 0.5


class Rank(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        order = x.argsort(-1)
        return order, order.int(), order.to(torch.int16)


class Wide(nn.Module):
    def forward(self, ranks: tuple[Tensor, ...]) -> Tensor:
        return ranks[0] + (1 << 60) + ranks[1] + ranks[2]


@model
def whole_numbers() -> Built:
    image = torch.randint(256, (4, 6), dtype=torch.uint8)
    return Mixed(), lambda model: mean_square(model(image)[0])


class Unsigned(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        whole = (x.abs() * 1e9).long()
        return [whole.to(dtype) for dtype in (torch.uint16, torch.uint32, torch.uint64, torch.int8)]


@model
def unsigned_numbers() -> Built:
    x = torch.randn(4, 6)

    def run(model: nn.Module) -> None:
        model(x)

    return nn.Sequential(nn.Linear(6, 6), Unsigned()), run


class EveryFloat8(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        names = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
        return [x.detach().to(getattr(torch, name)) for name in names if hasattr(torch, name)]


@model
def float8_of_every_kind() -> Built:
    x = torch.randn(4, 6)

    def run(model: nn.Module) -> None:
        model(x)

    return nn.Sequential(nn.Linear(6, 6), EveryFloat8()), run


class Fourier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, dtype=torch.cfloat))
        self.turn, self.out = Conjugate(), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.fft.irfft(self.turn(torch.fft.rfft(x) * self.weight), 8))


class Conjugate(nn.Module):
    """Lazy conjugation, and a real view of it that is lazily negated."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.conj()
        return y * y.imag.sum()


@model
def complex_in_the_middle() -> Built:
    return Fourier(), on(torch.randn(4, 8))


@model
def complex128() -> Built:
    model = nn.Linear(4, 4, dtype=torch.cdouble)
    x = torch.randn(3, 4, dtype=torch.cdouble)
    return model, lambda model: model(x).abs().square().mean()


@model
def half_of_autocast_with_a_scaled_loss() -> Built:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Flatten(), nn.Linear(144, 2)
    )
    x = torch.randn(2, 3, 8, 8)

    def run(model: nn.Module) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return mean_square(model(x)) * 1024

    return model, run


class Scalar(nn.Module):
    """Tensors without dimensions in and out, and one of one element."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(2.0))
        self.one = nn.Linear(1, 1)
        self.look = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.one(self.look(x * self.gain)[None])[0]


@model
def zero_dimensions() -> Built:
    return Scalar(), on(torch.tensor(3.0))


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name, value in (("zeros", 0.0), ("huge", 1e6), ("tiny", 1e-30)):
            layer = nn.Linear(4, 4)
            nn.init.constant_(layer.weight, value)
            nn.init.constant_(layer.bias, value)
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.zeros(x) + self.huge(x) + self.tiny(x)


@model
def constants() -> Built:
    return Constants(), on(torch.ones(3, 4))


class Broken(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x) * self.value)


def broken(value: float) -> Built:
    return Broken(value), on(torch.randn(3, 4))


@model
def nan_everywhere() -> Built:
    return broken(float("nan"))


@model
def infinite_everywhere() -> Built:
    return broken(float("inf"))


class StochasticDepth(nn.Module):
    """Draws from the streams of Python, NumPy and torch, and skips layers by them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if random.random() < 0.7:
                x = self.drop(layer(x)) + float(np.random.rand())
            x = x + 0.1 * torch.randn_like(x)
        return x


@model
def stochastic_depth() -> Built:
    return StochasticDepth(), on(torch.randn(4, 6))


@model
def recurrent_dropout() -> Built:
    model = nn.GRU(6, 5, num_layers=3, dropout=0.4, bidirectional=True)
    x = torch.randn(7, 2, 6)
    return model, lambda model: mean_square(*model(x))


class Augmenting(nn.Module):
    """Noise by a generator of its own, kept on the module."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + torch.randn(x.shape, generator=self.generator))


@model
def own_generator() -> Built:
    return Augmenting(), on(torch.randn(4, 6))


@model
def gumbel_and_variational() -> Built:
    return Variational(), on(torch.randn(4, 6))


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.choose, self.decode = nn.Linear(6, 8), nn.Linear(6, 4), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        mean, logvar = self.encode(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (logvar / 2).exp()
        return self.decode(z * F.gumbel_softmax(self.choose(x), hard=True)) - x
