"""Modules of a distributed model in, what to say of them in the graph out."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from .by_module import ByModule


def shard_flag(parameters: Iterable[tuple[str, Tensor]], flat: tuple[int, int] | None, ranks: str) -> str:
    """Which part of a module's parameters lies in this process, empty if it is all of them. Recorded are
    the values and the gradient of this part, where `ranks` is "all" also those of the others. `flat` is what
    `flat_parts` says of the module."""
    part = flat or _part(parameters)
    if part is None:
        return ""
    number, count = part
    here = f"shard {number + 1}/{count}"
    return f"sharded: all shards, of which {here} here" if ranks == "all" else f"sharded: local {here}"


def flat_parts(wrappers: Iterable[nn.Module]) -> ByModule[tuple[int, int]]:
    """The modules whose parameters `FullyShardedDataParallel` has laid end to end and cut up among ranks,
    with number and count of the part in this process. Where it ends within a parameter, that has some of its
    elements here, in one dimension; those of other parameters may all be elsewhere."""
    found: ByModule[tuple[int, int]] = ByModule()
    for wrapper in wrappers:
        handle = vars(wrapper).get("_handle")
        if handle is None or not handle.uses_sharded_strategy:
            continue
        part = handle.process_group.rank(), handle.process_group.size()
        if handle._use_orig_params:
            for info in handle.flat_param._param_infos:
                found[info.module] = part
        else:  # they are gone, and this one has a `_flat_param` of all of them
            found[handle._fully_sharded_module] = part
    return found


def _part(parameters: Iterable[tuple[str, Tensor]]) -> tuple[int, int] | None:
    """Number and count of the part that this process has of parameters that are DTensors."""
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
        return number, count
    return None


def class_before_sharding(module: nn.Module) -> type:
    """The class of a module before `fully_shard` put one of its own in front of it. By name, since
    importing that of torch takes a while."""
    kind = type(module)
    if len(kind.__bases__) == 2 and kind.__bases__[0].__name__ == "FSDPModule":
        return kind.__bases__[1]
    return kind
