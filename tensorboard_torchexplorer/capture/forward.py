"""One logged forward of the root: everything that looks at it, put on and taken off in one frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from ..sampling import Sampler
from ..schema import Status
from ..slots import Taken
from .attachments import Attachments
from .calls import Call, CallTree, Observer
from .gradients import GradientObserver
from .leaves import with_sources
from .recompute import Recompute
from .structure import StructureTracer
from .tap import PortKey, Report, Tap, parts_of, port_key
from .values import ValueObserver


class ForwardCapture:
    """Runs a forward and keeps what was seen of it.

    `hooked` are the modules to look at (module -> path). `wanted(call)` says whether a call's tensors
    are to be recorded; `values` and `gradients` which kinds; `traced` whether the edges between calls
    are to be found, too. `root_input_grad` runs the forward on copies of its inputs that require grad.
    `backward_started` is called by the first hook of each backward pass.
    """

    def __init__(
        self,
        root: nn.Module,
        hooked: Mapping[nn.Module, str],
        sampler: Sampler,
        wanted: Callable[[Call], bool],
        report: Report,
        *,
        values: bool,
        gradients: bool,
        traced: bool,
        root_input_grad: bool = False,
    ) -> None:
        self._root = root
        self._report = report
        self.sampler = sampler
        self._wanted = wanted
        self._values = ValueObserver(sampler, wanted) if values else None
        self._gradients = GradientObserver(wanted) if gradients else None
        self._tracer = StructureTracer(report) if traced else None
        self._attachments = Attachments(self._values, gradients, wanted, report)
        tracer = self._attachments.traced_by(self._tracer) if self._tracer is not None else None
        observers: list[Observer | None] = [self._values, tracer, self._gradients, self._attachments]
        self._tree = CallTree(root, hooked, [o for o in observers if o is not None], report)
        self._sources = gradients and root_input_grad
        self._tap: Tap | None = None
        self._attached: Tap | None = None
        self._recompute: Recompute | None = None

    @property
    def calls(self) -> list[Call]:
        return self._tree.calls

    @property
    def reached(self) -> bool:
        """Whether any gradient has come by."""
        return self._tap is not None and self._tap.reached

    @property
    def taken(self) -> dict[PortKey, Taken]:
        """The sampled values of each port."""
        return self._values.taken if self._values is not None else {}

    def run(
        self,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        backward_started: Callable[[], None],
    ) -> Any:
        """The result of `forward(*args, **kwargs)`, the very object; what it raises passes through."""
        if self._sources and torch.is_grad_enabled():
            try:
                args, kwargs = with_sources((args, kwargs))
            except Exception as error:
                self._report("", "the gradients of the inputs", error)
        try:
            with ExitStack() as stack:
                try:
                    stack.enter_context(self._tree.watching())
                except Exception as error:
                    self._report("", "the calls of modules", error)
                stack.enter_context(self._attachments.collecting())
                if self._tracer is not None:
                    # Entered last and left first: a dispatch mode must leave in the frame that entered it.
                    try:
                        stack.enter_context(self._tracer)
                    except Exception as error:
                        # A torch whose inner parts are not where they used to be: no edges, no more.
                        self._report("", "the graph of the forward", error)
                result = self._tree.seen(forward)(*args, **kwargs)
        finally:
            # An interrupt at the very beginning of its end has kept it from anything.
            if self._tracer is not None and self._tracer.entered:
                self._tracer.__exit__(None, None, None)
        try:
            if self._values is not None:
                self._values.forget()
            if self._tracer is not None:
                self._tracer.finish()
            if self._gradients is not None and torch.is_grad_enabled():
                norms = self.sampler.norms

                def started() -> None:
                    if self._recompute is not None:
                        self._recompute.begin()
                    backward_started()

                self._tap, hidden = self._gradients.arm(self.calls, norms, started, self._report)
                self._attached = self._attachments.arm(norms, started, self._report)
                if hidden:
                    self._recompute = Recompute(hidden, self._attachments.names, norms, started, self._report)
        except Exception as error:
            self._report("", "the graph of the forward", error)
        return result

    def port_keys(self) -> Iterator[PortKey]:
        """All ports of the calls that were wanted."""
        for call in self.calls:
            if self._wanted(call):
                for index in range(len(call.inputs)):
                    yield port_key(call.index, "input", index)
                for index in range(len(call.outputs)):
                    yield port_key(call.index, "output", index)

    def gradients(self) -> dict[PortKey, list[Taken]]:
        """The per-sample gradient norms of each port that a gradient reached, one per backward pass."""
        found = self._tap.results() if self._tap is not None else {}
        if self._attached is not None:
            found |= self._attached.results()
        if self._recompute is not None:
            found |= self._recompute.results()
        return found

    def expects_gradient(self, key: PortKey) -> bool:
        """Whether autograd could bring a gradient to this port."""
        return any(tap is not None and key in tap.ports for tap in (self._tap, self._attached))

    def why_no_gradient(self, key: PortKey, evaluation: bool, backward: bool) -> int:
        """The `Status` of a port that no gradient reached."""
        if evaluation:
            return Status.EVAL
        index, group, position = parts_of(key)
        call = self.calls[index]
        port = (call.inputs if group == "input" else call.outputs)[position]
        if not port.dtype.startswith(("float", "bfloat", "complex")):
            return Status.NOT_DIFFERENTIABLE
        if not port.requires_grad:
            at_root = call.parent is None and group == "input"
            return Status.ROOT_INPUT if at_root else Status.REQUIRES_NONE
        if not backward and self.expects_gradient(key):
            return Status.NO_BACKWARD
        return Status.NO_GRADIENT

    def close(self) -> None:
        """Take every hook away and let go of the graph."""
        for tap in (self._tap, self._attached):
            if tap is not None:
                tap.close()
        if self._recompute is not None:
            self._recompute.close()
