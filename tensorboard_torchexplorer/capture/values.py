"""Tensors of each call in, slots of the packed buffer out."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from torch import Tensor

from ..sampling import Sampler
from ..schema import Group, Status
from ..slots import Taken
from .calls import Call
from .private import beneath, quiet
from .tap import PortKey, port_key


class ValueObserver:
    """Samples inputs before the module's forward (an in-place module overwrites them) and outputs after.

    One tensor in one state is sampled once: the output of a module and the input of the next share
    their slot.
    """

    def __init__(self, sampler: Sampler, wanted: Callable[[Call], bool]) -> None:
        self.taken: dict[PortKey, Taken] = {}
        self._sampler = sampler
        self._wanted = wanted
        # What was sampled by id: the tensor, its version then, the slot. In three dictionaries, since
        # entries that are objects keep Python's cycle collector busy.
        self._tensors: dict[int, weakref.ref[Tensor]] = {}
        self._versions: dict[int, int] = {}
        self._slots: dict[int, Taken] = {}

    def enter(self, call: Call, tensors: list[Tensor]) -> None:
        self._take(call, "input", tensors)

    def leave(self, call: Call, tensors: list[Tensor]) -> None:
        self._take(call, "output", tensors)

    def _take(self, call: Call, group: Group, tensors: list[Tensor]) -> None:
        if not tensors or not self._wanted(call):
            return
        # Until it is replaced, so that an error in the middle leaves a reason and not a gap.
        for index in range(len(tensors)):
            self.taken[port_key(call.index, group, index)] = -Status.FAULT
        with quiet():
            for index, tensor in enumerate(tensors):
                self.taken[port_key(call.index, group, index)] = self._once(beneath(tensor))

    def sample(self, tensor: Tensor) -> Taken:
        """A tensor as it is now."""
        with quiet():
            return self._once(beneath(tensor))

    def forget(self) -> None:
        """Let go of the tensors seen, once the forward has ended: a weak reference to a parameter keeps
        `torch.utils.swap_tensors`, and so `module.to()`, from exchanging it."""
        self._tensors, self._versions, self._slots = {}, {}, {}

    def _once(self, tensor: Tensor) -> Taken:
        if tensor.is_inference():  # has no version, so a write in between would go unseen
            return self._sampler.take(tensor)
        key, version = id(tensor), tensor._version
        seen = self._tensors.get(key)
        if seen is not None and seen() is tensor and self._versions[key] == version:
            return self._slots[key]
        taken = self._sampler.take(tensor)
        self._tensors[key], self._versions[key], self._slots[key] = weakref.ref(tensor), version, taken
        return taken
