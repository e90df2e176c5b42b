"""An open step in, what the record thread needs of it out."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .assemble import Finished
from .capture.forward import ForwardCapture
from .capture.graph import GraphBuilder, SeriesKey
from .capture.private import quiet
from .capture.survey import Survey, own_parameters
from .capture.values import Taken
from .faults import Faults
from .packed import Slot
from .sampling import Sampler
from .schema import Graph, Phase, Status, StepInfo

Slots = dict[int, tuple[torch.device, list[Slot]]]


@dataclass
class _ParameterTaken:
    """A parameter of a record: where its entry is, and what was sampled."""

    module: int
    index: int
    value: Taken
    grad: Taken
    tensor: weakref.ref[Tensor]
    after: Taken | None = None


class Forward(NamedTuple):
    """A forward that was looked at, and the node of each of its calls."""

    capture: ForwardCapture
    nodes: dict[int, int]


@dataclass
class Record:
    """A logged step that is not finished yet.

    `log` are the kinds to record; `builder` knows where each series lies, `sampler` holds what was taken.
    `forwards` are those looked at; `backward` says that a backward through one of them has ended.
    """

    step: int
    phase: Phase
    survey: Survey
    log: Collection[str]
    builder: GraphBuilder
    sampler: Sampler
    faults: Faults
    forwards: list[Forward] = field(default_factory=list)
    backward: bool = False
    scale: Taken | None = None
    parameters_scaled: bool = False
    found_inf: Taken | None = None
    skipped: bool = False
    gradients_due: bool = False
    parameters: list[_ParameterTaken] = field(default_factory=list)
    thread: threading.Thread = field(default_factory=threading.current_thread)
    passed_by: int = 0

    @property
    def cut_short(self) -> bool:
        """Whether a backward began and, now that none runs, has not come to its end: it has raised."""
        return not self.backward and any(forward.capture.reached for forward in self.forwards)

    @property
    def chosen(self) -> Forward | None:
        """The first forward that a gradient has reached, else the first."""
        reached = (forward for forward in self.forwards if forward.capture.reached)
        return next(reached, self.forwards[0] if self.forwards else None)

    @property
    def ran(self) -> list[list[int]]:
        """The nodes that ran in any of the forwards, see `StepInfo.ran`."""
        return _ranges(sorted({node for forward in self.forwards for node in forward.nodes.values()}))

    def close(self) -> None:
        """Take every hook away and let go of the graph."""
        for forward in self.forwards:
            forward.capture.close()

    # --- parameters ------------------------------------------------------------------------------

    def take_parameters(self, excluded: Callable[[str, nn.Module], bool], *, complete: bool = True) -> None:
        """Sample all parameters as they stand, and their gradients if those are `complete`; else
        `take_gradients` is to follow."""
        if "params" not in self.log and "params_grad" not in self.log:
            return
        self.gradients_due = not complete
        cache: dict[int, tuple[Taken, Taken]] = {}
        with quiet():
            for module, path in self.survey.paths.items():
                own = list(own_parameters(module))
                if not own or excluded(path, module):
                    continue
                entry, position = self.builder.refresh(module, self.survey, own)
                for name, parameter in own:
                    taken = cache.get(id(parameter))
                    if taken is None:
                        value = self._take("params", path, parameter)
                        grad = self._take("params_grad", path, parameter) if complete else Status.NO_BACKWARD
                        taken = cache[id(parameter)] = value, grad
                    reference = weakref.ref(parameter)
                    self.parameters.append(_ParameterTaken(entry, position[name], *taken, reference))

    def take_gradients(self) -> None:
        """Sample the gradients that `take_parameters` has left, as they stand."""
        if not self.gradients_due:
            return
        self.gradients_due = False
        cache: dict[int, Taken] = {}
        with quiet():
            for taken in self.parameters:
                parameter = taken.tensor()
                if parameter is None:
                    continue
                if id(parameter) not in cache:
                    path = self.builder.modules[taken.module].path
                    cache[id(parameter)] = self._take("params_grad", path, parameter)
                taken.grad = cache[id(parameter)]

    def _take(self, kind: str, path: str, parameter: Tensor) -> Taken:
        """What is to be recorded of `kind`, "params" or "params_grad"."""
        if kind not in self.log:
            return Status.NOT_RUN
        try:
            if torch.nn.parameter.is_lazy(parameter):
                return Status.LAZY
            if kind == "params":
                return self.sampler.take(_local(parameter))
            if parameter.grad is not None:
                return self.sampler.take(_local(parameter.grad))
            return Status.NO_GRADIENT if parameter.requires_grad else Status.FROZEN
        except Exception as error:
            self.faults.report(path, "a parameter", error)
            return Status.FAULT

    def take_updates(self) -> None:
        """Sample the updated parameters at the same elements."""
        with quiet():
            for taken in self.parameters:
                parameter = taken.tensor()
                if parameter is not None and isinstance(taken.value, tuple) and parameter.grad is not None:
                    try:
                        taken.after = self.sampler.take(_local(parameter), taken.value[1].start)
                    except Exception as error:
                        self.faults.report("", "an updated parameter", error)

    def take_scale(self, scale: Tensor) -> None:
        """The loss scale that a scaler is about to divide the gradients of parameters by."""
        if self.scale is None:
            with quiet():
                self.scale = self.sampler.take(scale)

    def take_fused_scale(self, optimizer: torch.optim.Optimizer) -> None:
        """A fused optimizer divides by the scale itself, and looks itself whether to skip."""
        scale, found = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
        with quiet():
            if isinstance(scale, Tensor):
                self.scale = self.sampler.take(scale)
                self.parameters_scaled = True
            if isinstance(found, Tensor):
                self.found_inf = self.sampler.take(found)

    # --- the end ---------------------------------------------------------------------------------

    def finished(self, info: StepInfo, graph: Graph | None) -> Finished:
        """All that was taken, by series; ends the sampler's record."""
        builder = self.builder
        slots: Slots = {}
        blank: list[tuple[int, int]] = []

        def place(key: SeriesKey, taken: Taken) -> None:
            series = builder.series_of.get(key)
            if series is None:
                return
            if isinstance(taken, tuple):
                slots[series] = (taken[0], [taken[1]])
            else:
                blank.append((series, taken))

        with quiet():
            forward = self.chosen
            if forward is not None:
                self._place_forward(forward, place, slots)
            else:
                unseen = (i for i, series in enumerate(builder.series) if series.node >= 0)
                blank += [(i, Status.NOT_OBSERVED) for i in unseen]
            updates = []
            for taken in self.parameters:
                value = SeriesKey(-1, taken.module, "param", "value", taken.index)
                place(value, taken.value)
                place(value._replace(kind="grad"), taken.grad)
                if isinstance(taken.value, tuple) and isinstance(taken.after, tuple):
                    device, old = taken.value
                    updates.append((builder.series_of[value], device, old, taken.after[1]))
            packed = self.sampler.finish()
        return Finished(
            self.phase,
            info,
            builder.series,
            len(builder.series),
            builder.nodes,
            len(builder.nodes),
            list(slots),
            [its for _, its in slots.values()],
            [device for device, _ in slots.values()],
            blank,
            updates,
            packed,
            self.scale if isinstance(self.scale, tuple) else None,
            self.parameters_scaled,
            self.found_inf if isinstance(self.found_inf, tuple) else None,
            self.sampler.wide,
            graph,
        )

    def _place_forward(
        self, forward: Forward, place: Callable[[SeriesKey, Taken], None], slots: Slots
    ) -> None:
        capture = forward.capture
        for key, value in capture.taken.items():
            node = forward.nodes.get(key.call)
            if node is not None:
                place(SeriesKey(node, -1, key.group, "value", key.port), value)
        if "io_grad" not in self.log:
            return
        gradients = capture.gradients()
        for key in capture.port_keys():
            node = forward.nodes.get(key.call)
            if node is None:
                continue
            series = SeriesKey(node, -1, key.group, "grad", key.port)
            passes = gradients.get(key)
            if not passes:
                place(series, capture.why_no_gradient(key, self.phase == "eval", self.backward))
                continue
            good = [one for one in passes if isinstance(one, tuple)]
            place(series, good[0] if good else passes[0])
            if len(good) > 1:
                index = self.builder.series_of[series]
                slots[index] = (good[0][0], [slot for device, slot in good if device == good[0][0]])


def _local(tensor: Tensor) -> Tensor:
    """The shard of a distributed tensor that lies here."""
    to_local = getattr(tensor, "to_local", None)
    return to_local() if to_local is not None else tensor


def _ranges(indices: list[int]) -> list[list[int]]:
    """Ascending whole numbers as [first, count] ranges."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][0] + ranges[-1][1]:
            ranges[-1][1] += 1
        else:
            ranges.append([index, 1])
    return ranges
