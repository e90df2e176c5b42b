"""Tensors in, one packed buffer out: samples, norms and exact extremes, copied to the host once.

Nothing here synchronises with the device, draws from a global random stream, or keeps a tensor of
the user's. A small tensor is copied whole, which takes one operator, where choosing from it and finding its
extremes take two: on 600 small modules that made the look at parameters twice as fast. A tensor of more than
`WHOLE` elements leaves `sample_n` of its values, picked by a walk with a stride that is coprime to
the number of elements, from a random start, around the end: every element is picked with the same
probability `sample_n / size` (the start is uniform, and a walk of `k * stride <= size` meets none twice),
and no channel or column is favoured (a stride of `size // k` often hits one channel only). No layout of
the tensor makes a copy of it necessary. Measured against 1,000 true random draws per tensor, the
Kolmogorov distance to the full tensor is 0.025-0.029 against 0.022-0.025, at a fifteenth of the cost.
"""

from __future__ import annotations

import math
import random
import threading
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .packed import Packed, PackedBuffer, to_host
from .schema import Status
from .slots import Slots, Taken
from .whole import (
    DIRECT,
    DOUBLE,
    WIDE,
    count_nonfinite,
    count_on_device,
    deviation,
    extremes_of,
    mend,
    plain,
    row_norms,
    sparse_norms,
    stored,
    unreadable,
)

_TAKEN = DIRECT | {torch.bool, torch.complex64, torch.complex128}
"""Dtypes that `torch.take` knows on the CPU."""

WHOLE = 1024
"""Tensors of up to so many elements are taken whole, also where `sample_n` is smaller."""

_NONE = np.zeros(0, np.float32)


class _Plan(NamedTuple):
    """How to walk a tensor of some shape and strides: `size` elements, `samples` of them, `stride`; whether
    it fills its memory without gaps; the walk from 0, and room for one from elsewhere, as an array and as a
    tensor."""

    size: int
    samples: int
    stride: int
    dense: bool
    walk: NDArray[np.int64]
    moved: NDArray[np.int64]
    indices: Tensor


class Samples(NamedTuple):
    """What a record has sampled: its slots, the buffers that they lie in (by number of the device), and
    whether there are float64 tensors among them, whose statistics float32 may not hold."""

    slots: Slots
    packed: list[Packed]
    wide: bool

    @property
    def size(self) -> int:
        """Bytes, about."""
        return sum(4 * packed.tensor.numel() for packed in self.packed) + 112 * len(self.slots)

    def host(self) -> list[NDArray[np.float32]]:
        """The buffers, once they have arrived."""
        return [packed.host() for packed in self.packed]


class Sampler:
    """Packs tensors of one logged step; `begin`, then `take` and `norms`, then `finish`.

    `sample_n` values per tensor of more than `WHOLE` elements (None: all). `exact` adds mean, deviation and
    zero count of whole tensors. The random stream is private and seeded by `seed`. All calls must come under
    `torch.no_grad()`.
    """

    def __init__(self, sample_n: int | None = 100, *, exact: bool = False, seed: int = 0) -> None:
        self.sample_n = sample_n
        self.exact = exact
        self.slots = Slots()
        """Those of the record that is open."""
        self._wide = False
        self._random = random.Random(seed)
        self._plans: dict[tuple[Any, Any], _Plan] = {}
        self._buffers: dict[torch.device, PackedBuffer] = {}
        self._host: PackedBuffer | None = None
        self._noted: list[tuple[Taken, Tensor, Tensor]] = []
        # Backward passes have threads of their own: one for each device, and those that they are begun in.
        self._lock = threading.RLock()

    def begin(self) -> None:
        """Start a record: drops whatever an unfinished one left."""
        for buffer in self._buffers.values():
            buffer.begin()
        self.slots = Slots()
        self._wide = False
        self._noted = []

    def finish(self) -> Samples:
        """All that the record has, the buffers copied to the host without waiting."""
        packed = [
            to_host(buffer.joined()) if buffer.used else Packed(torch.from_numpy(_NONE), None)
            for buffer in self._buffers.values()
        ]
        samples = Samples(self.slots, packed, self._wide)
        self.begin()
        return samples

    def take(self, tensor: Tensor, like: Taken | None = None, *, later: bool = False) -> Taken:
        """Sample `tensor` (any shape, any dtype); complex values by magnitude, booleans as 0 and 1.

        `like` repeats the walk of an earlier slot, of a tensor of the same shape and strides, and that
        alone: no extremes. With `later`, what is taken whole is only noted, until `copy_noted`.
        """
        with self._lock:
            return self._take(tensor, like, later)

    def _take(self, tensor: Tensor, like: Taken | None, later: bool) -> Taken:
        status = unreadable(tensor)
        if status:
            return -status
        if tensor.layout is not torch.strided:
            return self._take_sparse(tensor)
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        elif tensor.is_neg():  # the strided view below reads memory, where the sign is not yet turned
            tensor = tensor.resolve_neg()
        plan = self._plan(tensor)
        if plan.size == 0:
            return -Status.EMPTY
        dtype = tensor.dtype
        buffer = self._buffer(tensor)
        wide = dtype in WIDE and buffer.wide_ok
        if wide and dtype in DOUBLE:
            self._wide = True
        if plan.samples == plan.size:
            offset, target = buffer.room(plan.size, wide, tensor.shape)
            slot = self.slots.add(offset, plan.size, plan.size, wide, device=buffer.number)
            values = tensor.abs() if dtype.is_complex else tensor
            if later:
                self._noted.append((slot, target, values))
            else:
                target.copy_(values)
            return slot
        offset, target = buffer.room(plan.samples, wide)
        start = int(self._random.random() * plan.size) if like is None else self.slots[like].start
        _walk(tensor, plan, start, target)
        if like is not None:
            return self.slots.add(offset, plan.samples, plan.size, wide, start=start, device=buffer.number)
        return self._whole(tensor, buffer, offset, plan, wide, start)

    def copy_noted(self) -> list[tuple[Taken, Exception]]:
        """Copy all that `take` has noted with one call, on a GPU with a few kernels for hundreds of tensors.
        Returns the slots that could not be filled, and why."""
        noted, self._noted = self._noted, []
        if not noted:
            return []
        try:
            torch._foreach_copy_([target for _, target, _ in noted], [values for _, _, values in noted])
            return []
        except Exception:  # one of them: which one is found by copying each
            failed = []
            for slot, target, values in noted:
                try:
                    target.copy_(values)
                except Exception as error:
                    failed.append((slot, error))
            return failed

    def norms(self, gradient: Tensor) -> Taken:
        """The 2-norm of each sample of `gradient`, flattened to batch x rest (first dimension: batch; a
        zero-dimensional gradient is one sample)."""
        with self._lock:
            return self._norms(gradient)

    def _norms(self, gradient: Tensor) -> Taken:
        status = unreadable(gradient)
        if status:
            return -status
        if gradient.layout is not torch.strided:
            gradient = sparse_norms(gradient)
        if gradient.numel() == 0:
            return -Status.EMPTY
        if gradient.dim() == 0:
            gradient = gradient.reshape(1)
        batch = gradient.shape[0]
        buffer = self._buffer(gradient)
        wide = gradient.dtype in DOUBLE and buffer.wide_ok
        on_host = gradient.is_cpu and not wide
        if self.sample_n is not None and batch > max(self.sample_n, 4096):
            norms = row_norms(gradient)
            if on_host:
                mend(gradient, norms, norms.numpy())
            return self.take(norms)
        if wide:
            self._wide = True
        offset, target = buffer.room(batch, wide)
        row_norms(gradient, target)
        if on_host:
            mend(gradient, target, buffer.read(offset, batch, wide))
        return self.slots.add(offset, batch, batch, wide, device=buffer.number)

    def _take_sparse(self, tensor: Tensor) -> Taken:
        """The stored values, each once; the other elements are only counted."""
        values = stored(tensor)
        zeros = tensor.numel() - values.numel()
        if not zeros:
            return self.take(values)
        if not values.numel():
            buffer = self._buffer(tensor)
            offset, _ = buffer.room(0, False)
            return self.slots.add(offset, 0, 0, False, implicit_zeros=zeros, device=buffer.number)
        taken = self.take(values)
        if taken >= 0:
            self.slots.change(taken, "implicit_zeros", zeros)
        return taken

    def _buffer(self, tensor: Tensor) -> PackedBuffer:
        if tensor.is_cpu and self._host is not None:  # a device costs more to ask for than to sample from
            return self._host
        device = tensor.device
        buffer = self._buffers.get(device)
        if buffer is None:
            buffer = self._buffers[device] = PackedBuffer(device, len(self._buffers))
            if device.type == "cpu":
                self._host = buffer
        return buffer

    def _plan(self, tensor: Tensor) -> _Plan:
        key = (tensor.shape, tensor.stride())
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > 4096:  # sequence lengths that never repeat
                self._plans.clear()
            sample_n = self.sample_n if tensor.numel() > WHOLE else None
            plan = self._plans[key] = make_plan(tensor.shape, tensor.stride(), sample_n)
        return plan

    def _whole(
        self, tensor: Tensor, buffer: PackedBuffer, offset: int, plan: _Plan, wide: bool, start: int
    ) -> Taken:
        """A slot with what needs a pass over all elements: extremes, counts of non-finite values, moments."""
        extremes, low, high = buffer.pair(wide)
        if tensor.dtype == low.dtype:
            torch.aminmax(tensor, out=(low, high))
        else:
            found = extremes_of(tensor)
            low.copy_(found[0])
            high.copy_(found[1])
        counts = moments = -1
        nonfinite, finite = (0, 0, 0), None
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            if buffer.host is not None:
                # On the host a look is free: count only where the pass met a NaN or an Inf.
                low_seen, high_seen = buffer.read(extremes, 2, wide).tolist()
                if not (math.isfinite(low_seen) and math.isfinite(high_seen)):
                    nonfinite, finite = count_nonfinite(tensor)
            else:
                counts, counted = buffer.room(5, wide)
                count_on_device(tensor, counted)
        if self.exact:
            moments, target = buffer.room(3, buffer.wide_ok)
            self._moments(tensor, buffer, high - low, target)
        return self.slots.add(
            offset,
            plan.samples,
            plan.size,
            wide,
            extremes,
            counts,
            moments,
            buffer.wide_ok,
            start,
            *nonfinite,
            device=buffer.number,
            finite=finite,
        )

    def _moments(self, tensor: Tensor, buffer: PackedBuffer, span: Tensor, target: Tensor) -> None:
        values = plain(tensor)
        if values.dtype not in (torch.float32, torch.float64):
            wide = tensor.dtype in WIDE and buffer.wide_ok
            values = values.to(torch.float64 if wide else torch.float32)
        mean = values.mean()
        target[0], target[1] = mean, deviation(values, mean, span)
        target[2] = torch.count_nonzero(values)


def make_plan(shape: torch.Size, strides: tuple[int, ...], sample_n: int | None) -> _Plan:
    """The walk through a tensor of `shape` and `strides`: all of it where it has at most `sample_n`
    elements, else `sample_n` steps of the largest stride <= size / sample_n that is coprime to size."""
    size = math.prod(shape)
    dense, expected = True, 1
    for stride, length in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
        dense = dense and stride == expected
        expected *= length
    if sample_n is None or size <= sample_n:
        nothing = np.zeros(0, np.int64)
        return _Plan(size, size, 1, dense, nothing, nothing, torch.from_numpy(nothing))
    stride = size // sample_n
    while math.gcd(stride, size) != 1:
        stride -= 1
    walk = np.arange(sample_n, dtype=np.int64) * stride
    moved = walk.copy()
    return _Plan(size, sample_n, stride, dense, walk, moved, torch.from_numpy(moved))


def walk_indices(plan: _Plan, start: int) -> NDArray[np.int64]:
    """The indices that a walk visits, until the next one: they are written to `plan.moved`."""
    np.add(plan.walk, start, out=plan.moved)
    before_end = -((start - plan.size) // plan.stride)
    if before_end < plan.samples:
        plan.moved[before_end:] -= plan.size
    return plan.moved


def _walk(tensor: Tensor, plan: _Plan, start: int, target: Tensor) -> None:
    if tensor.dtype in _TAKEN and tensor.is_cpu:
        # By logical index, one operator. Elsewhere the indices would have to go to the device first.
        walk_indices(plan, start)
        if tensor.dtype == target.dtype:
            torch.take(tensor, plan.indices, out=target)
        else:
            target.copy_(plain(torch.take(tensor, plan.indices)))
    elif plan.dense:
        # By place in memory: what the walk meets before the end, and the rest from the beginning on.
        first = min(plan.samples, -(-(plan.size - start) // plan.stride))
        base = tensor.storage_offset()
        target[:first].copy_(plain(tensor.as_strided((first,), (plan.stride,), base + start)))
        if first < plan.samples:
            rest = base + start + first * plan.stride - plan.size
            target[first:].copy_(plain(tensor.as_strided((plan.samples - first,), (plan.stride,), rest)))
    else:
        # A slice or a broadcast: by coordinates, so that the tensor isn't copied as a whole.
        places = np.unravel_index(walk_indices(plan, start), tuple(tensor.shape))
        picked = tensor[tuple(torch.from_numpy(axis).to(tensor.device) for axis in places)]
        target.copy_(plain(picked))
