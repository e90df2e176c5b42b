"""An operator call in; the tensors it reads, makes and writes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

NESTING = 3
"""Lists of tensors are one level deep in aten's operators, higher-order operators nest further."""

SHAPE_ONLY = frozenset(
    [f"{name}_like" for name in ("empty", "zeros", "ones", "full", "rand", "randn", "randint")]
    + [f"new_{name}" for name in ("empty", "zeros", "ones", "full", "empty_strided")]
)
"""Operators that take from a tensor its shape and dtype, never its values."""

WITHOUT_GRADIENT = frozenset(["detach", "detach_", "histc", "histogram", "heaviside"])
"""Operators with floating-point results that no gradient passes. Others show by `requires_grad` of
their result; these must be known by name where nothing requires a gradient anyway."""


class Operator:
    """What the tracer has to know of an operator, read from its schema once."""

    __slots__ = ("differentiable", "outs", "reads", "skipped", "writes")

    def __init__(self, operator: Any) -> None:
        # Higher-order operators have no schema and no packet.
        packet = getattr(operator, "_overloadpacket", operator)
        name = getattr(packet, "__name__", "")
        schema = getattr(operator, "_schema", None)
        arguments = () if schema is None else tuple(schema.arguments)
        written = [
            (position, argument.name, argument.kwarg_only)
            for position, argument in enumerate(arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self.reads = name not in SHAPE_ONLY
        self.differentiable = name not in WITHOUT_GRADIENT
        # `out=` arguments are not read: what was in them is gone afterwards
        self.outs = frozenset(name for _, name, by_keyword in written if by_keyword)
        # Running statistics are the state of a normalisation between steps. Depending on the backend,
        # the kernels declare to write them or don't; no call's result depends on another's through them.
        self.skipped = frozenset(
            position for position, argument in enumerate(arguments) if argument.name.startswith("running_")
        )
        self.writes = tuple(
            (position, name)
            for position, name, by_keyword in written
            if not by_keyword and position not in self.skipped
        )

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The tensors that the call has read, in order, with repetitions."""
        found: list[Tensor] = []
        if self.skipped:
            args = tuple(value for position, value in enumerate(args) if position not in self.skipped)
        collect(args, found)
        if kwargs:
            collect((value for name, value in kwargs.items() if name not in self.outs), found)
        return found

    def written(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The tensors that the call has changed."""
        found: list[Tensor] = []
        for position, name in self.writes:
            if position < len(args):
                collect((args[position],), found)
            elif name in kwargs:
                collect((kwargs[name],), found)
        return found

    def overwritten(self, kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The tensors that the call has put its results in."""
        found: list[Tensor] = []
        collect((kwargs.get(name) for name in self.outs), found)
        return found


def collect(values: Iterable[Any], found: list[Tensor], depth: int = 0) -> None:
    """Append the tensors among `values` and in lists, tuples and dictionaries below to `found`."""
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            if depth < NESTING:
                collect(value, found, depth + 1)
        elif isinstance(value, dict) and depth < NESTING:
            collect(value.values(), found, depth + 1)


def results(result: Any) -> list[Tensor]:
    """The tensors that a call has returned."""
    if isinstance(result, Tensor):
        return [result]
    found: list[Tensor] = []
    collect((result,), found)
    return found
