"""Optimizer steps and backward passes in; the steps of one watched model out.

A step ends with the step of an optimizer of the model, or with a backward where there is none. Parameters
and their gradients are read there, and the record that is open is finished.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from .backward_ends import Sentinel, call_at_end, call_at_start
from .budget import is_due
from .capture.dynamo import EAGER, is_loaded
from .capture.private import current_graph_task, gradient_of
from .capture.surroundings import NotObserved
from .identity import WeakIds
from .optimizers import Optimizers
from .record import Record
from .recording import Recording

_MAX_MISSED = 2
"""Logged steps in a row without a forward in sight that are made up for at the next step."""

_NO_FORWARD = (
    "optimizer steps, but no forward of the model was seen. Is it called inside a compiled function, by "
    "its .forward(), by copies of it, or in another process? Parameters are recorded all the same"
)

_MAX_PASSED_BY = 20
"""Forwards of other threads that wait for the end of a step which one thread has begun."""


class Steps:
    """Counts steps, and ends the record of each. A `stepping.Follower`.

    `number` is that of the step the model is in, `forwards` how many it has had so far, `looked` says
    whether one of them is looked at, `passed_by` whether one could not be, since another thread's was.
    `begins()`, held weakly, is called at the begin of each step.
    """

    def __init__(
        self, root: weakref.ref[nn.Module], recording: Recording, begins: Callable[[], None]
    ) -> None:
        self.number = recording.options.start_step
        self.forwards = 0
        self.looked = False
        self.passed_by = False
        self.optimizers = Optimizers(root, recording.options.optimizer)
        self._root = root
        self._recording = recording
        self._options = recording.options
        self._begins = weakref.WeakMethod(begins)
        self._pid = os.getpid()
        self._missed = 0
        self._stepping = False
        self._attempt: weakref.ref[Optimizer] | None = None
        self._within_backward = False
        self._stepped: WeakIds[Optimizer] = WeakIds()
        self._tasks: set[int] = set()
        self._whole = False
        self._sentinel: Sentinel | None = None

    # --- forwards --------------------------------------------------------------------------------

    @property
    def is_logged(self) -> bool:
        """Whether the step is to be recorded."""
        # A logged step without a forward in sight is made up for, but not for ever.
        return self._is_due() or 0 < self._missed <= _MAX_MISSED

    def _is_due(self) -> bool:
        return is_due(self.number, self._options.log_freq, self._options.max_records)

    def forward_begins(self) -> None:
        """A forward for training is about to begin."""
        self._count_missed()
        self._tasks.clear()  # an exception may have cut a backward short
        self.forwards += 1

    def _count_missed(self) -> None:
        """Steps may have passed us by. In a step function that is compiled as a whole nothing tells of them
        but the sentinel; there each backward is a step from then on, at whose end one that is due can still
        be made to run eagerly."""
        missed = self.optimizers.missed()
        if missed:
            self._whole = not self.forwards
            record = self._recording.record
            if record is not None:
                self._recording.finish(record, self.forwards)
            self.number += missed - 1
            self._advance()

    def forward_ended(self) -> None:
        """A forward for training was looked at and has returned."""
        record = self._recording.record
        if self._stepping and record is not None and not record.parameters:
            # Within a closure, before the update.
            record.take_parameters(self._options.excluded, complete=False)

    def is_busy_elsewhere(self, forward: bool = False) -> bool:
        """Whether another thread is in the middle of a logged step (Hogwild): it has it for itself. But not
        for ever: that thread may have run a single `forward`."""
        record = self._recording.record
        if record is None or record.thread is threading.current_thread() or not record.thread.is_alive():
            return False
        if current_graph_task() is not None:  # a backward has threads of its own
            return False
        record.passed_by += forward
        if record.passed_by > _MAX_PASSED_BY:
            self._recording.drop(record)
            self.looked = False
            return False
        return True

    # --- backward --------------------------------------------------------------------------------

    def follow(self, result: Any) -> None:
        """Notice a backward through the result of a forward that was not looked at."""
        call_at_start(result, self.backward_started)

    def backward_started(self) -> None:
        """Called inside a backward, any number of times."""
        call_at_end(self._tasks, self._backward_ended)

    def _backward_passed(self) -> None:
        """A backward is about to reach the sentinel's parameter."""
        try:
            if self._stepping or not (self.optimizers.known or self._whole):
                return  # within a closure, parameters move between backward passes
            if self.forwards and self._sentinel is not None:
                self.optimizers.watch_version(self._sentinel.parameter)
            elif current_graph_task() not in self._tasks and not self._is_elsewhere():
                self._count_missed()
                self.backward_started()
        except Exception as error:
            self._recording.faults.report("", "the count of backward passes", error)

    def _backward_ended(self) -> None:
        try:
            self._take_backward()
        except Exception as error:
            self._recording.faults.report("", "the end of a backward", error)

    def _take_backward(self) -> None:
        record = self._recording.record
        if record is not None:
            record.backward = True
            if self._within_backward:
                self._within_backward = False
                if not self._to_follow(record):
                    self._end(record)
                return
        if self._whole and not self.forwards:
            self._advance()
            return
        if not self._is_elsewhere():
            self.optimizers.search()
        if self.optimizers.known:
            # What comes now is not ours to run eagerly, like a compiled step of the optimizer.
            EAGER.release(self._recording)
            if not self._stepping:
                self.optimizers.gradients_complete()
            return
        if record is not None:
            self.finish(record)
        self._advance()

    def finish(self, record: Record) -> None:
        """The step of the record has ended: also what no optimizer has used is read."""
        try:
            record.take_parameters(self._options.excluded)
        except Exception as error:
            self._recording.faults.report("", "the parameters", error)
        self._recording.finish(record, self.forwards)

    # --- optimizers ------------------------------------------------------------------------------

    def _is_elsewhere(self) -> bool:
        """Whether what happens now is another process's, or another thread's that has a step of its own."""
        return os.getpid() != self._pid or self.is_busy_elsewhere()

    def _touches(self, optimizer: Optimizer) -> bool:
        """Whether the optimizer holds a parameter of the model, in the process that watches it."""
        return not self._is_elsewhere() and self.optimizers.touches(optimizer)

    def before_step(self, optimizer: Optimizer, closure: bool) -> None:
        """See `stepping.Follower`; so for the next three."""
        try:
            if self._touches(optimizer):
                self.end_of_those_that_wait(optimizer)
                if self.optimizers.known or not self.optimizers.searched:
                    self._open_without_forward(optimizer)
                self._stepping = True
                self.optimizers.stepping()
                record = self._recording.record
                if record is not None:
                    self._take_parameters(record, optimizer, complete=not closure)
                    record.take_fused_scale(optimizer)
        except Exception as error:
            self._recording.faults.report("", "the start of an optimizer step", error)

    def after_step(self, optimizer: Optimizer) -> None:
        try:
            if self._touches(optimizer):
                self._stepped_by(optimizer)
        except Exception as error:
            self._recording.faults.report("", "the end of an optimizer step", error)

    def before_scaler(self, optimizer: Optimizer, scale: Tensor) -> None:
        try:
            record = self._recording.record
            if record is not None and self._touches(optimizer):
                record.take_scale(scale)
        except Exception as error:
            self._recording.faults.report("", "the loss scale", error)

    def after_scaler(self, optimizer: Optimizer, stepped: bool) -> None:
        try:
            if not stepped and self._touches(optimizer):
                self.optimizers.known = True
                record = self._recording.record
                if record is not None:
                    record.skipped = True
                    self._take_parameters(record, optimizer)
                self._stepped_by(optimizer, updated=False)
        except Exception as error:
            self._recording.faults.report("", "a skipped optimizer step", error)

    def _take_parameters(self, record: Record, optimizer: Optimizer, *, complete: bool = True) -> None:
        """What an optimizer is about to use. Within a backward (one optimizer for each parameter saves the
        memory of gradients) only its own gradients are complete; else all are, but those of an optimizer
        that is to follow may still change."""
        # A step of the same optimizer that has not ended has raised, and is tried again.
        again = self._attempt is not None and self._attempt() is optimizer
        self._attempt = weakref.ref(optimizer)
        if record.stepped or again:
            record.parameters.take_again(self.optimizers.parameters_of(optimizer))
        only = None if current_graph_task() is None else self.optimizers.parameters_of(optimizer)
        record.take_parameters(self._options.excluded, complete=complete, only=only)

    def _to_follow(self, record: Record) -> list[Optimizer]:
        """The optimizers of the step before that have not stepped in this one, if those that have are among
        them. Which there are is learned, and not looked for: trainers wrap theirs in others, which never
        step."""
        if any(optimizer not in self._stepped for optimizer in record.stepped):
            return []
        return [optimizer for optimizer in self._stepped if optimizer not in record.stepped]

    def end_of_those_that_wait(self, optimizer: Optimizer | None = None) -> None:
        """A new step begins, with a forward or with a step of `optimizer`: if the record that is open has
        seen an optimizer step (of this one) and waits for others, they did not come."""
        record = self._recording.record
        if record is None or not record.stepped or self._stepping or current_graph_task() is not None:
            return
        if optimizer is None or optimizer in record.stepped:
            self._end(record)

    def _stepped_by(self, optimizer: Optimizer, *, updated: bool = True) -> None:
        record = self._recording.record
        self.optimizers.stepped()
        self._stepping, self._attempt = False, None
        if record is None:
            # Several optimizers may share one step: without a forward in between, only one that has
            # already stepped begins a new one.
            if self.forwards or optimizer in self._stepped:
                self._advance()
            self._stepped.add(optimizer)
            return
        if updated:
            record.parameters.take_gradients()
            record.parameters.take_updates(self.optimizers.parameters_of(optimizer))
        record.stepped.add(optimizer)
        if current_graph_task() is not None:
            self._within_backward = True
            self.backward_started()
        elif not self._to_follow(record):
            self._end(record)

    def _end(self, record: Record) -> None:
        """The step that was recorded has ended, with the optimizers that have stepped in it."""
        self.finish(record)
        self._place_sentinel()
        self._advance()
        self._stepped.update(record.stepped)

    def _open_without_forward(self, optimizer: Optimizer) -> None:
        """At a logged step whose forward could not be looked at, record the parameters alone."""
        root = self._root()
        if self._recording.record is not None or root is None or not self._is_due():
            return
        if not self._recording.is_recorded_here:
            return
        if not self.forwards and self._stepped and optimizer not in self._stepped:
            return  # the second optimizer of the step before
        if all(gradient_of(parameter) is None for parameter in root.parameters()):
            return
        self._recording.open_unobserved(root, self.number)
        if self._missed and not self.passed_by and not len(self._recording.faults):
            self._recording.faults.report("", "forwards", NotObserved(_NO_FORWARD))

    # --- from step to step -----------------------------------------------------------------------

    def _advance(self) -> None:
        if self.looked or self._options.compiled == "skip":
            self._missed = 0
        elif self.is_logged:
            self._missed += 1
        self.number += 1
        self.forwards = 0
        self.looked = self.passed_by = self._within_backward = False
        if self._recording.record is not None:
            self._recording.drop(self._recording.record)
        self._stepped.clear()
        self.begin()

    def begin(self) -> None:
        """Compiled functions that call the model pass us by, so they must run eagerly from the start of a
        logged step."""
        begins = self._begins()
        if begins is not None:
            begins()
        eager = self._options.compiled == "eager" and (self._whole or not self.optimizers.uncounted)
        if eager and self.is_logged and self._recording.is_recorded_here:
            EAGER.hold(self._recording)
        else:
            EAGER.release(self._recording)

    def _place_sentinel(self) -> None:
        """Step functions that are compiled as a whole are told of by nobody else."""
        root = self._root()
        if self._options.compiled != "eager" or not is_loaded() or root is None:
            return
        if self._sentinel is not None and self._sentinel.watches(root):
            return
        self.close()
        trained = [p for p in root.parameters() if type(p) is nn.Parameter and p.grad is not None]
        if trained:
            self._sentinel = Sentinel(min(trained, key=Tensor.numel), self._backward_passed)

    def close(self) -> None:
        """Take the hook of ours away."""
        if self._sentinel is not None:
            self._sentinel.remove()
            self._sentinel = None
