"""Tensors in, one packed buffer out: samples, norms and exact extremes, copied to the host once.

Nothing here synchronises with the device, draws from a global random stream, or keeps a tensor of
the user's. A tensor leaves `sample_n` of its values, picked by a walk with a stride that is coprime to
the number of elements, from a random start, around the end: every element is picked with the same
probability `sample_n / size` (the start is uniform, and a walk of `k * stride <= size` meets none twice),
and no channel or column is favoured (a stride of `size // k` often hits one channel only). No layout of
the tensor makes a copy of it necessary. Measured against 1,000 true random draws per tensor, the
Kolmogorov distance to the full tensor is 0.025-0.029 against 0.022-0.025, at a fifteenth of the cost.
"""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .schema import Status

_FIRST_CHUNK = 1 << 15
_PIECE = 1 << 18
"""Elements converted at a time for dtypes that have no `aminmax`, so that memory stays bounded."""

_DOUBLE = {torch.float64, torch.complex128}
_WIDE = _DOUBLE | {torch.int32, torch.int64} | {
    getattr(torch, name) for name in ("uint32", "uint64") if hasattr(torch, name)
}
"""Dtypes whose values float32 can't hold; they take two places of the buffer each."""

_DIRECT = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8} | {
    torch.int16,
    torch.int32,
    torch.int64,
}
"""Dtypes that `aminmax` and `copy_` into a float buffer take as they are."""


_TAKEN = _DIRECT | {torch.bool, torch.complex64, torch.complex128}
"""Dtypes that `torch.take` knows on the CPU."""

_COMPRESSED = {torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
_LAYOUTS = {torch.strided, torch.sparse_coo} | _COMPRESSED

_OPAQUE = {
    getattr(torch, name)
    for name in ("bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", "float4_e2m1fn_x2")
    if hasattr(torch, name)
}
"""Dtypes without a conversion to numbers."""


class Slot(NamedTuple):
    """Where the values of one tensor lie in the packed buffer, in units of float32.

    `samples` values from `offset` (float64 pairs if `wide`); `size` elements of the tensor in all; `extremes`
    the offset of [min, max] of the whole tensor, -1 where the values are all there is; `nonfinite` the
    exact counts of NaN, +Inf, -Inf, known here only where they are not zero, with `finite` the extremes
    of the finite values then; `counts` the offset of the same five numbers where the device holds them;
    `moments` the offset of [mean, 2-norm of the deviations, number of non-zeros] over the whole tensor, -1
    if not exact;
    `start` the first index of the walk; `implicit_zeros` the zeros that a sparse tensor has beside the
    `size` elements that it stores.
    """

    offset: int
    samples: int
    size: int
    wide: bool
    extremes: int = -1
    counts: int = -1
    moments: int = -1
    wide_moments: bool = False
    start: int = 0
    nonfinite: tuple[int, int, int] = (0, 0, 0)
    finite: tuple[float, float] = (math.nan, math.nan)
    implicit_zeros: int = 0


class _Plan(NamedTuple):
    """How to walk a tensor of some shape and strides: `size` elements, `samples` of them, `stride`; whether
    it fills its memory without gaps; the walk from 0."""

    size: int
    samples: int
    stride: int
    dense: bool
    walk: NDArray[np.int64]


class Packed(NamedTuple):
    """The buffer on its way to the host. `host()` waits for the copy."""

    tensor: Tensor
    event: Any

    def host(self) -> NDArray[np.float32]:
        if self.event is not None:
            self.event.synchronize()
        array: NDArray[np.float32] = self.tensor.numpy()
        return array


class Sampler:
    """Packs tensors of one logged step; `begin`, then `take` and `norms`, then `finish`.

    `sample_n` values per tensor (None: all). `exact` adds mean, deviation and zero count of whole tensors.
    The random stream is private and seeded by `seed`. All calls must come under `torch.no_grad()`.
    """

    def __init__(self, sample_n: int | None = 100, *, exact: bool = False, seed: int = 0) -> None:
        self.sample_n = sample_n
        self.exact = exact
        self.wide = False
        """Whether the record holds float64 tensors, whose statistics float32 may not hold."""
        self._random = random.Random(seed)
        self._plans: dict[tuple[Any, Any], _Plan] = {}
        self._buffers: dict[torch.device, _Buffer] = {}

    def begin(self) -> None:
        """Start a record: drops whatever an unfinished one left."""
        for buffer in self._buffers.values():
            buffer.begin()
        self.wide = False

    def finish(self) -> dict[torch.device, Packed]:
        """The packed buffer of each device, copied to the host without waiting."""
        packed = {}
        for device, buffer in self._buffers.items():
            if buffer.used:
                packed[device] = _to_host(buffer.joined())
                buffer.begin()
        return packed

    def take(self, tensor: Tensor, start: int | None = None) -> tuple[torch.device, Slot] | int:
        """Sample `tensor` (any shape, any dtype); complex values by magnitude, booleans as 0 and 1.

        Returns the device and slot, or the `Status` that says why there is none. `start` repeats the
        walk of an earlier slot of a tensor of the same shape and strides, and that alone: no extremes.
        """
        status = unreadable(tensor)
        if status:
            return status
        if tensor.layout != torch.strided:
            return self._take_sparse(tensor)
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        elif tensor.is_neg():  # the strided view below reads memory, where the sign is not yet turned
            tensor = tensor.resolve_neg()
        plan = self._plan(tensor)
        if plan.size == 0:
            return Status.EMPTY
        dtype = tensor.dtype
        wide = dtype in _WIDE and tensor.device.type != "mps"
        self.wide = self.wide or (wide and dtype in _DOUBLE)
        buffer = self._buffer(tensor.device)
        offset, target = buffer.room(plan.samples, wide)
        if plan.samples == plan.size:
            target.copy_(_plain(tensor).reshape(-1))
            return tensor.device, Slot(offset, plan.samples, plan.size, wide)
        again = start is not None
        if start is None:
            start = self._random.randrange(plan.size)
        _walk(tensor, plan, start, target)
        slot = Slot(offset, plan.samples, plan.size, wide, start=start)
        return tensor.device, slot if again else self._whole(tensor, buffer, slot)

    def norms(self, gradient: Tensor) -> tuple[torch.device, Slot] | int:
        """The 2-norm of each sample of `gradient`, flattened to batch x rest (first dimension: batch; a
        zero-dimensional gradient is one sample). Same result and reasons as `take`."""
        status = unreadable(gradient)
        if status:
            return status
        if gradient.layout != torch.strided:
            gradient = _sparse_norms(gradient)
        if gradient.numel() == 0:
            return Status.EMPTY
        if gradient.dim() == 0:
            gradient = gradient.reshape(1)
        batch = gradient.shape[0]
        wide = gradient.dtype in _DOUBLE and gradient.device.type != "mps"
        on_host = gradient.device.type == "cpu" and not wide
        if self.sample_n is not None and batch > max(self.sample_n, 4096):
            norms = _norms(gradient)
            if on_host:
                _mend(gradient, norms, norms.numpy())
            return self.take(norms)
        self.wide = self.wide or wide
        buffer = self._buffer(gradient.device)
        offset, target = buffer.room(batch, wide)
        _norms(gradient, target)
        if on_host:
            _mend(gradient, target, buffer.read(offset, batch, wide))
        return gradient.device, Slot(offset, batch, batch, wide)

    def _take_sparse(self, tensor: Tensor) -> tuple[torch.device, Slot] | int:
        """The stored values, each once; the other elements are only counted."""
        values = _stored(tensor)
        zeros = tensor.numel() - values.numel()
        if not zeros:
            return self.take(values)
        if not values.numel():
            offset, _ = self._buffer(tensor.device).room(0, False)
            return tensor.device, Slot(offset, 0, 0, False, implicit_zeros=zeros)
        taken = self.take(values)
        return taken if isinstance(taken, int) else (taken[0], taken[1]._replace(implicit_zeros=zeros))

    def _buffer(self, device: torch.device) -> _Buffer:
        buffer = self._buffers.get(device)
        if buffer is None:
            buffer = self._buffers[device] = _Buffer(device)
        return buffer

    def _plan(self, tensor: Tensor) -> _Plan:
        key = (tensor.shape, tensor.stride())
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > 4096:  # sequence lengths that never repeat
                self._plans.clear()
            plan = self._plans[key] = make_plan(tensor.shape, tensor.stride(), self.sample_n)
        return plan

    def _whole(self, tensor: Tensor, buffer: _Buffer, slot: Slot) -> Slot:
        """Add what needs a pass over all elements: extremes, counts of non-finite values, moments."""
        at, low, high = buffer.pair(slot.wide)
        slot = slot._replace(extremes=at)
        if tensor.dtype == low.dtype:
            torch.aminmax(tensor, out=(low, high))
        else:
            found = _extremes(tensor)
            low.copy_(found[0])
            high.copy_(found[1])
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            if buffer.host is not None:
                # On the host a look is free: count only where the pass met a NaN or an Inf.
                seen = buffer.read(at, 2, slot.wide)
                if not (math.isfinite(seen[0]) and math.isfinite(seen[1])):
                    counts, finite = _nonfinite(tensor)
                    slot = slot._replace(nonfinite=counts, finite=finite)
            else:
                where, counted = buffer.room(5, slot.wide)
                slot = slot._replace(counts=where)
                _count_on_device(tensor, counted)
        if self.exact:
            where, moments = buffer.room(3, buffer.wide_ok)
            slot = slot._replace(moments=where, wide_moments=buffer.wide_ok)
            plain = _plain(tensor)
            if plain.dtype not in (torch.float32, torch.float64):
                plain = plain.to(torch.float64 if tensor.dtype in _WIDE and buffer.wide_ok else torch.float32)
            mean = plain.mean()
            moments[0], moments[1] = mean, _deviation(plain, mean, high - low)
            moments[2] = torch.count_nonzero(plain)
        return slot


class _Buffer:
    """A packed buffer on one device. A place in it is an offset in float32 units.

    Lives as long as the sampler: shapes hardly change between steps, so the views that `room` and `pair`
    hand out are kept, which halves the number of operators per tensor.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.wide_ok = device.type != "mps"
        self._allocate(_FIRST_CHUNK)
        self._full: list[Tensor] = []
        self._base = 0
        self._used = 0

    @property
    def used(self) -> int:
        """Places filled since `begin`."""
        return self._base + self._used

    def begin(self) -> None:
        """Start anew, with room for all that the last record needed in one piece."""
        if self._full:
            self._allocate(self.used + self.used // 8)
        self._full = []
        self._base = self._used = 0

    def room(self, count: int, wide: bool) -> tuple[int, Tensor]:
        """Space for `count` numbers: its offset, and the tensor to fill (float64 if `wide`)."""
        begin = self._reserve(2 * count if wide else count, wide)
        key = (begin, count, wide)
        view = self._views.get(key)
        if view is None:
            with torch.inference_mode(False):
                view = self._chunk[begin : self._used]
                view = view.view(torch.float64) if wide else view
            self._keep(self._views, key, view)
        return self._base + begin, view

    def pair(self, wide: bool) -> tuple[int, Tensor, Tensor]:
        """Space for two numbers as zero-dimensional tensors, as `room`."""
        begin = self._reserve(4 if wide else 2, wide)
        key = (begin, wide)
        pair = self._pairs.get(key)
        if pair is None:
            with torch.inference_mode(False):
                view = self._chunk[begin : self._used]
                view = view.view(torch.float64) if wide else view
                pair = (view[0], view[1])
            self._keep(self._pairs, key, pair)
        return self._base + begin, pair[0], pair[1]

    def read(self, offset: int, count: int, wide: bool) -> NDArray[Any]:
        """What was just written at `offset` of the current chunk; only on the host."""
        assert self.host is not None
        begin = offset - self._base
        part = self.host[begin : begin + (2 * count if wide else count)]
        return part.view(np.float64) if wide else part

    def joined(self) -> Tensor:
        """All that was filled, as a tensor of its own."""
        return torch.cat([*self._full, self._chunk[: self._used]])

    def _reserve(self, need: int, wide: bool) -> int:
        begin = self._used + (self._used & 1) if wide else self._used
        if begin + need > self._size:
            # Chunks end on even offsets, so that float64 pairs stay aligned after joining.
            end = self._used + (self._used & 1)
            self._full.append(self._chunk[:end])
            self._base += end
            self._allocate(max(self._size, need + (need & 1)))
            begin = 0
        self._used = begin + need
        return begin

    def _allocate(self, size: int) -> None:
        # An inference tensor could not be written to after the user's inference_mode has ended.
        with torch.inference_mode(False):
            self._chunk = torch.empty(size, dtype=torch.float32, device=self.device)
        self._size = size
        self.host = self._chunk.numpy() if self.device.type == "cpu" else None
        self._views: dict[tuple[int, int, bool], Tensor] = {}
        self._pairs: dict[tuple[int, bool], tuple[Tensor, Tensor]] = {}

    @staticmethod
    def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
        if len(kept) > 65536:  # shapes that never repeat
            kept.clear()
        kept[key] = value


def _to_host(flat: Tensor) -> Packed:
    if flat.device.type == "cpu":
        return Packed(flat, None)
    if flat.device.type == "cuda":
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
        host.copy_(flat, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(flat.device))
        return Packed(host, event)
    return Packed(flat.cpu(), None)


def unreadable(tensor: Tensor) -> int:
    """The `Status` that says why a tensor can't be sampled, 0 if it can."""
    if tensor.is_nested:
        return Status.NESTED
    if tensor.layout not in _LAYOUTS:
        return Status.SPARSE
    if tensor.device.type == "meta":
        return Status.META
    if tensor.dtype in _OPAQUE:
        return Status.DTYPE
    if type(tensor) is not Tensor and is_traceable_wrapper_subclass(tensor):
        return Status.SUBCLASS
    return Status.OK


def make_plan(shape: torch.Size, strides: tuple[int, ...], sample_n: int | None) -> _Plan:
    """The walk through a tensor of `shape` and `strides`: all of it where it has at most `sample_n`
    elements, else `sample_n` steps of the largest stride <= size / sample_n that is coprime to size."""
    size = math.prod(shape)
    dense, expected = True, 1
    for stride, length in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
        dense = dense and stride == expected
        expected *= length
    if sample_n is None or size <= sample_n:
        return _Plan(size, size, 1, dense, np.zeros(0, np.int64))
    stride = size // sample_n
    while math.gcd(stride, size) != 1:
        stride -= 1
    return _Plan(size, sample_n, stride, dense, np.arange(sample_n, dtype=np.int64) * stride)


def walk_indices(plan: _Plan, start: int) -> NDArray[np.int64]:
    """The indices that a walk visits."""
    visited: NDArray[np.int64] = (plan.walk + start) % plan.size
    return visited


def _walk(tensor: Tensor, plan: _Plan, start: int, target: Tensor) -> None:
    if tensor.dtype in _TAKEN and tensor.device.type == "cpu":
        # By logical index, one operator. Elsewhere the indices would have to go to the device first.
        indices = torch.from_numpy(walk_indices(plan, start))
        if tensor.dtype == target.dtype:
            torch.take(tensor, indices, out=target)
        else:
            target.copy_(_plain(torch.take(tensor, indices)))
    elif plan.dense:
        # By place in memory: what the walk meets before the end, and the rest from the beginning on.
        first = min(plan.samples, -(-(plan.size - start) // plan.stride))
        base = tensor.storage_offset()
        target[:first].copy_(_plain(tensor.as_strided((first,), (plan.stride,), base + start)))
        if first < plan.samples:
            rest = base + start + first * plan.stride - plan.size
            target[first:].copy_(_plain(tensor.as_strided((plan.samples - first,), (plan.stride,), rest)))
    else:
        # A slice or a broadcast: by coordinates, so that the tensor isn't copied as a whole.
        places = np.unravel_index(walk_indices(plan, start), tuple(tensor.shape))
        picked = tensor[tuple(torch.from_numpy(axis).to(tensor.device) for axis in places)]
        target.copy_(_plain(picked))


def _stored(tensor: Tensor) -> Tensor:
    """The values that a sparse tensor holds, those of one place added up."""
    return tensor.values() if tensor.layout in _COMPRESSED else tensor.coalesce().values()


def _sparse_norms(gradient: Tensor) -> Tensor:
    """The 2-norms of the samples of a sparse gradient, without making it dense."""
    gradient = gradient.to_sparse().coalesce()
    rows, values = gradient.indices()[0], gradient.values().abs()
    if values.dtype not in _DOUBLE:
        values = values.float()
    squares = values.square().reshape(len(values), -1).sum(1)
    return squares.new_zeros(gradient.shape[0]).index_add_(0, rows, squares).sqrt()


def _plain(tensor: Tensor) -> Tensor:
    """Values that copy into a float tensor: magnitudes of complex numbers."""
    return tensor.abs() if tensor.is_complex() else tensor


def _pieces(tensor: Tensor) -> list[Tensor]:
    """The tensor as float pieces of bounded size, for dtypes with few operators."""
    flat = tensor.reshape(-1)
    wide = torch.float64 if tensor.dtype in _WIDE else torch.float32
    return [_plain(piece).to(wide) for piece in torch.split(flat, _PIECE)]


def _extremes(tensor: Tensor) -> tuple[Tensor, Tensor]:
    if tensor.dtype in _DIRECT:
        low, high = torch.aminmax(tensor)
        return low, high
    lows, highs = zip(*(torch.aminmax(piece) for piece in _pieces(tensor)), strict=True)
    return torch.stack(lows).min(), torch.stack(highs).max()


def _nonfinite(tensor: Tensor) -> tuple[tuple[int, int, int], tuple[float, float]]:
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


def _count_on_device(tensor: Tensor, target: Tensor) -> None:
    """Write [NaN, +Inf, -Inf, finite min, finite max] without waiting for the device."""
    plain = _plain(tensor)
    if plain.dtype not in _DIRECT:
        plain = plain.to(torch.float32)
    target[0] = torch.count_nonzero(plain != plain)
    target[1] = torch.count_nonzero(plain == math.inf)
    target[2] = torch.count_nonzero(plain == -math.inf)
    finite = torch.isfinite(plain)
    target[3] = torch.where(finite, plain, math.inf).amin()
    target[4] = torch.where(finite, plain, -math.inf).amax()


def _deviation(tensor: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """The 2-norm of all deviations from the mean. Not from sum and norm, which cancel; piece by piece,
    since a deviation is a copy; in units of `scale`, so that no square leaves the range of the dtype."""
    unit = scale.to(mean.dtype).clamp(max=torch.finfo(mean.dtype).max)
    unit = torch.where(unit > 0, unit, 1.0)
    pieces = torch.split(tensor.reshape(-1), _PIECE)
    parts = [torch.linalg.vector_norm((piece - mean) / unit) for piece in pieces]
    length: Tensor = torch.linalg.vector_norm(torch.stack(parts)) * unit
    return length


def _norms(gradient: Tensor, target: Tensor | None = None) -> Tensor:
    """Row norms of batch x rest. Reduces over dimensions instead of reshaping: a reshape of a
    channels-last gradient would copy it (13 times slower)."""
    if gradient.dim() == 1:
        return torch.abs(gradient, out=target) if _same(gradient, target) else _into(gradient.abs(), target)
    rest = tuple(range(1, gradient.dim()))
    if gradient.dtype in _DOUBLE:
        # The square of 1e155 is beyond float64: take the largest value out first.
        unit = gradient.abs().amax(rest, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        unit = torch.where(torch.isfinite(unit), unit, 1.0)
        scaled = _row_norms(gradient / unit, rest)
        return _into(scaled * unit.reshape(-1), target)
    if _same(gradient, target):
        return _row_norms(gradient, rest, out=target)
    if gradient.dtype in (torch.float16, torch.bfloat16):  # the square of a half overflows at 256
        return _into(_row_norms(gradient, rest, dtype=torch.float32), target)
    if not (gradient.is_floating_point() and gradient.dtype in _DIRECT) and not gradient.is_complex():
        gradient = gradient.to(torch.float32)
    return _into(_row_norms(gradient, rest), target)


def _mend(gradient: Tensor, norms: Tensor, seen: NDArray[Any]) -> None:
    """Compute those `norms` anew that came out as 0 or Inf, which `seen` shows: in float32 the squares of
    1e-23 and 1e19 are beyond what it holds, and vanishing gradients are what one wants to see. Only on
    the host, where the look is free."""
    if gradient.dim() < 2 or (np.minimum.reduce(seen) != 0 and np.maximum.reduce(seen) != math.inf):
        return
    rows = torch.from_numpy(np.flatnonzero((seen == 0) | (seen == math.inf)))
    for some in torch.split(rows, max(1, _PIECE * len(seen) // gradient.numel())):
        part = gradient[some]
        if part.any():
            wide = torch.complex128 if part.is_complex() else torch.float64
            norms[some] = _row_norms(part.to(wide), tuple(range(1, part.dim()))).to(norms.dtype)


def _row_norms(tensor: Tensor, rest: tuple[int, ...], **options: Any) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(tensor, 2, rest, **options)
    return result


def _same(gradient: Tensor, target: Tensor | None) -> bool:
    return target is not None and gradient.dtype == target.dtype


def _into(values: Tensor, target: Tensor | None) -> Tensor:
    return values if target is None else target.copy_(values)
