"""Modules in, hooks of ours on them for a while out, of which nothing stays behind."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from .higher_order import stand_aside, stay
from .private import FORWARD_HOOKS, SLOT


class ForwardHooks:
    """Hooks on all `modules` for the length of a block: `before(module, args, kwargs)`, and
    `after(module, args, kwargs, result)` even if the call raises. They come last among the hooks of a module.
    Modules without all of torch's dictionaries of hooks, as after some ways to unpickle, get none. `slots`
    are what is to stand in the slots of other modules meanwhile.

    What `register_forward_pre_hook` and `register_forward_hook` do, without the handles: those are five
    objects each, and for some hundred modules they take longer than a whole idle step.
    """

    def __init__(
        self,
        modules: Collection[nn.Module],
        before: Callable[..., None],
        after: Callable[..., None],
        slots: Mapping[nn.Module, Callable[..., Any]] | None = None,
    ) -> None:
        self._modules = modules
        self._key = RemovableHandle(OrderedDict()).id
        self._before, self._after = _Hook(before), _Hook(after)
        self._copies = self._after.copies = _Copies(modules)
        self._slots = list(slots.items()) if slots is not None else []
        self._replaced: list[tuple[nn.Module, Any]] = []

    def __enter__(self) -> None:
        try:
            stand_aside(self._aside)
            self._place()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take(self._modules)
        self._take(self._copies.living())
        stay(self._aside)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        self._take(self._modules)
        try:
            yield
        finally:
            self._place()

    def _place(self) -> None:
        key = self._key
        for module in self._modules:
            own = module.__dict__
            if own.keys() >= FORWARD_HOOKS:
                own["_forward_pre_hooks"][key] = self._before
                own["_forward_pre_hooks_with_kwargs"][key] = True
                own["_forward_hooks"][key] = self._after
                own["_forward_hooks_with_kwargs"][key] = True
                own["_forward_hooks_always_called"][key] = True
        for module, slot in self._slots:
            self._replaced.append((module, module.__dict__.get(SLOT)))
            module.__dict__[SLOT] = slot

    def _take(self, modules: Collection[nn.Module]) -> None:
        for module in modules:
            own = module.__dict__
            for name in FORWARD_HOOKS:
                if name in own:
                    own[name].pop(self._key, None)
        while self._replaced:
            module, before = self._replaced.pop()
            if before is None:
                module.__dict__.pop(SLOT, None)
            else:
                module.__dict__[SLOT] = before


class _Hook(partial[None]):
    """A hook that stands on modules for a while. A model may be copied meanwhile, as by a forward that makes
    its teacher on the first call: the hook has to leave the copies, too. In a pickle its place is taken by
    something that does nothing, and needs nothing of ours to be loaded."""

    copies: _Copies | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        if self.copies is not None:
            self.copies.note(memo)
        return self

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")


class _Copies:
    """The copies of `modules` that are made while hooks stand on them."""

    def __init__(self, modules: Collection[nn.Module]) -> None:
        self._modules = modules
        self._originals: set[int] = set()
        self._found: dict[int, weakref.ref[nn.Module]] = {}

    def note(self, memo: dict[int, Any]) -> None:
        """A hook is being copied by `copy.deepcopy`, once for each module. Of those that have not been noted
        yet, the module that it stands on is the last one in the memo."""
        if not self._originals:
            self._originals = {id(module) for module in self._modules}
        for original, copy in reversed(memo.items()):
            if original in self._originals:
                known = self._found.get(id(copy))
                if known is None or known() is not copy:
                    self._found[id(copy)] = weakref.ref(copy)
                    return

    def living(self) -> list[nn.Module]:
        """Those that are still there."""
        return [copy for reference in self._found.values() if (copy := reference()) is not None]
