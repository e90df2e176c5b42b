"""Modules of a distributed model in, what to say of them in the graph out."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


def shard_flag(parameters: Iterable[tuple[str, Tensor]], ranks: str) -> str:
    """Which part of a module's parameters lies in this process, empty if it is all of them. Recorded are
    the values and the gradient of this part, where `ranks` is "all" also those of the others."""
    for _, parameter in parameters:
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is None:
            continue
        number, count = 0, 1
        coordinate = mesh.get_coordinate() or [0] * mesh.ndim
        for dimension, placement in enumerate(parameter.placements):  # type: ignore[attr-defined]
            if placement.is_shard():
                number = number * mesh.size(dimension) + coordinate[dimension]
                count *= mesh.size(dimension)
        here = f"shard {number + 1}/{count}"
        return f"sharded: all shards, of which {here} here" if ranks == "all" else f"sharded: local {here}"
    return ""


def class_before_sharding(module: nn.Module) -> type:
    """The class of a module before `fully_shard` put one of its own in front of it. By name, since
    importing that of torch takes a while."""
    kind = type(module)
    if len(kind.__bases__) == 2 and kind.__bases__[0].__name__ == "FSDPModule":
        return kind.__bases__[1]
    return kind
