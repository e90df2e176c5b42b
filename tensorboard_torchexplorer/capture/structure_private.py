"""The private names of torch that only the structure tracer needs (the others: private.py).

All have a public or harmless fallback; none is needed for training itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor


def without_torch_function() -> AbstractContextManager[Any]:
    """Reads of tensor attributes inside reach neither `__torch_function__` of the user's tensor
    subclasses nor the user's function modes."""
    return torch._C.DisableTorchFunction()  # type: ignore[no-any-return, attr-defined]


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor that operators see at the bottom of torch.func's transforms (vmap, grad, jvp)."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def written_arguments(operator: Any) -> tuple[tuple[int, str], ...]:
    """(position, name) of the arguments that an operator writes to, by its schema; the position is
    -1 for those that can only be passed by keyword (`out=`)."""
    schema = getattr(operator, "_schema", None)
    if schema is None:  # a higher-order operator
        return ()
    return tuple(
        (-1 if argument.kwarg_only else position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def named_arguments(operator: Any) -> tuple[str, ...]:
    """The names of an operator's arguments in order, () where it has no schema."""
    schema = getattr(operator, "_schema", None)
    return () if schema is None else tuple(argument.name for argument in schema.arguments)


def operator_name(operator: Any) -> str:
    """`add_` for aten.add_.Tensor, the plain name for a higher-order operator."""
    packet = getattr(operator, "_overloadpacket", None)
    name = getattr(operator if packet is None else packet, "__name__", "")
    return name if isinstance(name, str) else ""
