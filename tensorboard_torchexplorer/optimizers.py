"""A model in; whose steps are its steps out: which optimizers', or those of its backward passes."""

from __future__ import annotations

import weakref

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from .capture.private import gradient_of
from .identity import WeakIds
from .instances import instances_of


class Optimizers:
    """The optimizers of a model: `chosen`, or all that hold a parameter of it.

    `known` says that there is one, `searched` that it has been looked for. `uncounted` says that steps
    change the parameters which no optimizer tells of, being compiled, so that backward passes count.
    """

    def __init__(self, root: weakref.ref[nn.Module], chosen: Optimizer | None) -> None:
        self.known = chosen is not None
        self.searched = False
        self.uncounted = False
        self._root = root
        self._chosen = chosen
        self._seen: WeakIds[Optimizer] = WeakIds()
        self._found: dict[int, tuple[int, bool]] = {}  # by id, of those seen
        # By id: a reference, even a weak one, would keep `module.to()` from swapping the parameter.
        self._version: tuple[int, int] | None = None
        self._unseen = 0

    def touches(self, optimizer: Optimizer) -> bool:
        """Whether the optimizer holds a parameter of the model."""
        if self._chosen is not None:
            return optimizer is self._chosen
        root = self._root()
        if root is None:
            return False
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._found.get(id(optimizer)) if optimizer in self._seen else None
        if known is None or known[0] != count:
            mine = {id(parameter) for parameter in root.parameters()}
            touches = any(id(p) in mine for group in optimizer.param_groups for p in group["params"])
            known = self._found[id(optimizer)] = (count, touches)
            self._seen.add(optimizer)
        return known[1]

    def parameters_of(self, optimizer: Optimizer) -> set[int]:
        """The ids of the parameters that an optimizer holds. One that was chosen and holds none of the
        model's (copies of them, say) stands for all."""
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        root = self._root()
        if optimizer is self._chosen and root is not None:
            mine = {id(parameter) for parameter in root.parameters()}
            return held & mine or mine
        return held

    def search(self) -> None:
        """Look, once, for an optimizer that has not stepped yet among all of the process."""
        if not self.known and not self.searched:
            try:
                if any(self.touches(found) for found in instances_of(Optimizer)):
                    self.known = True
            finally:
                # Not before: another thread's backward may end meanwhile, and must not take it for done.
                self.searched = True

    # --- steps that nobody tells of --------------------------------------------------------------

    def gradients_complete(self) -> None:
        """A backward has ended: whatever writes to the parameters from now on is a step."""
        root = self._root()
        self._version = None
        for parameter in root.parameters() if root is not None else ():
            if gradient_of(parameter) is not None:
                self.watch_version(parameter)
                return

    def watch_version(self, parameter: Tensor) -> None:
        """The same by a parameter of the model that has a gradient."""
        self._version = id(parameter), parameter._version

    def stepping(self) -> None:
        """An optimizer tells of its step."""
        self.known = True
        self._version = None

    def stepped(self) -> None:
        """It has told of the end, too."""
        self._version, self._unseen = None, 0
        self.uncounted = False

    def missed(self) -> int:
        """How many steps have gone by untold: an optimizer whose step is compiled runs no hooks of ours, but
        the parameters change from one backward to the next. Where that happens twice without a step, backward
        passes count instead."""
        if self._version is None:
            return 0
        known, version = self._version
        root = self._root()
        parameters = root.parameters() if root is not None else ()
        parameter = next((parameter for parameter in parameters if id(parameter) == known), None)
        if parameter is None or parameter._version == version:
            return 0
        self._version = known, parameter._version
        self._unseen += 1
        if self._unseen < 2:
            return 0
        self._version = None
        self.known, self.searched, self.uncounted = False, True, True
        return self._unseen
