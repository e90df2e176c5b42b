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

import gc
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from .assemble import Assembler
from .background import Background
from .budget import is_due
from .capture.calls import Call
from .capture.dynamo import EAGER, is_compiled
from .capture.edges import node_behind
from .capture.forward import ForwardCapture
from .capture.fused import mark_fused
from .capture.graph import GraphBuilder
from .capture.private import (
    current_graph_task,
    missing,
    queue_backward_callback,
    without_torch_function,
)
from .capture.surroundings import NotObserved, hindrance, writes_here
from .capture.survey import Survey, survey
from .capture.trampoline import Trampoline
from .events import graph_values
from .faults import Faults
from .options import WatchOptions
from .record import Forward, Record
from .sampling import Sampler
from .schema import Graph, Phase, StepInfo
from .stepping import follow, unfollow

_SESSION = uuid.uuid4().hex[:12]
_MAX_TRACES = 8
"""Traced forwards in a row to see an invocation again, or for known ones in ever new orders."""

_MAX_MISSED = 2
"""Logged steps in a row without a forward in sight that are made up for at the next step."""

_NO_FORWARD = (
    "optimizer steps, but no forward of the model was seen. Is it called inside a compiled function, by "
    "its .forward(), by copies of it, or in another process? Parameters are recorded all the same"
)

_MAX_PASSED_BY = 20
"""Forwards of other threads that wait for the end of a step which one thread has begun."""

_MAX_FORWARDS = 3
"""Forwards of a step that are looked at while none has seen a backward yet."""


class Ended(NamedTuple):
    """What a watch leaves to a later one of the same name: its next step, and its graph, whose indices
    are on disk."""

    step: int
    builder: GraphBuilder


class Watch:
    """A watched model. Also a context manager that unwatches at the end of its block.

    Made by `ExplorerWriter.watch`. `step` is the number of the step that the model is in.
    """

    def __init__(
        self,
        model: nn.Module,
        name: str,
        options: WatchOptions,
        thread: Background,
        ended: Ended | None = None,
    ) -> None:
        absent = missing()
        if absent:
            raise RuntimeError(
                f"watch: torch {torch.__version__} has no {', '.join(absent)}; use a supported version"
            )
        self.name = name
        self.options = options
        self.step = options.start_step
        self._root = weakref.ref(model)
        self._thread = thread
        self._pid = os.getpid()
        self._faults = Faults()
        self._sampler = Sampler(options.sample_n, exact=options.exact)
        self._eval_sampler = Sampler(options.sample_n, exact=options.exact, seed=1)
        self._builder = GraphBuilder(name, options.log, options.bins, options.summary(), options.excluded)
        if ended is not None:
            self._builder.go_on(ended.builder)
        self._assembler = Assembler(
            name, options.bins, options.reject_outlier_proportion, lambda: thread.dropped
        )
        self._record: Record | None = None
        self._signatures: set[int] = set()
        self._pending = True
        self._traced: set[str] = set()
        self._untraced: set[str] = set()
        self._tries = self._orders = 0
        self._active = False
        self._closed = False
        self._ever_trained = False
        self._by_optimizer = options.optimizer is not None
        self._searched = False
        self._steppers: weakref.WeakKeyDictionary[Optimizer, tuple[int, bool]] = weakref.WeakKeyDictionary()
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._tasks: set[int] = set()
        self._forwards = 0
        self._recorded = False
        self._written = 0
        self._evaluations = 0
        self._evaluating = False
        self.follows = False
        self._missed = 0
        self._dropped = 0
        self._version: tuple[weakref.ref[Tensor], int] | None = None
        self._unseen = 0
        self._stepping = False
        self._uncounted = False
        self._deciding = threading.Lock()
        self._slot = weakref.ref(Trampoline(model, self))
        follow(self)
        self._begin_step()

    # --- public ----------------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module | None:
        """The watched model, None once it is gone."""
        return self._root()

    @property
    def faults(self) -> Faults:
        """Errors of our own while recording; training went on."""
        return self._faults

    @property
    def recorded(self) -> int:
        """How many records of both phases were handed to the record thread so far."""
        return self._written

    @property
    def ended(self) -> Ended:
        """What a later watch of the same name goes on with."""
        return Ended(self.step, self._builder)

    def __reduce__(self) -> Any:
        """Copies and pickles of whatever holds a watch get None: they are not watched."""
        return type(None), ()

    def close(self) -> None:
        """Stop watching and leave the model as it was. A step that no optimizer has ended is dropped,
        unless nothing has been written yet."""
        if self._closed:
            return
        self._closed = True
        unfollow(self)
        if self._record is not None:
            if self._written and self._by_optimizer:
                self._drop(self._record)
            else:
                self._finish(self._record)
        EAGER.release(self)
        slot = self._slot()
        if slot is not None:
            slot.remove()

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
            return None
        root = self._root()
        if root is None or self._is_busy_elsewhere(True) or not self._deciding.acquire(blocking=False):
            return None
        phase: Phase | None
        try:
            if torch.is_grad_enabled() and (root.training or not self._ever_trained):
                phase = self._training_due(root)
            else:
                phase = self._evaluation_due()
            return None if phase is None or self._hindered(root, phase, compiled) else phase
        except Exception as error:
            self._faults.report("", "the choice of forwards", error)
            return None
        finally:
            self._deciding.release()

    def _is_busy_elsewhere(self, forward: bool = False) -> bool:
        """Whether another thread is in the middle of a logged step (Hogwild): it has it for itself. But not
        for ever: that thread may have run a single `forward`."""
        record = self._record
        if record is None or record.thread is threading.current_thread() or not record.thread.is_alive():
            return False
        if current_graph_task() is not None:  # a backward has threads of its own
            return False
        record.passed_by += forward
        if record.passed_by > _MAX_PASSED_BY:
            self._drop(record)
            self._recorded = False
            return False
        return True

    def _training_due(self, root: nn.Module) -> Phase | None:
        record = self._record
        if root.training and not self._ever_trained:
            self._ever_trained = True
            if record is not None and record.forwards and not record.backward:
                self._was_evaluation(record)
        elif record is not None and not record.forwards:
            self._drop(record)  # of parameters alone, and here comes a forward: a closure
        elif record is not None and record.cut_short:
            self._drop(record)
            self._recorded, record = False, None
        self._evaluating = False
        if self._version is not None:
            self._notice_unseen_step(*self._version)
            record = self._record
        self._tasks.clear()  # an exception may have cut a backward short
        self._forwards += 1
        if (self._recorded and not self._looks_again()) or not self._is_logged_step():
            self.follows = self._searched and not self._by_optimizer
            if self._forwards > 2 * _MAX_FORWARDS and record is not None and not record.backward:
                EAGER.release(self)  # no training, it seems
            return None
        self._recorded = True
        return "train"

    def _is_logged_step(self) -> bool:
        # A logged step without a forward in sight is made up for, but not for ever.
        return self._is_due() or 0 < self._missed <= _MAX_MISSED

    def _is_due(self) -> bool:
        return is_due(self.step, self.options.log_freq, self.options.max_records)

    def _looks_again(self) -> bool:
        """Whether the forwards recorded so far may turn out to have no backward: a generator whose
        result is detached for the discriminator runs once more for its own loss."""
        record = self._record
        return record is not None and not record.backward and 0 < len(record.forwards) < _MAX_FORWARDS

    def _was_evaluation(self, record: Record) -> None:
        """Forwards in eval mode came before the training, with gradients enabled by oversight."""
        record.phase = "eval"
        self._sampler, self._eval_sampler = self._eval_sampler, self._sampler
        self._finish(record)
        self._forwards = 0
        self._recorded = False

    def _evaluation_due(self) -> Phase | None:
        if self._record is None:
            EAGER.release(self)
        first = not self._evaluating
        self._evaluating = True
        if not first:
            return None
        due = not self._builder.nodes and self._record is None
        if self.options.eval_freq is not None:
            due = due or self._evaluations % self.options.eval_freq == 0
        self._evaluations += 1
        return "eval" if due else None

    def _hindered(self, root: nn.Module, phase: Phase, compiled: bool) -> bool:
        """Whether a forward that is due can't be looked at."""
        if not writes_here():
            return True
        if self.options.compiled == "skip" and (compiled or any(is_compiled(m) for m in root.modules())):
            reason = ""
        else:
            reason = hindrance()
            if not reason:
                return False
        if phase == "train":
            self._recorded = False
        if reason:
            self._faults.report("", "a forward", NotObserved(reason))
        return True

    def passed(self, result: Any) -> None:
        try:
            self._note_backward(result)
        except Exception as error:
            self._faults.report("", "the count of backward passes", error)

    def logged(
        self, plain: Callable[..., Any], phase: Phase, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        forward = None
        root = self._root()
        self._active = True
        try:
            assert root is not None  # it is being called
            if self.options.compiled == "eager":
                EAGER.hold(self)
            seen, forward = self._prepare(root, phase)
        except Exception as error:
            self._faults.report("", "the start of a logged step", error)
        try:
            if forward is None:
                return plain(*args, **kwargs)
            try:
                result = forward.run(plain, args, kwargs, self._backward_started)
            except BaseException:
                # The user's own, or an interrupt: the step may be tried again.
                if phase == "train" and self._record is None:
                    self._recorded = False
                raise
            try:
                self._after_forward(forward, seen, phase)
            except Exception as error:
                self._faults.report("", "the end of a logged forward", error)
            return result
        finally:
            self._active = False
            if phase == "eval" and self._record is None:
                EAGER.release(self)

    def _prepare(self, root: nn.Module, phase: Phase) -> tuple[Survey, ForwardCapture]:
        traced = self._pending
        seen = self._surveyed(root, anew=traced)
        hooked = seen.paths if traced or not self.options.selective else self._hooked(seen)
        # A training record may be open while an evaluation runs.
        sampler = self._eval_sampler if phase == "eval" else self._sampler
        if phase == "eval" or self._record is None:
            sampler.begin()
        log = self.options.log
        forward = ForwardCapture(
            root,
            hooked,
            sampler,
            self._wanted,
            self._faults.report,
            values="io" in log,
            gradients="io_grad" in log and phase == "train",
            traced=traced,
            root_input_grad=self.options.root_input_grad,
        )
        return seen, forward

    def _surveyed(self, root: nn.Module, *, anew: bool) -> Survey:
        slot = self._slot()
        seen = survey(root, None if anew or slot is None else slot.kept)
        if slot is not None:
            slot.kept = seen
        return seen

    def _wanted(self, call: Call) -> bool:
        return not (self.options.selective and self.options.excluded(call.path, call.module))

    def _hooked(self, seen: Survey) -> dict[nn.Module, str]:
        """The modules to look at, and those above them, whose calls the ids are made of."""
        keep = {""}
        for module, path in seen.paths.items():
            if not self.options.excluded(path, module):
                while path not in keep:
                    keep.add(path)
                    path = path.rpartition(".")[0]
        return {module: path for module, path in seen.paths.items() if path in keep}

    def _after_forward(self, forward: ForwardCapture, seen: Survey, phase: Phase) -> None:
        calls = forward.calls
        self._news_of_calls(calls)
        if phase == "eval":
            mark_fused(calls, self._builder.was_called)
        nodes = self._builder.add_calls(calls, seen)
        self._builder.add_uncalled(seen)
        if phase == "eval":
            record = self._open(phase, seen)
            record.forwards.append(Forward(forward, nodes))
            self._finish(record)
            return
        if self._record is None:
            self._record = self._open(phase, seen)
        self._record.forwards.append(Forward(forward, nodes))
        if self._stepping and not self._record.parameters:  # within a closure, before the update
            self._record.take_parameters(self.options.excluded, complete=False)
        if not self._written:
            self._write_graph()

    def _open(self, phase: Phase, seen: Survey) -> Record:
        sampler = self._eval_sampler if phase == "eval" else self._sampler
        return Record(self.step, phase, seen, self.options.log, self._builder, sampler, self._faults)

    def _news_of_calls(self, calls: list[Call]) -> None:
        """Decide whether the next logged forward is to be traced: while invocations are known of which
        none was (a rare branch may take several tries), or where known ones came in a new order."""
        signature = hash(tuple((call.id, len(call.inputs), len(call.outputs)) for call in calls))
        ids = {call.id for call in calls}
        if self._pending:
            self._signatures.add(signature)
            self._traced |= ids
            self._untraced -= ids
            self._tries -= 1
        elif not ids <= self._traced:
            self._untraced |= ids - self._traced
            self._tries = _MAX_TRACES
        elif signature in self._signatures:
            self._orders = 0
        elif self._orders < _MAX_TRACES:
            self._orders += 1
            self._pending = True
            return
        self._pending = bool(self._untraced) and self._tries > 0

    # --- backward --------------------------------------------------------------------------------

    def _backward_started(self) -> None:
        task = current_graph_task()
        if task is not None and task not in self._tasks:
            self._tasks.add(task)
            queue_backward_callback(lambda: self._backward_ending(task, again=True))

    def _backward_ending(self, task: int, again: bool) -> None:
        if again:
            # Once more, behind the callbacks that were queued since: DDP reduces gradients in one.
            queue_backward_callback(lambda: self._backward_ending(task, again=False))
            return
        self._tasks.discard(task)
        if self._tasks:
            return  # the backward of a checkpointed part, inside of another
        try:
            self._backward_ended()
        except Exception as error:
            self._faults.report("", "the end of a backward", error)

    def _backward_ended(self) -> None:
        record = self._record
        if record is not None:
            record.backward = True
        if not self._by_optimizer and not self._searched:
            self._searched = True
            self._by_optimizer = any(
                issubclass(type(found), Optimizer) and self._touches(found) for found in gc.get_objects()
            )
        if self._by_optimizer:
            # What comes now is not ours to run eagerly, like a compiled step of the optimizer.
            EAGER.release(self)
            if not self._stepping:
                self._version = self._parameter_version()
            return
        if record is not None:
            record.take_parameters(self.options.excluded)
            self._finish(record)
        self._advance()

    def _parameter_version(self) -> tuple[weakref.ref[Tensor], int] | None:
        """A parameter with a gradient, and how often it has been written to."""
        root = self._root()
        for parameter in root.parameters() if root is not None else ():
            if parameter.grad is not None:
                return weakref.ref(parameter), parameter._version
        return None

    def _notice_unseen_step(self, reference: weakref.ref[Tensor], version: int) -> None:
        """An optimizer whose step is compiled runs no hooks of ours. But the parameters change from one
        forward to the next; where that happens twice without a step, count backward passes instead."""
        parameter = reference()
        if parameter is None or parameter._version == version:
            return
        self._version = (reference, parameter._version)
        self._unseen += 1
        if self._unseen < 2:
            return
        self._version = None
        self._by_optimizer, self._searched, self._uncounted = False, True, True
        if self._record is not None:
            self._finish(self._record)
        self._advance()

    def _note_backward(self, result: Any) -> None:
        """Without an optimizer, steps between logged ones are counted by a hook on one graph node."""
        if isinstance(result, dict):
            result = list(result.values())
        candidates = result if isinstance(result, (tuple, list)) else (result,)
        with without_torch_function():
            for tensor in candidates:
                node = None
                if isinstance(tensor, Tensor) and tensor.requires_grad:
                    node = node_behind(tensor)
                if node is not None:
                    node.register_prehook(_once(self._backward_started))
                    return

    # --- optimizers ------------------------------------------------------------------------------

    def _touches(self, optimizer: Optimizer) -> bool:
        """Whether the optimizer holds a parameter of the model, in the process that watches it."""
        if os.getpid() != self._pid or self._is_busy_elsewhere():
            return False
        if self.options.optimizer is not None:
            return optimizer is self.options.optimizer
        root = self._root()
        if root is None:
            return False
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._steppers.get(optimizer)
        if known is None or known[0] != count:
            mine = {id(parameter) for parameter in root.parameters()}
            touches = any(id(p) in mine for group in optimizer.param_groups for p in group["params"])
            known = self._steppers[optimizer] = (count, touches)
        return known[1]

    def before_step(self, optimizer: Optimizer, closure: bool) -> None:
        """See `stepping.Follower`."""
        try:
            if self._touches(optimizer):
                if self._by_optimizer or not self._searched:
                    self._open_without_forward(optimizer)
                self._by_optimizer = self._stepping = True
                self._version = None
                if self._record is not None and not self._record.parameters:
                    self._record.take_parameters(self.options.excluded, complete=not closure)
                    self._record.take_fused_scale(optimizer)
        except Exception as error:
            self._faults.report("", "the start of an optimizer step", error)

    def after_step(self, optimizer: Optimizer) -> None:
        """See `stepping.Follower`."""
        try:
            if self._touches(optimizer):
                self._stepped_by(optimizer)
        except Exception as error:
            self._faults.report("", "the end of an optimizer step", error)

    def before_scaler(self, optimizer: Optimizer, scale: Tensor) -> None:
        """See `stepping.Follower`."""
        try:
            record = self._record
            if record is not None and self._touches(optimizer):
                record.take_scale(scale)
        except Exception as error:
            self._faults.report("", "the loss scale", error)

    def after_scaler(self, optimizer: Optimizer, stepped: bool) -> None:
        """See `stepping.Follower`."""
        try:
            if not stepped and self._touches(optimizer):
                self._by_optimizer = True
                if self._record is not None:
                    self._record.skipped = True
                    self._record.take_parameters(self.options.excluded)
                self._stepped_by(optimizer)
        except Exception as error:
            self._faults.report("", "a skipped optimizer step", error)

    def _stepped_by(self, optimizer: Optimizer) -> None:
        record = self._record
        self._version, self._unseen = None, 0
        self._stepping = self._uncounted = False
        if record is not None:
            if not record.parameters:
                record.take_parameters(self.options.excluded)
            elif not record.skipped:
                record.take_gradients()
                record.take_updates()
            self._finish(record)
        # Several optimizers may share one step: without a forward in between, only one that has
        # already stepped begins a new one.
        if self._forwards or optimizer in self._stepped or record is not None:
            self._advance()
        self._stepped.add(optimizer)

    def _open_without_forward(self, optimizer: Optimizer) -> None:
        """At a logged step whose forward could not be looked at, record the parameters alone."""
        root = self._root()
        if self._record is not None or root is None or not self._is_due() or not writes_here():
            return
        if not self._forwards and self._stepped and optimizer not in self._stepped:
            return  # the second optimizer of the step before
        if all(parameter.grad is None for parameter in root.parameters()):
            return
        seen = self._surveyed(root, anew=False)
        self._sampler.begin()
        self._builder.add_unobserved(root, seen)
        self._record = self._open("train", seen)
        if self._missed and not len(self._faults):
            self._faults.report("", "forwards", NotObserved(_NO_FORWARD))

    def _advance(self) -> None:
        if self._recorded or self.options.compiled == "skip":
            self._missed = 0
        elif self._is_logged_step():
            self._missed += 1
        self.step += 1
        self._forwards = 0
        self._recorded = False
        if self._record is not None:
            self._drop(self._record)
        self._stepped.clear()
        self._begin_step()

    def _begin_step(self) -> None:
        """Compiled functions that call the model pass us by, so they must run eagerly from the start of a
        logged step. The slot is taken again, should `model.compile()` have written over it."""
        slot, root = self._slot(), self._root()
        if root is not None and (slot is None or not slot.placed):
            self._slot = weakref.ref(Trampoline(root, self))
        eager = self.options.compiled == "eager" and not self._uncounted
        if eager and self._is_logged_step() and writes_here():
            EAGER.hold(self)
        else:
            EAGER.release(self)

    # --- the end of a record ---------------------------------------------------------------------

    def _finish(self, record: Record) -> None:
        """Hand the record to the record thread."""
        try:
            if os.getpid() == self._pid:
                finished = record.finished(self._info(record), self._news())
                with without_torch_function():
                    size = finished.size
                self._thread.submit(lambda: (self._assembler.values(finished), finished.info.step), size)
        except Exception as error:
            self._faults.report("", "the end of a logged step", error)
        finally:
            self._written += 1
            self._drop(record)

    def _drop(self, record: Record) -> None:
        record.close()
        if self._record is record:
            self._record = None

    def _news(self) -> Graph | None:
        """The graph, if it has changed, or if a record that may have held it was given up."""
        dropped = self._thread.dropped
        if not self._builder.changed and dropped == self._dropped:
            return None
        self._dropped = dropped
        return self._builder.snapshot()

    def _write_graph(self) -> None:
        """So that the tab shows the structure before the first step has ended."""
        graph, step = self._news(), self.step
        if graph is not None and os.getpid() == self._pid:
            self._thread.submit(lambda: (graph_values(graph), step), 512 * len(graph.nodes))

    def _info(self, record: Record) -> StepInfo:
        time_value = None
        root = self._root()
        if self.options.time_log is not None and root is not None:
            try:
                time_value = float(self.options.time_log[1](root, record.step))
            except Exception as error:
                self._faults.report("", "time_log", error)
        return StepInfo(
            step=record.step,
            wall=time.time(),
            time=time_value,
            forwards=max(self._forwards, 1),
            ran=record.ran,
            scale=None,
            skipped=record.skipped,
            dropped=0,
            session=_SESSION,
            faults=self._faults.list(),
        )


def _once(callback: Callable[[], None]) -> Callable[[Any], None]:
    done: list[bool] = []

    def hook(gradients: Any) -> None:
        if not done:
            done.append(True)
            callback()

    return hook
