"""Whatever `forward` is: decorated, partial, static, replaced while watched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from cases import Lambda, X, squared, train
from recording import assert_row_holds
from torch import Tensor, nn


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def anonymous(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.l(x) * scale


class Decorated(Plain):
    @decorated
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.l(x) * scale


class Anonymous(Plain):
    @anonymous
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.l(x) * scale


class Star(Plain):
    def forward(self, x: Tensor, *others: Tensor, **options: Tensor) -> Tensor:
        return self.l(x) * others[0]


class OnlyByPosition(Plain):
    def forward(self, x: Tensor, scale: Tensor, /) -> Tensor:
        return self.l(x) * scale


class Partial(Plain):
    def _forward(self, flag: bool, x: Tensor, scale: Tensor) -> Tensor:
        return self.l(x) * scale

    forward = functools.partialmethod(_forward, True)


class Static(Plain):
    @staticmethod
    def forward(x: Tensor, scale: Tensor) -> Tensor:
        return x * scale


class FromClass(Plain):
    @classmethod
    def forward(cls, x: Tensor, scale: Tensor) -> Tensor:
        return x * scale


def bound_on_the_instance() -> nn.Module:
    """As Accelerate's hooks do it: `module.forward` is a wrapper around the old one."""
    module = Plain()
    old = module.forward

    @functools.wraps(old)
    def new(*args: Any, **kwargs: Any) -> Any:
        return old(*args, **kwargs)

    module.forward = new
    return module


def partial_on_the_instance() -> nn.Module:
    module = Plain()
    module.forward = functools.partial(module.forward)
    return module


FORWARDS: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "plain": (Plain, ["x", "scale"]),
    "decorated": (Decorated, ["x", "scale"]),
    "decorated without wraps": (Anonymous, ["args[0]", "args[1]"]),
    "star": (Star, ["x", "others[0]"]),
    "positional only": (OnlyByPosition, ["x", "scale"]),
    "partial method": (Partial, ["x", "scale"]),
    "static": (Static, ["x", "scale"]),
    "class method": (FromClass, ["x", "scale"]),
    "bound on the instance": (bound_on_the_instance, ["x", "scale"]),
    "partial on the instance": (partial_on_the_instance, ["x", "scale"]),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_arguments_are_named_by_whatever_forward_is(name):
    build, names = FORWARDS[name]
    model = Lambda(lambda m, x: m.head(m.inner(x, x * 2)), inner=build(), head=nn.Linear(4, 4))

    recorded = train(model)

    assert [port.name for port in recorded.node("inner").inputs] == names
    assert_row_holds(recorded.row("inner", "input", "value", names[1]), X * 2)


def test_forward_replaced_on_a_watched_instance():
    """A wrapper put on and taken off while watched, as offloading and quantisation do."""
    model, steps = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), iter(range(3))

    def loss(model: nn.Module) -> Tensor:
        if next(steps) == 1:
            old = model[1].forward
            model[1].forward = lambda *args: old(*args) * 10
        return squared(model)

    recorded = train(model, loss, steps=3, rate=0.0)

    top = recorded.series["1", "output", "value", "output"]["max"]
    assert top[1] == pytest.approx(10 * top[0], rel=1e-5)
    assert top[2] == top[1]
