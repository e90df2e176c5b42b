"""What arguments and results can be. See models.py."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from models_register import Built, case, mean_square, on
from torch import Tensor, nn


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

    def forward(
        self, x: Tensor, none: None, number: int, flag: bool, text: str, array: Any, z: Tensor
    ) -> Tensor:
        return self.l(x) * number + z


class PassesOddArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b = OddArguments()

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return self.b(x, None, 2, True, "mean", np.ones(3), z)


@case({".": "in0 > b > out0; in1 > b", "b": "in0 > l > out0; in1 > out0"})
def arguments_that_are_no_tensors() -> Built:
    return PassesOddArguments(), on(torch.randn(3, 4), torch.randn(3, 4))
