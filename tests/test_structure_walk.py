"""The walk through the autograd graph, by itself: what provenance has found does not help it here."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tensorboard_torchexplorer.capture.autograd_walk import walk
from tensorboard_torchexplorer.capture.calls import Call
from tensorboard_torchexplorer.capture.edges import edge_of
from tensorboard_torchexplorer.capture.private import sequence_number
from tensorboard_torchexplorer.capture.structure_scope import NOBODY, OUTSIDE, Scope
from tensorboard_torchexplorer.schema import End

IN0, IN1, NODE0 = End("input", 0), End("input", 1), End("node", 0)


def opened(path: str, parent: Scope | None = None) -> Scope:
    """A scope whose call begins now."""
    call = Call(nn.Identity(), path, parent.call if parent is not None else None, 0)
    call.start = sequence_number()
    return Scope(call, parent)


def edge(tensor: Tensor) -> Any:
    found = edge_of(tensor)
    assert found is not None
    return found


def source() -> Tensor:
    """A tensor with a node."""
    return torch.ones(2, requires_grad=True) * 1


def test_a_walk_ends_at_the_boundaries_of_its_level() -> None:
    u, v, w = source(), source(), source()
    root = opened("")
    root.boundaries[edge(u)] = root.bit(IN0)
    root.boundaries[edge(v)] = root.bit(IN1)

    assert walk(root, edge((u + 1) * v.sin())) == root.bit(IN0) | root.bit(IN1)
    assert walk(root, edge(u.exp().exp())) == root.bit(IN0)
    assert walk(root, edge(w.exp())) == 0


def test_a_node_made_in_a_child_is_the_childs() -> None:
    u = source()
    root = opened("")
    root.boundaries[edge(u)] = root.bit(IN0)
    start = sequence_number()
    inside = u.sin()
    root.sequences.add(start, sequence_number(), 0)

    assert walk(root, edge(inside * 2)) == root.bit(NODE0, implicit=True)


def test_a_node_made_while_a_stale_view_was_about_is_nobodys() -> None:
    root = opened("")
    start = sequence_number()
    inside = source().sin()
    root.sequences.add(start, sequence_number(), NOBODY)

    assert walk(root, edge(inside * 2)) == 0


def test_a_node_of_an_enclosing_level_comes_from_outside() -> None:
    """And the levels in between have implicit edges to the calls on the way."""
    u = source()
    root = opened("")
    root.boundaries[edge(u)] = root.bit(IN0)
    h = u.sin()
    child = opened("a", root)
    grandchild = opened("a.b", child)

    assert walk(grandchild, edge(h.exp())) == grandchild.outside()
    assert root.call.links == {(IN0, NODE0): ("gradient", True)}
    assert child.call.links == {(OUTSIDE, NODE0): ("gradient", True)}


def test_a_closed_level_does_not_look_beyond_itself() -> None:
    u = source()
    root = opened("")
    root.boundaries[edge(u)] = root.bit(IN0)
    child = opened("a", root)
    child.closed = True

    assert walk(child, edge(u.exp())) == 0
    assert root.call.links == {}


def test_what_is_older_than_the_forward_leads_nowhere() -> None:
    u = source().sin()
    root = opened("")
    child = opened("a", root)

    assert walk(child, edge(u.exp())) == 0
    assert root.call.links == child.call.links == {}


def test_a_node_is_looked_at_once_per_level() -> None:
    u = source()
    root = opened("")
    root.boundaries[edge(u)] = root.bit(IN0)
    h = u
    for _ in range(60):
        h = h.tanh() + h.sin()

    assert walk(root, edge(h)) == root.bit(IN0)
    # tanh, sin and their sum, 60 times
    assert len(root.walked) == 180
