"""The private names of torch that capture needs, in one place, each with its check.

`missing()` says which of them this torch lacks; `watch` then falls back or refuses with that text.
Everything here was checked on the torch versions that CI runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.autograd import Variable
from torch.utils._python_dispatch import _disable_current_modes

NO_TASK = -1
LEAF_SEQUENCE = 1 << 62
"""AccumulateGrad nodes carry a sequence number of about 2**64: no interval of a call holds them."""


def sequence_number() -> int:
    """The number that the next autograd node of this thread will get, without taking it."""
    return torch.autograd._get_sequence_nr()  # type: ignore[attr-defined, no-any-return]


def node_sequence(node: Any) -> int:
    """The sequence number of an autograd node."""
    return node._sequence_nr()  # type: ignore[no-any-return]


def current_graph_task() -> int | None:
    """The id of the backward that this thread runs in, None outside of one."""
    task: int = torch._C._current_graph_task_id()
    return None if task == NO_TASK else task


def current_autograd_node() -> Any:
    """The autograd node that this thread evaluates, None outside of a backward."""
    return torch._C._current_autograd_node()


def queue_backward_callback(callback: Callable[[], None]) -> None:
    """Run `callback` at the end of the running backward. RuntimeError outside of one."""
    Variable._execution_engine.queue_callback(callback)  # type: ignore[attr-defined]


@contextmanager
def quiet() -> Iterator[None]:
    """For our own arithmetic on the user's tensors: no graph, none of the user's or our modes sees it,
    and tensor subclasses act as plain tensors."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch._C.DisableTorchFunctionSubclass())
        if torch._C._len_torch_dispatch_stack():
            stack.enter_context(_disable_current_modes())
        yield


def missing() -> list[str]:
    """The private names that this torch does not have (empty on every supported version)."""
    wanted = (
        (torch.autograd, "_get_sequence_nr"),
        (torch._C, "_current_graph_task_id"),
        (torch._C, "_current_autograd_node"),
        (Variable._execution_engine, "queue_callback"),  # type: ignore[attr-defined]
        (torch.nn.Module, "_compiled_call_impl"),
        (torch.nn.Module, "_call_impl"),
    )
    return [name for owner, name in wanted if not hasattr(owner, name)]
