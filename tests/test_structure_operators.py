"""What the tracer reads off an operator's schema."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tensorboard_torchexplorer.capture.structure_operators import Operator, results
from tensorboard_torchexplorer.capture.structure_scope import Spans

ATEN = torch.ops.aten
A, B, C, D, E = (torch.full((2,), float(number)) for number in range(5))


def positions(found: list[Tensor]) -> str:
    """The tensors by their names above."""
    return "".join("ABCDE"[int(tensor[0])] for tensor in found)


def test_an_operator_reads_all_tensors_among_its_arguments() -> None:
    operator = Operator(ATEN.add.Tensor)

    assert positions(operator.inputs((A, B), {"alpha": 2})) == "AB"
    assert (operator.writes, operator.outs) == ((), frozenset())


def test_lists_of_tensors_are_opened() -> None:
    assert positions(Operator(ATEN.cat.default).inputs(([A, B, A], 0), {})) == "ABA"
    assert positions(Operator(ATEN.index.Tensor).inputs((A, [None, B]), {})) == "AB"


def test_an_inplace_operator_reads_and_writes_its_first_argument() -> None:
    operator = Operator(ATEN.add_.Tensor)

    assert positions(operator.inputs((A, B), {})) == "AB"
    assert positions(operator.written((A, B), {})) == "A"
    assert positions(operator.written((), {"self": A, "other": B})) == "A"


def test_a_list_is_written_as_a_whole() -> None:
    assert positions(Operator(ATEN._foreach_add_.List).written(([A, B], [C, D]), {})) == "AB"


def test_out_arguments_are_overwritten_and_not_read() -> None:
    operator = Operator(ATEN.mul.out)

    assert positions(operator.inputs((A, B), {"out": C})) == "AB"
    assert positions(operator.overwritten({"out": C})) == "C"
    assert operator.written((A, B), {"out": C}) == []


def test_running_statistics_are_neither_read_nor_written() -> None:
    operator = Operator(ATEN._native_batch_norm_legit.default)
    arguments = (A, B, C, D, E, True, 0.1, 1e-5)

    assert positions(operator.inputs(arguments, {})) == "ABC"
    assert operator.written(arguments, {}) == []


@pytest.mark.parametrize(
    ("operator", "reads", "differentiable"),
    [
        (ATEN.zeros_like.default, False, True),
        (ATEN.new_empty.default, False, True),
        (ATEN.detach.default, True, False),
        (ATEN.histc.default, True, False),
        (ATEN.sin.default, True, True),
        (torch.ops.higher_order.cond, True, True),
    ],
)
def test_operators_that_move_no_values_or_no_gradients(
    operator: object, reads: bool, differentiable: bool
) -> None:
    found = Operator(operator)

    assert (found.reads, found.differentiable) == (reads, differentiable)


def test_results_in_tuples_and_lists() -> None:
    assert positions(results((A, [B, None], 3))) == "AB"
    assert results(None) == results(1.5) == []


def test_a_number_belongs_to_the_span_that_holds_it() -> None:
    """Ends are open, gaps and empty spans hold nothing."""
    spans = Spans()
    for start, end, owner in ((2, 4, 0), (4, 4, 1), (4, 7, 2), (9, 10, 3)):
        spans.add(start, end, owner)

    assert [spans.owner(number) for number in range(11)] == [
        None, None, 0, 0, 2, 2, 2, None, None, 3, None,
    ]  # fmt: skip
