"""The private names of torch that capture needs, in one place, each with its check.

`missing()` says which of them this torch lacks; `watch` then refuses with that text. Everything here was
checked on torch 2.6 and 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import Variable, forward_ad
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _pop_mode, _push_mode

from .dynamo import out_of_regions

NO_TASK = -1
LEAF_SEQUENCE = 1 << 62
"""AccumulateGrad nodes carry a sequence number of about 2**64: no interval of a call holds them."""

_NEVER = (1 << 32) - 1
"""The last number that a counter of writes to a tensor's memory can hold."""


def sequence_number() -> int:
    """The number that the next autograd node of this thread will get, without taking it."""
    number: int = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
    return number


def node_sequence(node: Any) -> int:
    """The sequence number of an autograd node."""
    number: int = node._sequence_nr()
    return number


def node_name(node: Any) -> str:
    """The name of an autograd node, by its class: that of a custom Function is the very `ctx` on which the
    Function may have put a `name` of its own."""
    name: str = type(node).name(node)
    return name


def gradient_of(tensor: Tensor) -> Tensor | None:
    """Its `.grad`. That of a tensor which is no leaf, as a module's parameter may be that another network has
    made, is not asked for, since torch warns of it."""
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def outdate_node(view: Tensor) -> None:
    """Let autograd make the node of a view anew when it is next asked for it, as if never asked before: to
    that end the node is made once for a number of writes to its memory that there will never be."""
    version = view._version
    try:
        _set_version(view, _NEVER)
        view.grad_fn  # noqa: B018
    finally:
        _set_version(view, version)


def _set_version(tensor: Tensor, version: int) -> None:
    place: Any = torch._C._autograd._unsafe_set_version_counter
    try:
        place((tensor,), (version,))
    except TypeError:  # torch before 2.7
        place(tensor, version)


def current_graph_task() -> int | None:
    """The id of the backward that this thread runs in, None outside of one."""
    task: int = torch._C._current_graph_task_id()
    return None if task == NO_TASK else task


def current_autograd_node() -> Any:
    """The autograd node that this thread evaluates, None outside of a backward."""
    return torch._C._current_autograd_node()


def queue_backward_callback(callback: Callable[[], None]) -> None:
    """Run `callback` at the end of the running backward. RuntimeError outside of one."""
    Variable._execution_engine.queue_callback(out_of_regions(callback))


def without_torch_function() -> AbstractContextManager[Any]:
    """Inside, tensors act as plain ones: neither the `__torch_function__` of the user's subclasses nor
    the user's function modes run, not even for reading an attribute."""
    return torch._C.DisableTorchFunction()


@contextmanager
def unseen() -> Iterator[None]:
    """Inside, none of the user's or our modes sees an operator, but transforms and autograd do."""
    with ExitStack() as stack:
        stack.enter_context(without_torch_function())
        if torch._C._len_torch_dispatch_stack():
            stack.enter_context(_disable_current_modes())
        yield


def beneath(tensor: Tensor) -> Tensor:
    """The values under torch.func's transforms (vmap, grad, jvp): those of all samples, not of one."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def is_transformed(tensor: Tensor) -> bool:
    """Whether a transform of torch.func stands between the tensor and its values."""
    wrapped: bool = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return wrapped


def of_all_samples(tensor: Tensor) -> Tensor:
    """The tensor behind one that vmap maps over, which is what autograd knows, where the samples are its
    first dimension; else the tensor itself."""
    functorch = torch._C._functorch
    while functorch.is_batchedtensor(tensor) and functorch.maybe_get_bdim(tensor) == 0:
        tensor = functorch.get_unwrapped(tensor)
    return tensor


class quiet:
    """For our own arithmetic on the user's tensors: no graph and no tangents, none of the user's or our modes
    and transforms sees it, and tensor subclasses act as plain tensors. A class, since a generator costs three
    times as much and this runs in every hook."""

    __slots__ = ("_grad", "_mode", "_modes", "_plain", "_tangents", "_transforms")

    def __enter__(self) -> None:
        self._tangents = False
        self._mode = self._modes = self._transforms = None
        # First, since function modes see the change of the grad mode, too.
        self._plain = without_torch_function()
        self._plain.__enter__()
        self._grad = torch.is_grad_enabled()
        try:
            torch._C._set_grad_enabled(False)
            if forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled():
                self._tangents = True
                torch._C._set_fwd_grad_enabled(False)
            depth = torch._C._len_torch_dispatch_stack()
            if depth == 1:  # ours, while a forward is traced; the general way takes fifty times as long
                self._mode = torch._C._get_dispatch_stack_at(0)
                _pop_mode()
            elif depth:
                self._modes = _disable_current_modes()
                self._modes.__enter__()
            if torch._C._functorch.peek_interpreter_stack() is not None:
                # Otherwise vmap would map our operators, and grad refuse to write to our buffer.
                self._transforms = temporarily_clear_interpreter_stack()
                self._transforms.__enter__()
        except BaseException:  # an interrupt: whoever continues must find all as it was
            self.__exit__(None, None, None)
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self._transforms is not None:
                self._transforms.__exit__(kind, error, trace)
            if self._mode is not None and not torch._C._len_torch_dispatch_stack():
                _push_mode(self._mode)
            if self._modes is not None:
                self._modes.__exit__(kind, error, trace)
        finally:
            if self._tangents:
                torch._C._set_fwd_grad_enabled(True)
            torch._C._set_grad_enabled(self._grad)
            self._plain.__exit__(kind, error, trace)


@contextmanager
def without_mode(mode: TorchDispatchMode) -> Iterator[None]:
    """This dispatch mode is not active within the block, those above and below it are."""
    above = []
    while torch._C._len_torch_dispatch_stack():
        above.append(_pop_mode())
        if above[-1] is mode:
            break
    try:
        for other in reversed(above):
            if other is not mode:
                _push_mode(other)
        yield
    finally:
        for other in above:
            if other is not mode:
                _pop_mode()
        for other in reversed(above):
            _push_mode(other)


_LAZY = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative, torch._C.DispatchKey.ZeroTensor)


def run_operator(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator that a dispatch mode was told of. What torch does about tensors that are only
    marked as conjugated, negated or zero is off by then, having been done for the arguments. But some kernels
    mark tensors of their own, like those of `torch.linalg.pinv` and `lstsq` with complex numbers, and would
    give wrong results: so it is on again within."""
    if not torch._C._dispatch_tls_is_dispatch_key_excluded(_LAZY[0]):
        return operator(*args, **kwargs)
    exclude = torch._C._dispatch_tls_set_dispatch_key_excluded
    try:
        for key in _LAZY:
            exclude(key, False)
        return operator(*args, **kwargs)
    finally:
        for key in _LAZY:
            exclude(key, True)


def modes_let_compile() -> bool:
    """Whether torch can be told, as from 2.9 on, that a dispatch mode is not in the way of the compiler."""
    return hasattr(TorchDispatchMode, "supports_higher_order_operators")


def let_operators_through(mode: type[TorchDispatchMode]) -> None:
    """Let modes of this class see higher-order operators, too. Before torch 2.9 each operator has to know
    the class, or it raises."""
    if modes_let_compile():
        return
    for operator in list(torch._ops._higher_order_ops.values()):
        if mode not in operator.python_key_table:
            operator.py_impl(mode)(partial(_dispatched, operator))


def _dispatched(operator: Any, mode: Any, *args: Any, **kwargs: Any) -> Any:
    return mode.__torch_dispatch__(operator, (), args, kwargs)


FORWARD_HOOKS = frozenset(
    {
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
    }
)
"""A module's dictionaries of its forward hooks, and of how to call them."""

SLOT = "_compiled_call_impl"
"""The attribute that torch reads at every call of a module, in place of which it calls what is there."""


def missing() -> list[str]:
    """The private names that this torch does not have (empty on every supported version)."""
    wanted = (
        (torch.autograd, "_get_sequence_nr"),
        (torch._C._autograd, "_unsafe_set_version_counter"),
        (torch._C, "_current_graph_task_id"),
        (torch._C, "_current_autograd_node"),
        (Variable._execution_engine, "queue_callback"),
        (torch, "_foreach_copy_"),
        (torch.nn.Module, SLOT),
        (torch.nn.Module, "_call_impl"),
        *((torch.nn.Module(), name) for name in FORWARD_HOOKS),
        (torch.compiler, "set_stance"),
        (torch._C._functorch, "peek_interpreter_stack"),
        (torch._C._functorch, "is_functorch_wrapped_tensor"),
        (torch._C._functorch, "is_legacy_batchedtensor"),
        (torch._C, "_dispatch_tls_set_dispatch_key_excluded"),
        (forward_ad, "_current_level"),
        (torch._C, "_set_fwd_grad_enabled"),
    )
    return [name for owner, name in wanted if not hasattr(owner, name)]
