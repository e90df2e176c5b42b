"""A dict whose keys are modules, whatever their classes take for equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import TypeVar

from torch import nn

Value = TypeVar("Value")


class ByModule(MutableMapping[nn.Module, Value]):
    """Values by module, in the order in which they came. A module is a key by its identity: the hash of a
    metric of torchmetrics changes with its state, which a plain dict would never find again."""

    __slots__ = ("_modules", "_values")

    def __init__(self, items: Iterable[tuple[nn.Module, Value]] = ()) -> None:
        self._modules: dict[int, nn.Module] = {}
        self._values: dict[int, Value] = {}
        for module, value in items:
            self[module] = value

    def __getitem__(self, module: nn.Module) -> Value:
        return self._values[id(module)]

    def __setitem__(self, module: nn.Module, value: Value) -> None:
        self._modules[id(module)] = module
        self._values[id(module)] = value

    def __delitem__(self, module: nn.Module) -> None:
        del self._values[id(module)], self._modules[id(module)]

    def __contains__(self, module: object) -> bool:
        return id(module) in self._modules

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByModule) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]  # it may change
