"""A module in, out the attribute under which it holds the user's own, if it only stands in front of that."""

from __future__ import annotations

from torch import nn

_HELD = {
    "OptimizedModule": ("torch._dynamo", "_orig_mod"),
    "FullyShardedDataParallel": ("torch.distributed", "_fsdp_wrapped_module"),
    "CheckpointWrapper": ("torch.distributed", "_checkpoint_wrapped_module"),
    "OffloadWrapper": ("torch.distributed", "_checkpoint_wrapped_module"),
}
"""By name, since importing those of torch takes a while."""


def held_as(module: nn.Module) -> str:
    """Such as "_orig_mod" for what `torch.compile(module)` returns; empty for a module that is no wrapper.
    None of these names is part of a parameter's name in a `state_dict`, nor of a path here."""
    kind = type(module)
    package, name = _HELD.get(kind.__name__, ("", ""))
    return name if name and kind.__module__.startswith(package) else ""
