"""Backward passes in, calls at their beginning and at their end out."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .capture.dynamo import out_of_regions
from .capture.edges import leaf_edge, node_behind
from .capture.private import current_graph_task, queue_backward_callback, without_torch_function


def call_at_end(tasks: set[int], ended: Callable[[], None]) -> None:
    """Called inside a backward, any number of times: `ended()` once it is over. `tasks` are the ids of
    those that wait for their end; `ended` is called when it is empty. It must not raise."""
    task = current_graph_task()
    if task is not None and task not in tasks:
        tasks.add(task)
        # Queued again when its turn comes, behind the callbacks that were queued since: DDP reduces
        # gradients in one.
        queue_backward_callback(lambda: queue_backward_callback(lambda: _over(tasks, task, ended)))


def _over(tasks: set[int], task: int, ended: Callable[[], None]) -> None:
    tasks.discard(task)
    if not tasks:  # else this was the backward of a checkpointed part, inside of another
        with without_torch_function():
            ended()


class Sentinel:
    """Calls `passed()` in every backward that reaches a parameter, whoever runs it: also within compiled
    functions, which no hook of a module or an optimizer sees. The hook sits on the node that adds to the
    parameter's gradient, which all graphs share for as long as somebody holds it. Nothing else here refers
    to the parameter: `torch.utils.swap_tensors`, and so `module.to()`, refuses one with a weak reference."""

    def __init__(self, parameter: Tensor, passed: Callable[[], None]) -> None:
        """`passed` is a bound method."""
        self._node, _ = leaf_edge(parameter)
        # Held weakly: from a node on, a cycle runs through C++, where Python's collector can't see it.
        method = weakref.WeakMethod(passed)

        def hook(gradients: Any) -> None:
            call = method()
            if call is not None:
                call()

        self._handle = self._node.register_prehook(out_of_regions(hook))

    @property
    def parameter(self) -> Tensor:
        """The parameter, or what has taken its place in the node."""
        parameter: Tensor = self._node.variable
        return parameter

    def watches(self, module: nn.Module) -> bool:
        """Whether the parameter is still one of the module's, and trained."""
        mine = self.parameter
        return any(mine is p and p.requires_grad for p in module.parameters())

    def remove(self) -> None:
        """Take the hook away."""
        self._handle.remove()


def call_at_start(result: Any, started: Callable[[], None]) -> None:
    """`started()` in the first backward through what a forward has returned: a tensor, or the first of a
    tuple, list or dict that has a node. One hook on one graph node."""
    if isinstance(result, dict):
        result = list(result.values())
    candidates = result if isinstance(result, (tuple, list)) else (result,)
    with without_torch_function():
        for tensor in candidates:
            node = None
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                node = node_behind(tensor)
            if node is not None:
                node.register_prehook(out_of_regions(_once(started)))
                return


def _once(callback: Callable[[], None]) -> Callable[[Any], None]:
    done: list[bool] = []

    def hook(gradients: Any) -> None:
        if not done:
            done.append(True)
            callback()

    return hook
