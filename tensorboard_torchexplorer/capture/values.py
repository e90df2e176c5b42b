"""Tensors of each call in, slots of the packed buffer out."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from ..packed import Slot
from ..sampling import Sampler
from ..schema import Group, Status
from .calls import Call
from .private import beneath, quiet
from .tap import PortKey

Taken = tuple[torch.device, Slot] | int
"""A slot and its device, or the `Status` that says why there is none."""


class ValueObserver:
    """Samples inputs before the module's forward (an in-place module overwrites them) and outputs after.

    One tensor in one state is sampled once: the output of a module and the input of the next share
    their slot.
    """

    def __init__(self, sampler: Sampler, wanted: Callable[[Call], bool]) -> None:
        self.taken: dict[PortKey, Taken] = {}
        self._sampler = sampler
        self._wanted = wanted
        self._seen: dict[tuple[int, int], tuple[weakref.ref[Tensor], Taken]] = {}

    def enter(self, call: Call, tensors: list[Tensor]) -> None:
        self._take(call, "input", tensors)

    def leave(self, call: Call, tensors: list[Tensor]) -> None:
        self._take(call, "output", tensors)

    def _take(self, call: Call, group: Group, tensors: list[Tensor]) -> None:
        if not tensors or not self._wanted(call):
            return
        # Until it is replaced, so that an error in the middle leaves a reason and not a gap.
        for index in range(len(tensors)):
            self.taken[PortKey(call.index, group, index)] = Status.FAULT
        with quiet():
            for index, tensor in enumerate(tensors):
                self.taken[PortKey(call.index, group, index)] = self._once(beneath(tensor))

    def sample(self, tensor: Tensor) -> Taken:
        """A tensor as it is now."""
        with quiet():
            return self._once(beneath(tensor))

    def _once(self, tensor: Tensor) -> Taken:
        if tensor.is_inference():  # has no version, so a write in between would go unseen
            return self._sampler.take(tensor)
        key = (id(tensor), tensor._version)
        seen = self._seen.get(key)
        if seen is not None and seen[0]() is tensor:
            return seen[1]
        taken = self._sampler.take(tensor)
        self._seen[key] = (weakref.ref(tensor), taken)
        return taken
