"""Numbers of one logged step, packed into one buffer per device, which is copied to the host once."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_FIRST_CHUNK = 1 << 15


class Packed(NamedTuple):
    """The buffer on its way to the host. `host()` waits for the copy."""

    tensor: Tensor
    event: Any

    def host(self) -> NDArray[np.float32]:
        if self.event is not None:
            self.event.synchronize()
        array: NDArray[np.float32] = self.tensor.numpy()
        return array


class PackedBuffer:
    """A packed buffer on one device, the `number`-th of a sampler. A place in it is an offset in float32
    units.

    Lives as long as the sampler: shapes hardly change between steps, so the views that `room` and `pair`
    hand out are kept, which halves the number of operators per tensor.
    """

    def __init__(self, device: torch.device, number: int) -> None:
        self.device = device
        self.number = number
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

    def room(self, count: int, wide: bool, shape: tuple[int, ...] | None = None) -> tuple[int, Tensor]:
        """Space for `count` numbers: its offset, and the tensor to fill (float64 if `wide`), of `shape` (by
        default one dimension)."""
        begin = self._reserve(2 * count if wide else count, wide)
        key = (begin, count, wide, shape)
        view = self._views.get(key)
        if view is None:
            with _no_inference():
                view = self._chunk[begin : self._used]
                view = view.view(torch.float64) if wide else view
                view = view if shape is None else view.view(shape)
            self._keep(self._views, key, view)
        return self._base + begin, view

    def pair(self, wide: bool) -> tuple[int, Tensor, Tensor]:
        """Space for two numbers as zero-dimensional tensors, as `room`."""
        begin = self._reserve(4 if wide else 2, wide)
        key = (begin, wide)
        pair = self._pairs.get(key)
        if pair is None:
            with _no_inference():
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
        with _no_inference():
            self._chunk = torch.empty(size, dtype=torch.float32, device=self.device)
        self._size = size
        self.host = self._chunk.numpy() if self.device.type == "cpu" else None
        self._views: dict[tuple[int, int, bool, tuple[int, ...] | None], Tensor] = {}
        self._pairs: dict[tuple[int, bool], tuple[Tensor, Tensor]] = {}

    @staticmethod
    def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
        if len(kept) > 65536:  # shapes that never repeat
            kept.clear()
        kept[key] = value


def _no_inference() -> AbstractContextManager[Any]:
    """Leaves inference mode, if it is on. Only then: with torch 2.6 on Python 3.12, a profiler with stacks
    fails where anything enters or leaves the mode."""
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()


def to_host(flat: Tensor) -> Packed:
    """A device's buffer on its way to the host. Waits only where a device has no asynchronous copy."""
    if flat.device.type == "cpu":
        return Packed(flat, None)
    if flat.device.type == "cuda":
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
        host.copy_(flat, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(flat.device))
        return Packed(host, event)
    return Packed(flat.cpu(), None)
