"""When to look: the steps of a training run in, finished records out.

A *step* is one optimizer step that touches the watched model; without an optimizer, one completed
backward. The first root forward of a logged step is recorded, with every backward pass through it;
further forwards of the same step (accumulation, a second batch) run untouched. Parameters and their
gradients are read at the optimizer's pre-step hook, where gradients are complete, reduced, unscaled (and
clipped), else at the end of the backward. Where the optimizer is given a closure, parameters are read
before its update and gradients after it.

Between logged steps nothing of ours is on the model but one callable in a slot that torch reads at every
call anyway.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import nn

from .background import Background
from .capture.dynamo import EAGER, is_compiled
from .capture.graph import GraphBuilder
from .capture.private import current_graph_task, missing
from .capture.surroundings import NotObserved, hindrance
from .capture.trampoline import Trampoline
from .faults import Faults
from .options import WatchOptions
from .recording import Recording
from .schema import Phase
from .stepping import follow, unfollow
from .steps import Steps

_MAX_FORWARDS = 3
"""Forwards of a step that are looked at while none has seen a backward yet."""


class Ended(NamedTuple):
    """What a watch leaves to a later one of the same name: its next step, its graph, whose indices are on
    disk, and whether it has recorded a training."""

    step: int
    builder: GraphBuilder
    trained: bool


class Watch:
    """A watched model. Also a context manager that unwatches at the end of its block.

    Made by `ExplorerWriter.watch`.
    """

    def __init__(
        self,
        model: nn.Module,
        name: str,
        options: WatchOptions,
        thread: Background,
        ended: Ended | None = None,
        outer: nn.Module | None = None,
    ) -> None:
        """`outer` is what `capture.wrappers` knows around `model`, if anything is."""
        absent = missing()
        if absent:
            raise RuntimeError(
                f"watch: torch {torch.__version__} has no {', '.join(absent)}; use torch 2.6 or newer"
            )
        self.name = name
        self.options = options
        self.follows = False
        self._root = weakref.ref(model)
        self._pid = os.getpid()
        self._recording = Recording(
            self._root, name, options, thread, ended and ended.builder, ended is not None and ended.trained
        )
        if outer is not None:
            self._recording.outer = weakref.ref(outer)
        self._steps = Steps(self._root, self._recording, self._place)
        self._active = False
        self._closed = False
        self._ever_trained = False
        self._evaluations = 0
        self._evaluating = False
        self._deciding = threading.Lock()
        follow(self._steps)
        self._steps.begin()

    def _place(self) -> None:
        """Take the slot of the model, also again: `model.compile()` may have written over it."""
        root, trampoline = self._root(), self._recording.trampoline
        if root is not None and (trampoline is None or not trampoline.placed):
            self._recording.slot = weakref.ref(Trampoline(root, self))

    # --- public ----------------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module | None:
        """The watched model, None once it is gone."""
        return self._root()

    @property
    def step(self) -> int:
        """The number of the step that the model is in."""
        return self._steps.number

    @property
    def faults(self) -> Faults:
        """Errors of our own while recording; training went on."""
        return self._recording.faults

    @property
    def recorded(self) -> int:
        """How many records of both phases were handed to the record thread so far."""
        return self._recording.written

    @property
    def ended(self) -> Ended:
        """What a later watch of the same name goes on with."""
        return Ended(self.step, self._recording.builder, self._recording.trained)

    def __reduce__(self) -> Any:
        """Copies and pickles of whatever holds a watch get None: they are not watched."""
        return type(None), ()

    def close(self) -> None:
        """Stop watching and leave the model as it was. A step that no optimizer has ended is dropped, unless
        nothing has been written yet. If the model was never in training mode, nor any backward run, it was an
        evaluation."""
        if self._closed:
            return
        self._closed = True
        unfollow(self._steps)
        self._steps.close()
        record = self._recording.record
        if record is not None:
            if self._recording.written and self._steps.optimizers.known and not record.stepped:
                self._recording.drop(record)
            elif record.forwards and not (self._ever_trained or record.backward or record.cut_short):
                self._recording.turn_to_evaluation(record, self._steps.forwards)
            else:
                self._steps.finish(record)
        self._recording.end()
        EAGER.release(self._recording)
        trampoline = self._recording.trampoline
        if trampoline is not None:
            trampoline.remove()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the trigger -----------------------------------------------------------------------------

    def due(self, compiled: bool) -> Phase | None:
        """See `Watcher`; so for the next two."""
        self.follows = False
        if self._active or self._closed or current_graph_task() is not None or os.getpid() != self._pid:
            self._steps.passed_by = True
            return None
        root = self._root()
        if root is None or self._steps.is_busy_elsewhere(True) or not self._deciding.acquire(blocking=False):
            self._steps.passed_by = True
            return None
        phase: Phase | None
        try:
            if torch.is_grad_enabled() and (root.training or not self._ever_trained):
                phase = self._training_due(root)
            else:
                phase = self._evaluation_due()
            return None if phase is None or self._hindered(root, phase, compiled) else phase
        except Exception as error:
            self._recording.faults.report("", "the choice of forwards", error)
            return None
        finally:
            self._deciding.release()

    def _training_due(self, root: nn.Module) -> Phase | None:
        self._steps.end_of_those_that_wait()
        record = self._recording.record
        if root.training and not self._ever_trained:
            self._ever_trained = True
            if record is not None and record.forwards and not record.backward:
                # Forwards in eval mode came before the training, with gradients enabled by oversight.
                self._recording.turn_to_evaluation(record, self._steps.forwards)
                self._steps.forwards = 0
                self._steps.looked = False
        elif record is not None and not record.forwards:
            self._recording.drop(record)  # of parameters alone, and here comes a forward: a closure
        elif record is not None and record.cut_short:
            self._recording.drop(record)
            self._steps.looked = False
        self._evaluating = False
        steps = self._steps
        steps.forward_begins()
        if (steps.looked and not self._looks_again()) or not steps.is_logged:
            self.follows = steps.optimizers.searched and not steps.optimizers.known
            record = self._recording.record
            if steps.forwards > 2 * _MAX_FORWARDS and record is not None and not record.backward:
                EAGER.release(self._recording)  # no training, it seems
            return None
        steps.looked = True
        return "train"

    def _looks_again(self) -> bool:
        """Whether the forwards recorded so far may turn out to have no backward: a generator whose
        result is detached for the discriminator runs once more for its own loss."""
        record = self._recording.record
        return record is not None and not record.backward and 0 < len(record.forwards) < _MAX_FORWARDS

    def _evaluation_due(self) -> Phase | None:
        if self._recording.record is None:
            EAGER.release(self._recording)
        first = not self._evaluating
        self._evaluating = True
        if not first:
            return None
        due = not self._recording.builder.nodes and self._recording.record is None
        if self.options.eval_freq is not None:
            due = due or self._evaluations % self.options.eval_freq == 0
        self._evaluations += 1
        return "eval" if due else None

    def _hindered(self, root: nn.Module, phase: Phase, compiled: bool) -> bool:
        """Whether a forward that is due can't be looked at."""
        if not self._recording.is_recorded_here:
            return True
        if self.options.compiled == "skip" and (compiled or any(is_compiled(m) for m in root.modules())):
            reason = ""
        else:
            reason = hindrance()
            if not reason:
                return False
        if phase == "train":
            self._steps.looked = False
        if reason:
            self._recording.faults.report("", "a forward", NotObserved(reason))
        return True

    def passed(self, result: Any) -> None:
        try:
            self._steps.follow(result)
        except Exception as error:
            self._recording.faults.report("", "the count of backward passes", error)

    def logged(
        self, plain: Callable[..., Any], phase: Phase, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        forward = None
        root = self._root()
        self._active = True
        try:
            try:
                assert root is not None  # it is being called
                if self.options.compiled == "eager":
                    EAGER.hold(self._recording)
                forward, seen = self._recording.prepare(root, phase)
            except Exception as error:
                self._recording.faults.report("", "the start of a logged step", error)
            if forward is None:
                return plain(*args, **kwargs)
            try:
                result = forward.run(plain, args, kwargs, self._steps.backward_started)
            except BaseException:
                # The user's own, or an interrupt: the step may be tried again.
                if phase == "train" and self._recording.record is None:
                    self._steps.looked = False
                raise
            try:
                self._recording.add(forward, seen, phase, self.step, self._steps.forwards)
                if phase == "train":
                    self._steps.forward_ended()
                    if not self._recording.written:
                        self._recording.write_graph(self.step, "train" if self._ever_trained else "eval")
            except Exception as error:
                self._recording.faults.report("", "the end of a logged forward", error)
            return result
        finally:
            self._active = False
            if phase == "eval" and self._recording.record is None:
                EAGER.release(self._recording)
