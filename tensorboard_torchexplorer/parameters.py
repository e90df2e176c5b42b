"""Parameters of a model in, slots of their values, gradients and updates in one record out."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .capture.by_module import ByModule
from .capture.graph import GraphBuilder
from .capture.private import gradient_of, quiet
from .capture.survey import Survey, own_parameters
from .faults import Faults
from .sampling import Sampler
from .schema import Status
from .slots import Taken


class Parameters:
    """The parameters of a record, as columns: the module's entry and the parameter's position in it, the
    slots of value and gradient, and of the value after the update (None before it).

    They are taken all at once, or by parts, where several optimizers step at different times.
    """

    def __init__(self, log: Collection[str], builder: GraphBuilder, sampler: Sampler, faults: Faults) -> None:
        self.entries: list[int] = []
        self.positions: list[int] = []
        self.values: list[Taken] = []
        self.grads: list[Taken] = []
        self.after: list[Taken | None] = []
        self._tensors: list[weakref.ref[Tensor]] = []
        self._first: dict[int, int] = {}
        self._gradients_due = False
        self._owners: dict[int, ByModule[str]] = defaultdict(ByModule)
        self._log = log
        self._builder = builder
        self._sampler = sampler
        self._faults = faults

    def __len__(self) -> int:
        return len(self.entries)

    def take(
        self,
        survey: Survey,
        excluded: Callable[[str, nn.Module], bool],
        *,
        complete: bool = True,
        only: Collection[int] | None = None,
    ) -> None:
        """Sample the parameters that were not taken yet (of the ids `only`, by default all) as they stand,
        and their gradients if those are `complete`; else `take_gradients` is to follow."""
        if "params" not in self._log and "params_grad" not in self._log:
            return
        self._gradients_due = not complete
        modules: Mapping[nn.Module, str] = survey.paths
        if only is not None:
            modules = self._modules_of(only, survey)
            if not modules:
                return
        before = set(self._first)
        with quiet():
            for module, path in modules.items():
                own = list(own_parameters(module))
                if all(id(parameter) in before for _, parameter in own) or excluded(path, module):
                    continue
                entry, position = self._builder.refresh(module, survey, own)
                for name, parameter in own:
                    key = id(parameter)
                    if key not in before and (only is None or key in only):
                        self._add(entry, position[name], path, parameter, complete)
            self._copy_noted()

    def _modules_of(self, wanted: Iterable[int], survey: Survey) -> Mapping[nn.Module, str]:
        """The modules that own parameters of these ids."""
        if not self._owners:
            for module, path in survey.paths.items():
                for _, parameter in own_parameters(module):
                    self._owners[id(parameter)][module] = path
        found: ByModule[str] = ByModule()
        for key in wanted:
            found.update(self._owners.get(key, ()))
        return found

    def _add(self, entry: int, position: int, path: str, parameter: Tensor, complete: bool) -> None:
        shared = self._first.get(id(parameter))
        if shared is None:
            self._first[id(parameter)] = len(self)
            value = self._sample("params", path, parameter)
            grad = self._sample("params_grad", path, parameter) if complete else -Status.NO_BACKWARD
        else:
            value, grad = self.values[shared], self.grads[shared]
        self.entries.append(entry)
        self.positions.append(position)
        self.values.append(value)
        self.grads.append(grad)
        self.after.append(None)
        self._tensors.append(weakref.ref(parameter))

    def take_again(self, only: Collection[int]) -> None:
        """Sample those of these ids that were taken before anew, with their gradients."""
        with quiet():
            self._sample_again("params", self.values, only)
            self._sample_again("params_grad", self.grads, only)
            self._copy_noted()

    def take_gradients(self) -> None:
        """Sample the gradients that `take` has left, as they stand."""
        if self._gradients_due:
            self._gradients_due = False
            with quiet():
                self._sample_again("params_grad", self.grads, None)
                self._copy_noted()

    def _sample_again(self, kind: str, column: list[Taken], only: Collection[int] | None) -> None:
        cache: dict[int, Taken] = {}
        for index, entry in enumerate(self.entries):
            parameter = self._tensors[index]()
            if parameter is None or (only is not None and id(parameter) not in only):
                continue
            if id(parameter) not in cache:
                cache[id(parameter)] = self._sample(kind, self._builder.modules[entry].path, parameter)
            column[index] = cache[id(parameter)]

    def take_updates(self, only: Collection[int] | None = None) -> None:
        """Sample the updated parameters (those with the ids `only`, by default all) at the same elements."""
        with quiet():
            for index, value in enumerate(self.values):
                parameter = self._tensors[index]()
                if parameter is None or value < 0 or gradient_of(parameter) is None:
                    continue
                if only is not None and id(parameter) not in only:
                    continue
                try:
                    self.after[index] = self._sampler.take(_local(parameter), value, later=True)
                except Exception as error:
                    self._missed(index, "an updated parameter", error)
            self._copy_noted()

    def _sample(self, kind: str, path: str, parameter: Tensor) -> Taken:
        """What is to be recorded of `kind`, "params" or "params_grad"."""
        if kind not in self._log:
            return -Status.NOT_RUN
        try:
            if is_lazy(parameter):
                return -Status.LAZY
            if kind == "params":
                return self._sampler.take(_local(parameter), later=True)
            gradient = gradient_of(parameter)
            if gradient is not None:
                return self._sampler.take(_local(gradient), later=True)
            if not parameter.requires_grad:
                return -Status.FROZEN
            return -Status.NO_GRADIENT if _local(parameter).numel() else -Status.EMPTY
        except Exception as error:
            self._faults.report(path, "a parameter", error)
            return -Status.FAULT

    def _copy_noted(self) -> None:
        """Copy the parameters and gradients that were only noted; a fault costs no other one its values."""
        failed = dict(self._sampler.copy_noted())
        if not failed:
            return
        for column in (self.values, self.grads, self.after):
            for index, taken in enumerate(column):
                if taken is not None and taken in failed:
                    column[index] = -Status.FAULT
                    self._missed(index, "a parameter", failed[taken])

    def _missed(self, index: int, what: str, error: Exception) -> None:
        """Report a fault by the path of the parameter's module."""
        self._faults.report(self._builder.modules[self.entries[index]].path, what, error)


def _local(tensor: Tensor) -> Tensor:
    """The shard of a distributed tensor that lies here."""
    to_local = getattr(tensor, "to_local", None)
    return to_local() if to_local is not None else tensor
