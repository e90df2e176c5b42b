"""Tensors that pass by attributes, recursion, branches, errors. See models.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from models_register import Built, case, mean_square, on
from torch import Tensor, nn


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


class WritesThroughAlias(nn.Module):
    """Writes to one attribute and reads another, which shares its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.alias.add_(self.l(x))
        return self.original * 2


class SharesMemory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.s = WritesThroughAlias()

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        self.s.original, self.s.alias = h, h.detach()
        result = self.s(x)
        self.s.original = self.s.alias = None  # or it would keep this step's tensors
        return result


@case(
    {
        ".": "in0 > a ~> s > out0; in0 > s",
        "s": "in0 > l ..> out0; outside ~> out0",
    }
)
def written_through_another_attribute() -> Built:
    return SharesMemory(), on(torch.randn(3, 4))


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
        self.both = nn.Linear(4, 4)
        self.buffer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.write(x)
        return self.both(h + self.write.memory[0]) + self.buffer(self.write.memory[:1])


@case(
    {
        ".": "in0 > write > both > out0; write .~> buffer > out0",
        "write": "in0 > out0; in0 ..> l",
    }
)
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


@case({".": "in0 > layers.0 > layers.1 > heads.left > out0; layers.1 > heads.right > out1"})
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
