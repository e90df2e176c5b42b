"""Forwards that are looked at in, finished records out to the record thread."""

from __future__ import annotations

import os
import time
import uuid
import weakref
from typing import Any

from torch import nn

from .assemble import Assembler, Finished
from .background import Background
from .capture.by_module import ByModule
from .capture.calls import Call
from .capture.forward import ForwardCapture
from .capture.fused import mark_fused
from .capture.graph import GraphBuilder
from .capture.private import without_torch_function
from .capture.surroundings import writes_here
from .capture.survey import Survey, survey
from .capture.trampoline import Trampoline
from .events import graph_values
from .faults import Faults
from .options import WatchOptions
from .ranks import Sender, join
from .record import Forward, Record
from .retracing import Retracing
from .sampling import Sampler
from .schema import Graph, Phase, StepInfo

_SESSION = uuid.uuid4().hex[:12]


class Recording:
    """What is recorded of one watched model: its graph so far, and the record of the step that is open.

    `record` is that record, None while there is none; `written` counts those that were finished, `trained`
    says whether there was one of a training. `slot` is what stands in the slot of the model, and keeps its
    survey.
    """

    def __init__(
        self,
        root: weakref.ref[nn.Module],
        name: str,
        options: WatchOptions,
        thread: Background,
        before: GraphBuilder | None,
        trained: bool,
    ) -> None:
        self.options = options
        self.faults = Faults()
        self.builder = GraphBuilder(name, options.log, options.bins, options.summary(), options.excluded)
        if before is not None:
            self.builder.go_on(before)
        self.record: Record | None = None
        self.written = 0
        self.trained = trained
        self.slot: weakref.ref[Trampoline] | None = None
        self.outer = root
        self._root = root
        self._thread = thread
        self._pid = os.getpid()
        self._sampler = Sampler(options.sample_n, exact=options.exact)
        self._eval_sampler = Sampler(options.sample_n, exact=options.exact, seed=1)
        self._assembler = Assembler(
            name, options.bins, options.reject_outlier_proportion, lambda: thread.dropped
        )
        self._retracing = Retracing()
        self._dropped = 0
        self._exchange = join(name, self.faults) if options.ranks == "all" else None

    @property
    def is_recorded_here(self) -> bool:
        """Whether this process samples: the one that writes, or one that sends to it."""
        return self._exchange is not None or writes_here()

    # --- forwards --------------------------------------------------------------------------------

    def prepare(self, root: nn.Module, phase: Phase) -> tuple[ForwardCapture, Survey]:
        """What looks at a forward that is about to begin, and the modules of the model."""
        traced = self._retracing.pending
        seen = self._surveyed(root, anew=traced)
        hooked = seen.paths if traced or not self.options.selective else self._hooked(seen)
        # A training record may be open while an evaluation runs.
        sampler = self._sampler_of(phase)
        if phase == "eval" or self.record is None:
            sampler.begin()
        log = self.options.log
        forward = ForwardCapture(
            root,
            hooked,
            sampler,
            self._wanted,
            self.faults.report,
            values="io" in log,
            gradients="io_grad" in log and phase == "train",
            traced=traced,
            root_input_grad=self.options.root_input_grad,
        )
        return forward, seen

    @property
    def trampoline(self) -> Trampoline | None:
        """What stands in the slot, while the model lives."""
        return self.slot() if self.slot is not None else None

    def _surveyed(self, root: nn.Module, *, anew: bool) -> Survey:
        trampoline, outer = self.trampoline, self.outer()
        if outer is not None:
            root = outer
        seen = survey(root, None if anew or trampoline is None else trampoline.kept)
        if trampoline is not None:
            trampoline.kept = seen
        return seen

    def _sampler_of(self, phase: Phase) -> Sampler:
        return self._eval_sampler if phase == "eval" else self._sampler

    def _wanted(self, call: Call) -> bool:
        return not (self.options.selective and self.options.excluded(call.path, call.module))

    def _hooked(self, seen: Survey) -> ByModule[str]:
        """The modules to look at, and those above them, whose calls the ids are made of."""
        keep = {""}
        for module, path in seen.paths.items():
            if not self.options.excluded(path, module):
                while path not in keep:
                    keep.add(path)
                    path = path.rpartition(".")[0]
        return ByModule((module, path) for module, path in seen.paths.items() if path in keep)

    def add(self, forward: ForwardCapture, seen: Survey, phase: Phase, step: int, forwards: int) -> None:
        """A forward of `step`, the `forwards`th of it, has returned. One of an evaluation is a record."""
        calls = forward.calls
        self._retracing.note(calls)
        if phase == "eval":
            mark_fused(calls, self.builder.was_called)
        nodes = self.builder.add_calls(calls, seen)
        self.builder.add_uncalled(seen)
        if phase == "eval":
            record = self._open(phase, seen, step)
            record.forwards.append(Forward(forward, nodes))
            self.finish(record, forwards)
            return
        if self.record is None:
            self.record = self._open(phase, seen, step)
        self.record.forwards.append(Forward(forward, nodes))

    def open_unobserved(self, root: nn.Module, step: int) -> None:
        """A record of parameters alone."""
        seen = self._surveyed(root, anew=False)
        self._sampler.begin()
        self.builder.add_unobserved(root, seen)
        self.record = self._open("train", seen, step)

    def _open(self, phase: Phase, seen: Survey, step: int) -> Record:
        return Record(step, phase, seen, self.options.log, self.builder, self._sampler_of(phase), self.faults)

    def turn_to_evaluation(self, record: Record, forwards: int) -> None:
        """The open record turns out to be of an evaluation."""
        record.phase = "eval"
        self._sampler, self._eval_sampler = self._eval_sampler, self._sampler
        self.finish(record, forwards)

    # --- the end of a record ---------------------------------------------------------------------

    def finish(self, record: Record, forwards: int) -> None:
        """Hand the record, of a step with that many forwards, to the record thread."""
        try:
            if os.getpid() == self._pid:
                graph = self._news(record.phase)
                phase: Phase = "train" if self.trained else "eval"
                finished = record.finished(self._info(record, forwards), graph, phase)
                with without_torch_function():
                    size = finished.size
                self._thread.submit(lambda: self._values(finished), size)
        except Exception as error:
            self.faults.report("", "the end of a logged step", error)
        finally:
            self.written += 1
            self.drop(record)

    def _values(self, finished: Finished) -> tuple[list[Any], int] | None:
        """The values of the step's event. Runs on the record thread."""
        if isinstance(self._exchange, Sender):
            self._exchange.send(finished, self.builder.modules)
            return None
        if self._exchange is not None:
            try:
                finished = self._exchange.gathered(finished, self.builder.modules)
            except Exception as error:  # of the store: the others may be gone
                self.faults.report("", "values of other ranks", error)
        return self._assembler.values(finished), finished.info.step

    def end(self) -> None:
        """No more records will come."""
        if isinstance(self._exchange, Sender) and os.getpid() == self._pid:
            self._thread.submit(self._exchange.end, 0)

    def drop(self, record: Record) -> None:
        """Give the record up."""
        record.close()
        if self.record is record:
            self.record = None

    def write_graph(self, step: int, phase: Phase) -> None:
        """So that the tab shows the structure before the first step has ended. `phase` is what the step seems
        to be."""
        graph = self._news(phase)
        where: Phase = "train" if self.trained else "eval"
        if graph is not None and os.getpid() == self._pid and not isinstance(self._exchange, Sender):
            self._thread.submit(lambda: (graph_values(graph, where), step), 512 * len(graph.nodes))

    def _news(self, phase: Phase) -> Graph | None:
        """The graph, if it has changed, if a record that may have held it was given up, or if this is the
        first of a training: from then on it is written elsewhere."""
        dropped = self._thread.dropped
        begins = phase == "train" and not self.trained
        if not (begins or self.builder.changed or dropped != self._dropped):
            return None
        self.trained = self.trained or begins
        self._dropped = dropped
        return self.builder.snapshot()

    def _info(self, record: Record, forwards: int) -> StepInfo:
        time_value = None
        root = self._root()
        if self.options.time_log is not None and root is not None:
            try:
                time_value = float(self.options.time_log[1](root, record.step))
            except Exception as error:
                self.faults.report("", "time_log", error)
        return StepInfo(
            step=record.step,
            wall=time.time(),
            time=time_value,
            forwards=max(forwards, 1),
            ran=record.ran,
            scale=None,
            skipped=record.skipped,
            dropped=0,
            session=_SESSION,
            faults=self.faults.list(),
        )
