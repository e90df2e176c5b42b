"""Passes over all elements of a tensor of any dtype: extremes, counts, moments, norms of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Parameter

from .schema import Status

_PIECE = 1 << 18
"""Elements converted at a time for dtypes that have no `aminmax`, so that memory stays bounded."""

DOUBLE = {torch.float64, torch.complex128}
WIDE = (
    DOUBLE
    | {torch.int32, torch.int64}
    | {getattr(torch, name) for name in ("uint32", "uint64") if hasattr(torch, name)}
)
"""Dtypes whose values float32 can't hold; they take two places of the buffer each."""

DIRECT = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8} | {
    torch.int16,
    torch.int32,
    torch.int64,
}
"""Dtypes that `aminmax` and `copy_` into a float buffer take as they are."""


_COMPRESSED = {torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
_LAYOUTS = {torch.strided, torch.sparse_coo} | _COMPRESSED

_OPAQUE = {
    getattr(torch, name)
    for name in (
        *("bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", "float4_e2m1fn_x2"),
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)),
    )
    if hasattr(torch, name)
}
"""Dtypes without a conversion to numbers."""


_MEMORY = {"cpu", "cuda", "xpu", "mps"}
"""Types of devices whose tensors have a storage that says how much memory it holds."""


def unreadable(tensor: Tensor) -> int:
    """The `Status` that says why a tensor can't be sampled, 0 if it can."""
    if tensor.is_nested:
        return Status.NESTED
    if tensor.layout is not torch.strided and tensor.layout not in _LAYOUTS:
        return Status.SPARSE
    if tensor.is_meta:
        return Status.META
    if tensor.dtype in _OPAQUE:
        return Status.DTYPE
    kind = type(tensor)
    if (
        kind is not Tensor
        and kind is not Parameter
        and kind.__torch_dispatch__ is not Tensor.__torch_dispatch__
    ):
        return Status.SUBCLASS  # whatever we asked of it, its own code would answer
    if torch._C._functorch.is_legacy_batchedtensor(tensor):  # of a backward of many gradients at once
        return Status.NOT_OBSERVED
    if tensor.layout is torch.strided and _is_freed(tensor):
        return Status.FREED
    return Status.OK


def _is_freed(tensor: Tensor) -> bool:
    """Whether the memory of a strided tensor was given back, as sharding and offloading do with
    `storage.resize_(0)`. Reading it would end the process, and no error could be caught."""
    # The name of a device takes longer to make than all else that is asked of a tensor.
    if not tensor.is_cpu and tensor.device.type not in _MEMORY:
        return False
    return not tensor.untyped_storage().nbytes() and tensor.numel() > 0


def stored(tensor: Tensor) -> Tensor:
    """The values that a sparse tensor holds, those of one place added up."""
    return tensor.values() if tensor.layout in _COMPRESSED else tensor.coalesce().values()


def sparse_norms(gradient: Tensor) -> Tensor:
    """The 2-norms of the samples of a sparse gradient, without making it dense."""
    gradient = gradient.to_sparse().coalesce()
    rows, values = gradient.indices()[0], gradient.values().abs()
    if values.dtype not in DOUBLE:
        values = values.float()
    squares = values.square().reshape(len(values), math.prod(values.shape[1:])).sum(1)
    return squares.new_zeros(gradient.shape[0]).index_add_(0, rows, squares).sqrt()


def plain(tensor: Tensor) -> Tensor:
    """Values that copy into a float tensor: magnitudes of complex numbers."""
    return tensor.abs() if tensor.is_complex() else tensor


def _pieces(tensor: Tensor) -> list[Tensor]:
    """The tensor as float pieces of bounded size, for dtypes with few operators."""
    flat = tensor.reshape(-1)
    wide = torch.float64 if tensor.dtype in WIDE else torch.float32
    return [plain(piece).to(wide) for piece in torch.split(flat, _PIECE)]


def extremes_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and largest element, NaN where there is one."""
    if tensor.dtype in DIRECT:
        low, high = torch.aminmax(tensor)
        return low, high
    lows, highs = zip(*(torch.aminmax(piece) for piece in _pieces(tensor)), strict=True)
    return torch.stack(lows).min(), torch.stack(highs).max()


def count_nonfinite(tensor: Tensor) -> tuple[tuple[int, int, int], tuple[float, float]]:
    """Counts of NaN, +Inf, -Inf and the extremes of the finite values (NaN if none), on the host."""
    nan = positive = negative = 0
    low, high = math.inf, -math.inf
    for piece in _pieces(tensor):
        values = piece.numpy()
        finite = values[np.isfinite(values)]
        nan += int(np.isnan(values).sum())
        positive += int(np.isposinf(values).sum())
        negative += int(np.isneginf(values).sum())
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (nan, positive, negative), ((low, high) if low <= high else (math.nan, math.nan))


def count_on_device(tensor: Tensor, target: Tensor) -> None:
    """Write [NaN, +Inf, -Inf, finite min, finite max] without waiting for the device."""
    values = plain(tensor)
    if values.dtype not in DIRECT:
        values = values.to(torch.float32)
    target[0] = torch.count_nonzero(values != values)
    target[1] = torch.count_nonzero(values == math.inf)
    target[2] = torch.count_nonzero(values == -math.inf)
    finite = torch.isfinite(values)
    target[3] = torch.where(finite, values, math.inf).amin()
    target[4] = torch.where(finite, values, -math.inf).amax()


def deviation(tensor: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """The 2-norm of all deviations from the mean. Not from sum and norm, which cancel; piece by piece,
    since a deviation is a copy; in units of `scale`, so that no square leaves the range of the dtype."""
    unit = scale.to(mean.dtype).clamp(max=torch.finfo(mean.dtype).max)
    unit = torch.where(unit > 0, unit, 1.0)
    pieces = torch.split(tensor.reshape(-1), _PIECE)
    parts = [torch.linalg.vector_norm((piece - mean) / unit) for piece in pieces]
    length: Tensor = torch.linalg.vector_norm(torch.stack(parts)) * unit
    return length


def row_norms(gradient: Tensor, target: Tensor | None = None) -> Tensor:
    """Row norms of batch x rest. Reduces over dimensions instead of reshaping: a reshape of a
    channels-last gradient would copy it (13 times slower)."""
    if gradient.dim() == 1:
        return torch.abs(gradient, out=target) if _same(gradient, target) else _into(gradient.abs(), target)
    rest = tuple(range(1, gradient.dim()))
    if gradient.dtype in DOUBLE:
        # The square of 1e155 is beyond float64: take the largest value out first.
        unit = gradient.abs().amax(rest, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        unit = torch.where(torch.isfinite(unit), unit, 1.0)
        scaled = _reduced(gradient / unit, rest)
        return _into(scaled * unit.reshape(-1), target)
    if _same(gradient, target):
        return _reduced(gradient, rest, out=target)
    if gradient.dtype in (torch.float16, torch.bfloat16):  # the square of a half overflows at 256
        return _into(_reduced(gradient, rest, dtype=torch.float32), target)
    if not (gradient.is_floating_point() and gradient.dtype in DIRECT) and not gradient.is_complex():
        gradient = gradient.to(torch.float32)
    return _into(_reduced(gradient, rest), target)


def mend(gradient: Tensor, norms: Tensor, seen: NDArray[Any]) -> None:
    """Compute those `norms` anew that came out as 0 or Inf, which `seen` shows: in float32 the squares of
    1e-23 and 1e19 are beyond what it holds, and vanishing gradients are what one wants to see. Only on
    the host, where the look is free."""
    if gradient.dim() < 2 or not _out_of_range(seen):
        return
    rows = torch.from_numpy(np.flatnonzero((seen == 0) | (seen == math.inf)))
    for some in torch.split(rows, max(1, _PIECE * len(seen) // gradient.numel())):
        part = gradient[some]
        if part.any().numpy():  # not bool(): profilers show that as a wait for the device
            wide = torch.complex128 if part.is_complex() else torch.float64
            norms[some] = _reduced(part.to(wide), tuple(range(1, part.dim()))).to(norms.dtype)


def _out_of_range(norms: NDArray[Any]) -> bool:
    """Whether any is 0 or Inf."""
    if len(norms) > 64:
        return bool(np.minimum.reduce(norms) == 0 or np.maximum.reduce(norms) == math.inf)
    values = norms.tolist()  # of few, Python is the faster one
    return 0.0 in values or math.inf in values


def _reduced(tensor: Tensor, rest: tuple[int, ...], **options: Any) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(tensor, 2, rest, **options)
    return result


def _same(gradient: Tensor, target: Tensor | None) -> bool:
    return target is not None and gradient.dtype == target.dtype


def _into(values: Tensor, target: Tensor | None) -> Tensor:
    return values if target is None else target.copy_(values)
