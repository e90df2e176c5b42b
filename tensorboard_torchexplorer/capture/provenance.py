"""Operator calls in; for each tensor the sources of its level that it was computed from out.

Two masks per tensor and level: `data`, whose values flow into it, and `gradient`, from which a
differentiable path leads to it. The path counts *as if* every source did require a gradient, so the
masks are also right in front of frozen modules and below inputs that require none.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from ..schema import End
from .structure_operators import Operator
from .structure_scope import Scope
from .traces import Family, Trace, Written

DIFFERENTIABLE = frozenset(
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype.is_complex)
)
BEFORE_THE_FORWARD = -1


class Provenance:
    """The masks of all tensors, in all levels that are open."""

    def __init__(self) -> None:
        self._families: dict[int, Family] = {}
        self._unplaced: list[Family] = []
        self._addresses: dict[int, Family] = {}

    def clear(self) -> None:
        """Forget all tensors."""
        self._families.clear()
        self._unplaced.clear()
        self._addresses.clear()

    # --- operators ---------------------------------------------------------------------------------

    def operate(
        self,
        scope: Scope,
        operator: Operator,
        inputs: list[Tensor],
        outputs: list[Tensor],
        written: list[Tensor],
        overwritten: list[Tensor],
        *,
        grad: bool,
        as_if: bool,
    ) -> None:
        """An operator has run in `scope`. `written` keep a part of what was in them, `overwritten`
        nothing. `grad`: autograd records; `as_if`: it does not, but the backward will run the operator
        once more and record then (reentrant checkpoint)."""
        gradient = data = 0
        required = False
        if operator.reads:
            for tensor in inputs:
                trace = self.trace(scope, tensor)
                if trace is not None:
                    gradient |= trace.gradient
                    data |= trace.data
                    if trace.before is not None and _appears_twice(tensor, inputs):
                        gradient |= trace.before[0]
                        data |= trace.before[1]
                if grad and not required and tensor.requires_grad:
                    required = True
        if not (grad or as_if) or not operator.differentiable:
            gradient = 0
        handed_in = {id(tensor) for tensor in (*inputs, *overwritten)}
        for tensor in outputs:
            if id(tensor) not in handed_in:
                kept = gradient if tensor.dtype in DIFFERENTIABLE else 0
                self.put(scope, tensor, kept, data, kept if required else 0, scope.call.index)
        for tensor in overwritten:
            self.put(scope, tensor, 0, 0, 0, BEFORE_THE_FORWARD)
        for tensor in (*written, *overwritten):
            self._write(scope, tensor, gradient, data, required)

    def _write(self, scope: Scope, tensor: Tensor, gradient: int, data: int, required: bool) -> None:
        """Values have been added to `tensor`, and so to all that share its memory; to those that
        autograd knows as views of the same tensor, gradient paths as well."""
        family = self.family(tensor, BEFORE_THE_FORWARD)
        if self.trace(scope, tensor) is None:
            self.put(scope, tensor, 0, 0, 0, BEFORE_THE_FORWARD)
        family.changed = True
        if data:
            family.marked = True
        base = _base(tensor)
        for member in family.living():
            trace = self._known(scope, member)
            if trace is None:
                continue
            if gradient and member.dtype in DIFFERENTIABLE and _base(member) is base:
                if required:
                    trace.late |= gradient & ~trace.gradient
                trace.gradient |= gradient
            trace.data |= data
        self._memorize(scope, family, gradient, data)
        scope.written.setdefault(family, Written()).add(base, _size(tensor))

    # --- calls -------------------------------------------------------------------------------------

    def enter(self, parent: Scope | None, scope: Scope, tensors: list[Tensor], grad: bool) -> None:
        """A call begins: edges in the parent lead to it, and inside its inputs are fresh sources."""
        call = scope.call
        if parent is not None:
            target = End("node", call.position)
            for tensor in tensors:
                trace = self.trace(parent, tensor)
                if trace is not None:
                    parent.link(trace.gradient if grad else 0, trace.data, target)
        for position, tensor in enumerate(tensors):
            bit = scope.bit(End("input", position))
            gradient = bit if tensor.dtype in DIFFERENTIABLE else 0
            same = scope.traces.get(id(tensor))
            if same is not None:
                same.gradient |= gradient
                same.data |= bit
            else:
                self.put(scope, tensor, gradient, bit, 0, BEFORE_THE_FORWARD)
            scope.ports.add(self.family(tensor, BEFORE_THE_FORWARD))

    def link_outputs(self, scope: Scope, tensors: list[Tensor], grad: bool) -> None:
        """A call ends: edges inside it lead to its outputs."""
        for position, tensor in enumerate(tensors):
            trace = self.trace(scope, tensor)
            if trace is not None:
                scope.link(trace.gradient if grad else 0, trace.data, End("output", position))
            scope.ports.add(self.family(tensor, scope.call.index))

    def leave(self, parent: Scope, scope: Scope, tensors: list[Tensor], grad: bool) -> None:
        """A call has ended: for its parent, what it returned or overwrote stems from it alone."""
        child = End("node", scope.call.position)
        for family, written in scope.written.items():
            self._hand_up(parent, scope, family, written, child)
        for tensor in tensors:
            bit = parent.bit(child)
            gradient = bit if grad and tensor.dtype in DIFFERENTIABLE else 0
            earlier = self._known(parent, tensor)
            trace = self.put(parent, tensor, gradient, bit, 0, scope.call.index)
            if earlier is not None and self.family(tensor, BEFORE_THE_FORWARD) not in scope.written:
                trace.before = earlier.before or (earlier.gradient, earlier.data)

    def _hand_up(self, parent: Scope, scope: Scope, family: Family, written: Written, child: End) -> None:
        """Tell the parent of memory that the child has written to."""
        if family.origin >= scope.call.index:
            return  # made inside: the parent can only have it from the child, see `_relatives`
        gradient, data = scope.memory.get(family, (0, 0))
        if not data:
            return
        bit = parent.bit(child, implicit=family not in scope.ports)
        gradient = bit if gradient else 0
        for member in family.living():
            trace = self._known(parent, member)
            if trace is None:
                continue
            whole = _size(member) <= written.size
            trace.data = bit if whole else trace.data | bit
            if member.dtype in DIFFERENTIABLE and written.holds(_base(member)):
                trace.gradient = gradient if whole else trace.gradient | gradient
                if whole:
                    trace.late, trace.before = 0, None
        family.marked = True
        self._memorize(parent, family, gradient, bit)
        parent.written.setdefault(family, Written()).join(written)

    # --- look-up -----------------------------------------------------------------------------------

    def trace(self, scope: Scope, tensor: Tensor) -> Trace | None:
        """What is known of a tensor in a level; None if no source has to do with it."""
        found = scope.traces.get(id(tensor))
        if found is not None and found.ref() is tensor:
            if found.late:
                found.settle(tensor)
            return found
        family = self.family(tensor, BEFORE_THE_FORWARD)
        if not family.marked:
            family = self._same_address(family, tensor) or family
            if not family.marked:
                return None
        return self._search(scope, tensor, family)

    def put(self, scope: Scope, tensor: Tensor, gradient: int, data: int, late: int, origin: int) -> Trace:
        """Set what is known of a tensor in a level. `origin`: the call that made it, if it is new."""
        trace = scope.traces[id(tensor)] = Trace(weakref.ref(tensor), gradient, data, late)
        family = self.family(tensor, origin)
        family.add(tensor, trace)
        if data:
            family.marked = True
            self._memorize(scope, family, gradient, data)
        return trace

    def family(self, tensor: Tensor, origin: int) -> Family:
        """The family of a tensor; a new one was made by the call with index `origin`."""
        anchor: Any
        try:
            anchor = tensor.untyped_storage()
        except Exception:  # sparse and opaque layouts, subclasses: each has its own way to say no
            anchor = tensor
        family = self._families.get(id(anchor))
        if family is None or family.anchor() is not anchor:
            family = self._families[id(anchor)] = Family(weakref.ref(anchor), origin)
            self._unplaced.append(family)
        return family

    def _known(self, scope: Scope, tensor: Tensor) -> Trace | None:
        """The trace of this very object in this very level."""
        found = scope.traces.get(id(tensor))
        return found if found is not None and found.ref() is tensor else None

    def _memorize(self, scope: Scope, family: Family, gradient: int, data: int) -> None:
        earlier = scope.memory.get(family)
        if earlier is not None:
            gradient |= earlier[0]
            data |= earlier[1]
        scope.memory[family] = (gradient, data)

    def _search(self, scope: Scope, tensor: Tensor, family: Family) -> Trace | None:
        """Find a tensor that the level has not seen: a new view of a known one, left behind by a child,
        or from an enclosing call. In the last case the levels in between get their implicit edges."""
        home: Scope | None = scope.parent
        while home is not None and self._known(home, tensor) is None:
            home = home.parent
        if home is not None:
            trace = self.trace(home, tensor)
            gradient, data = (trace.gradient, trace.data) if trace is not None else (0, 0)
        else:
            home = scope
            masks = self._relatives(home, tensor, family)
            while masks is None:
                if home.parent is None:
                    return None
                home = home.parent
                masks = self._relatives(home, tensor, family)
            gradient, data = masks
            trace = self.put(home, tensor, gradient, data, 0, BEFORE_THE_FORWARD)
        path = [scope]
        while path[-1] is not home:
            path.append(path[-1].parent or home)
        for outer, inner in zip(path[:0:-1], path[-2::-1], strict=True):
            outer.link(gradient, data, End("node", inner.call.position), implicit=True)
            gradient = inner.outside() if gradient else 0
            data = inner.outside() if data else 0
            written = inner.written.get(family)
            if written is not None:
                more = inner.memory.get(family, (0, 0))
                if tensor.dtype in DIFFERENTIABLE and written.holds(_base(tensor)):
                    gradient |= more[0]
                data |= more[1]
            trace = self.put(inner, tensor, gradient, data, 0, BEFORE_THE_FORWARD)
        return trace

    def _relatives(self, scope: Scope, tensor: Tensor, family: Family) -> tuple[int, int] | None:
        """The masks that a tensor inherits in this level from those that share its memory, or from
        the child that made it; None if the level knows neither."""
        masks = scope.memory.get(family)
        if masks is not None:
            gradient, data = masks
            if tensor.dtype not in DIFFERENTIABLE or (
                not tensor.requires_grad and any(member.requires_grad for member in family.living())
            ):
                gradient = 0  # a detached view
            return gradient, data
        owner = scope.indices.owner(family.origin)
        if owner is None:
            return None
        bit = scope.bit(End("node", owner), implicit=True)
        last = family.members.get(id(tensor))
        if last is not None and last.ref() is tensor:
            if last.late:
                last.settle(tensor)
            return (bit if last.gradient else 0), bit
        return (bit if tensor.dtype in DIFFERENTIABLE else 0), bit

    def _same_address(self, family: Family, tensor: Tensor) -> Family | None:
        """The family whose memory this storage has borrowed: a tensor made from a numpy array or a
        dlpack capsule has a storage of its own at the address of the first."""
        anchor = family.anchor()
        if family.placed or anchor is None or anchor is tensor or anchor.resizable():
            return None
        for other in self._unplaced:
            storage = other.anchor()
            if storage is None or isinstance(storage, Tensor):
                continue
            other.placed = True
            address = _address(storage)
            first = self._addresses.get(address)
            if address and (first is None or first.anchor() is None):
                self._addresses[address] = other
        self._unplaced = []
        return self._addresses.get(_address(anchor))


def _appears_twice(tensor: Tensor, tensors: list[Tensor]) -> bool:
    return sum(tensor is other for other in tensors) > 1


def _address(storage: torch.UntypedStorage) -> int:
    """Where a storage lies in memory, 0 if nowhere."""
    try:
        return storage.data_ptr()
    except RuntimeError:  # storages of fake tensors and of wrapper subclasses have none
        return 0


def _base(tensor: Tensor) -> Tensor:
    """The tensor that autograd takes this one as a view of, itself if it is none."""
    base = tensor._base
    return tensor if base is None else base


def _size(tensor: Tensor) -> int:
    try:
        return tensor.numel()
    except RuntimeError:  # nested tensors of the old kind may have no size
        return 0
