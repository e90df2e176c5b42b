"""An edge of the autograd graph in; the sources of a level that it leads back to out.

Finds what operators don't show: paths through a backward that ran inside the forward
(`torch.autograd.grad`), through kernels that record several nodes at once, and through whatever does
not pass the dispatcher. Nodes belong to calls by their sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..schema import End
from .edges import WITHOUT_DERIVATIVE, Edge
from .private import LEAF_SEQUENCE, node_name, node_sequence
from .structure_scope import NOBODY, Scope

BACKWARD_HOOK = "BackwardHookFunctionBackward"
"""The node of a module's full backward hook: hands each argument through, but is joined to all."""


class _Step:
    """A node whose inputs are being looked at."""

    __slots__ = ("edge", "external", "mask", "rest", "scope")

    def __init__(self, scope: Scope, edge: Edge, external: bool) -> None:
        self.scope = scope
        self.edge = edge
        self.external = external
        self.mask = 0
        self.rest = iter(((scope.parent, edge),)) if external else _inputs(scope, edge)


def _inputs(scope: Scope, edge: Edge) -> Iterator[tuple[Scope | None, Edge]]:
    node, output = edge
    following = node.next_functions
    name = node_name(node)
    if name == BACKWARD_HOOK and output < len(following):
        following = (following[output],)
    elif name == WITHOUT_DERIVATIVE:
        following = ()
    return ((scope, (before, number)) for before, number in following if before is not None)


def walk(scope: Scope, edge: Edge) -> int:
    """The mask of all sources in `scope` from which the graph leads to `edge`.

    Stops at the boundaries of the level and never descends into children, so that each node is looked
    at once per level. A node older than the level belongs to an enclosing one: found there, it is an
    implicit input, and the enclosing levels get their implicit edges. Iterative: graphs are deep.
    """
    known = _look_up(scope, edge)
    if known is not None:
        return known
    steps = [_Step(scope, edge, _is_external(scope, edge))]
    while True:
        step = steps[-1]
        for where, before in step.rest:
            assert where is not None
            known = _look_up(where, before)
            if known is None:
                steps.append(_Step(where, before, _is_external(where, before)))
                break
            step.mask |= known
        else:
            steps.pop()
            mask = step.mask
            if step.external and mask:
                assert step.scope.parent is not None
                step.scope.parent.link(mask, mask, End("node", step.scope.call.position), implicit=True)
                mask = step.scope.outside()
            step.scope.walked[step.edge] = mask
            if not steps:
                return mask
            steps[-1].mask |= mask


def _is_external(scope: Scope, edge: Edge) -> bool:
    return node_sequence(edge[0]) < scope.call.start


def _look_up(scope: Scope, edge: Edge) -> int | None:
    """The mask where it is known without walking, else None."""
    mask = scope.boundaries.get(edge)
    if mask is None:
        mask = scope.walked.get(edge)
    if mask is not None:
        return mask
    number = node_sequence(edge[0])
    if number >= LEAF_SEQUENCE:
        # A parameter. On newer torch also an operator without a derivative.
        return 0
    if number >= scope.call.start:
        owner = scope.sequences.owner(number)
        if owner is None:
            return None
        return 0 if owner == NOBODY else scope.bit(End("node", owner), implicit=True)
    # Older than the level. Beyond the outermost one there is nothing.
    return 0 if scope.parent is None or scope.closed else None
