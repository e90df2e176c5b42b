"""A tensor in, its place in the autograd graph out, without a trace of the look in either.

An *edge* (node, output number) is the place where the gradient of a tensor is summed up. The node of a view
is *stale* once its memory was written to by other means than through the view: autograd then makes a new
one when somebody first asks for it, and the number it gets decides when the backward runs it. So a new node
that comes of our asking is given up again; whoever uses the view next gets one of his own, as unwatched.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from .private import node_name, outdate_node, sequence_number, unseen

Edge = tuple[Any, int]

WITHOUT_DERIVATIVE = "torch::autograd::NotImplemented"
"""The name of the node of an operator without a derivative: raises if a gradient reaches it."""


def edge_of(tensor: Tensor) -> Edge | None:
    """Where the gradient of a tensor enters the graph. None for a leaf and for a stale view."""
    node, _ = _look(tensor)
    return None if node is None else (node, tensor.output_nr)


def lacks_derivative(tensor: Tensor) -> bool:
    """Whether the operator behind a tensor has no derivative. Of views it is not asked, see above."""
    if tensor._is_view():
        return False
    node = tensor.grad_fn
    return node is not None and node_name(node) == WITHOUT_DERIVATIVE


def leaf_edge(tensor: Tensor) -> Edge:
    """Where the gradient of a leaf that requires grad ends. Runs an operator, which nobody sees."""
    with unseen(), torch.enable_grad():
        try:
            # Wrappers need no code of their own for a view; jagged tensors do.
            with nullcontext() if tensor.is_nested else torch._C._DisableTorchDispatch():
                edge = get_gradient_edge(tensor)
        except NotImplementedError:  # of a layout without views, as torch.sparse_csr
            copied: Any = tensor.clone().grad_fn
            leaf: Edge = copied.next_functions[0]
            return leaf
    return edge.node, edge.output_nr


def node_behind(tensor: Tensor) -> Any:
    """A node that every gradient of the tensor reaches; None for a leaf."""
    node, stale = _look(tensor)
    if stale and tensor._base is not None:
        node = tensor._base.grad_fn  # whoever uses the view goes through what it is a view of
    return node


def is_stale(tensor: Tensor) -> bool:
    """Whether the next user of the tensor makes its node anew."""
    return _look(tensor)[1]


def _look(tensor: Tensor) -> tuple[Any, bool]:
    """The node, None where there is none to look at, and whether it is stale."""
    if not tensor._is_view() or tensor._version == 0:
        return tensor.grad_fn, False
    # The new node of a view may come of view operators, which run.
    with unseen():
        before = sequence_number()
        try:
            node = tensor.grad_fn
        except RuntimeError:  # autograd refuses: the user would get this error, too
            return None, True
        if sequence_number() == before:
            return node, False
        outdate_node(tensor)
    return None, True
