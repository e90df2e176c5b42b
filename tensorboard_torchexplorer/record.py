"""An open step in, what the record thread needs of it out."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .assemble import Finished
from .capture.forward import ForwardCapture
from .capture.graph import GraphBuilder
from .capture.private import quiet
from .capture.survey import Survey
from .capture.tap import parts_of
from .faults import Faults
from .identity import WeakIds
from .parameters import Parameters
from .sampling import Sampler
from .schema import Graph, Phase, Status, StepInfo
from .slots import Taken


class Forward(NamedTuple):
    """A forward that was looked at, and the node of each of its calls."""

    capture: ForwardCapture
    nodes: dict[int, int]


@dataclass
class Record:
    """A logged step that is not finished yet.

    `log` are the kinds to record; `builder` knows where each series lies, `sampler` holds what was taken.
    `forwards` are those looked at; `backward` says that a backward through one of them has ended; `stepped`
    are the optimizers that have stepped.
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
    stepped: WeakIds[torch.optim.Optimizer] = field(default_factory=WeakIds)
    thread: threading.Thread = field(default_factory=threading.current_thread)
    passed_by: int = 0

    def __post_init__(self) -> None:
        self.parameters = Parameters(self.log, self.builder, self.sampler, self.faults)

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
        return ranges(sorted({node for forward in self.forwards for node in forward.nodes.values()}))

    def close(self) -> None:
        """Take every hook away and let go of the graph."""
        for forward in self.forwards:
            forward.capture.close()

    # --- parameters ------------------------------------------------------------------------------

    def take_parameters(
        self,
        excluded: Callable[[str, nn.Module], bool],
        *,
        complete: bool = True,
        only: Collection[int] | None = None,
    ) -> None:
        """See `Parameters.take`."""
        self.parameters.take(self.survey, excluded, complete=complete, only=only)

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

    def finished(self, info: StepInfo, graph: Graph | None, graph_phase: Phase) -> Finished:
        """All that was taken, by series; ends the sampler's record."""
        builder = self.builder
        placed = _Placed()
        with quiet():
            forward = self.chosen
            if forward is not None:
                self._place_forward(forward, placed)
            else:
                for index, series in enumerate(builder.series):
                    if series.node >= 0:
                        placed.put(index, -Status.NOT_OBSERVED)
            updates = array("q")
            taken = self.parameters
            for entry, position, value, grad, after in zip(
                taken.entries, taken.positions, taken.values, taken.grads, taken.after, strict=True
            ):
                at = builder.series_of_module(entry)
                placed.put_at(at.values, position, value)
                placed.put_at(at.grads, position, grad)
                if value >= 0 and after is not None and after >= 0:
                    updates.extend((at.values[position], value, after))
            samples = self.sampler.finish()
        return Finished(
            self.phase,
            info,
            builder.series,
            len(builder.series),
            builder.nodes,
            len(builder.nodes),
            placed.sampled,
            placed.numbers,
            placed.several,
            placed.blank,
            placed.reasons,
            updates,
            samples,
            self.scale if self.scale is not None and self.scale >= 0 else None,
            self.parameters_scaled,
            self.found_inf if self.found_inf is not None and self.found_inf >= 0 else None,
            graph,
            graph_phase,
        )

    def _place_forward(self, forward: Forward, placed: _Placed) -> None:
        capture, builder = forward.capture, self.builder
        for key, value in capture.taken.items():
            call, group, position = parts_of(key)
            node = forward.nodes.get(call)
            if node is not None:
                placed.put_at(builder.series_of_node(node, group).values, position, value)
        if "io_grad" not in self.log:
            return
        gradients = capture.gradients()
        for key in capture.port_keys():
            call, group, position = parts_of(key)
            node = forward.nodes.get(call)
            at = builder.series_of_node(node, group).grads if node is not None else []
            if position >= len(at):
                continue
            passes = gradients.get(key)
            if not passes:
                placed.put(at[position], -capture.why_no_gradient(key, self.phase == "eval", self.backward))
                continue
            good = [taken for taken in passes if taken >= 0]
            placed.put(at[position], good[0] if good else passes[0])
            if len(good) > 1:
                placed.several[len(placed.sampled) - 1] = good


class _Placed:
    """Slots and reasons by series, see `Finished`."""

    def __init__(self) -> None:
        self.sampled = array("q")
        self.numbers = array("q")
        self.blank = array("q")
        self.reasons = array("q")
        self.several: dict[int, list[int]] = {}

    def put(self, series: int, taken: Taken) -> None:
        if taken >= 0:
            self.sampled.append(series)
            self.numbers.append(taken)
        else:
            self.blank.append(series)
            self.reasons.append(-taken)

    def put_at(self, series: list[int], position: int, taken: Taken) -> None:
        """The same by position among the ports of a node or the parameters of a module, if recorded."""
        if position < len(series):
            self.put(series[position], taken)


def ranges(indices: list[int]) -> list[list[int]]:
    """Ascending whole numbers as [first, count] ranges."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][0] + ranges[-1][1]:
            ranges[-1][1] += 1
        else:
            ranges.append([index, 1])
    return ranges
