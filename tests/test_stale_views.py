"""Views of memory that was written to by other means than through them.

Autograd makes the node of such a view anew when somebody first asks for it, and the number that the node
then gets decides when the backward runs it. Asking for it must not change that order, by which sums are
rounded, and the gradients of these views must be recorded all the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tensorboard_torchexplorer.capture.edges import edge_of, is_stale, leaf_edge
from tensorboard_torchexplorer.capture.private import sequence_number
from tests.recording import assert_row_holds, clone_instrumented, norms, record

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


class UsesLate(nn.Module):
    """Uses its stale second argument after much else."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 8)

    def forward(self, whole: Tensor, part: Tensor) -> Tensor:
        early = whole.sin() * 1.7
        return self.linear(part) + early + whole.cos() / 3


class StaleInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner = nn.Linear(8, 8), UsesLate()

    def forward(self, x: Tensor) -> Tensor:
        whole = self.first(x)
        left, right = whole[:, :4], whole[:, 4:]
        left.mul_(2)
        return self.inner(whole, right)


class MakesStale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.same = None

    def forward(self, whole: Tensor) -> Tensor:
        left, right = whole[:, :4], whole[:, 4:]
        left.mul_(2)
        return right if self.same is None else self.same(right)


class StaleOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.makes, self.last = nn.Linear(8, 8), MakesStale(), nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        whole = self.first(x)
        right = self.makes(whole)
        early = whole.sin() * 1.7
        return self.last(right) + early + whole.cos() / 3


class StaleResult(nn.Module):
    """The root itself returns a stale view, which only the loss uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.makes = nn.Linear(8, 8), MakesStale()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        whole = self.first(x)
        return whole, self.makes(whole)


class HandedThrough(nn.Module):
    """A stale view goes unused through another module."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.makes = nn.Linear(8, 8), MakesStale()
        self.makes.same = nn.Identity()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        whole = self.first(x)
        return whole, self.makes(whole)


def of_result(result: Any) -> Tensor:
    if isinstance(result, Tensor):
        return (result**2).mean()
    whole, part = result
    early = whole.sin() * 1.7
    return (part**3).mean() + early.mean() + (whole.cos() / 3).mean()


MODELS = (StaleInput, StaleOutput, StaleResult)


def trained(model: nn.Module, writer: Any = None, *, optimized: bool = True, **options: Any) -> list[Tensor]:
    """All gradients of a few steps."""
    if writer is not None:
        writer.watch(model, **{"log_freq": 1, "sample_n": None, **options})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(4):
        of_result(model(X)).backward()
        found += [p.grad.clone() for p in model.parameters()]
        if optimized:
            optimizer.step()
        model.zero_grad()
    return found


def built(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(3)
    return kind()


@pytest.mark.parametrize("options", [{}, {"log_freq": 100}], ids=["each step", "step 0"])
@pytest.mark.parametrize("optimized", [True, False], ids=["optimizer", "no optimizer"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_order_of_the_backward_is_that_of_the_unwatched(kind, optimized, options):
    plain = trained(built(kind), optimized=optimized)
    watched: list[Tensor] = []
    record(lambda writer: watched.extend(trained(built(kind), writer, optimized=optimized, **options)))

    assert all(torch.equal(one, two) for one, two in zip(plain, watched, strict=True))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("mapped", [False, True], ids=["grad", "vmap of grad"])
def test_so_it_is_under_the_transforms_of_torch_func(kind, mapped):
    def gradients(model: nn.Module) -> list[Tensor]:
        def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
            return of_result(torch.func.functional_call(model, weights, x))

        compute = torch.func.grad(loss)
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        if mapped:
            compute = torch.func.vmap(compute, (None, 0))
            return list(compute(weights, X.reshape(2, 3, 8)).values())
        return list(compute(weights, X).values())

    def train(writer: Any) -> None:
        model = built(kind)
        watch = writer.watch(model, log_freq=1)
        watched.extend(gradients(model))
        faults.extend(watch.faults.list())

    watched: list[Tensor] = []
    faults: list[Any] = []
    record(train)

    assert all(torch.equal(one, two) for one, two in zip(gradients(built(kind)), watched, strict=True))
    assert faults == []


@pytest.mark.parametrize("kind", MODELS[:2])
def test_the_models_can_tell_a_node_that_was_asked_for_too_early(kind):
    """Else the test above could not fail."""
    plain, asked = built(kind), built(kind)
    inner = asked.inner if kind is StaleInput else asked.makes
    inner.register_forward_pre_hook(lambda module, args: args[-1].grad_fn and None)
    inner.register_forward_hook(lambda module, args, result: result.grad_fn and None)

    assert any(not torch.equal(a, b) for a, b in zip(trained(plain), trained(asked), strict=True))


def rows_and_truth(kind: Callable[[], nn.Module]) -> tuple[Any, dict[tuple[str, str, int], list[Tensor]]]:
    model = built(kind)
    twin = copy.deepcopy(model)
    truth = clone_instrumented(twin)
    of_result(twin(X)).backward()

    def train(writer: Any) -> None:
        writer.watch(model, log_freq=1, sample_n=None)
        of_result(model(X)).backward()

    return record(train), truth


def test_a_stale_input_has_the_gradient_through_its_call():
    recorded, truth = rows_and_truth(StaleInput)

    (gradient,) = truth["inner", "input", 1]
    assert_row_holds(recorded.row("inner", "input", "grad", "part"), norms(gradient))
    (gradient,) = truth["inner.linear", "input", 0]
    assert_row_holds(recorded.row("inner/linear", "input", "grad", "input"), norms(gradient))


@pytest.mark.parametrize("kind", [StaleOutput, StaleResult, HandedThrough])
def test_a_stale_output_has_the_gradient_of_its_users(kind):
    """Where nobody has used it when the forward ends, that of its memory: what is returned beside it must
    go unused, or its gradient would be in there."""
    model = built(kind)
    truth = []

    def loss() -> Tensor:
        result = model(X)
        return of_result(result) if isinstance(result, Tensor) else (result[1] ** 3).mean()

    def clone(module: nn.Module, args: Any, result: Tensor) -> Tensor:
        copied = result.clone()
        copied.register_hook(lambda gradient: truth.append(gradient.clone()))
        return copied

    # Not the input as well: the module writes to it.
    handle = model.makes.register_forward_hook(clone)
    loss().backward()
    handle.remove()

    def train(writer: Any) -> None:
        writer.watch(model, log_freq=1, sample_n=None)
        loss().backward()

    recorded = record(train)
    (gradient,) = truth
    assert_row_holds(recorded.row("makes", "output", "grad", "output"), norms(gradient))
    if kind is HandedThrough:
        assert_row_holds(recorded.row("makes/same", "input", "grad", "input"), norms(gradient))


class UsedByTwo(nn.Module):
    """A stale view that two modules use, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.two = nn.Linear(8, 8), nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        whole = self.first(x)
        left, right = whole[:, :4], whole[:, 4:]
        left.mul_(2)
        return self.one(right) * self.two(right)


def test_of_a_stale_view_with_two_users_each_has_its_own_gradient():
    recorded, truth = rows_and_truth(UsedByTwo)

    for name in ("one", "two"):
        (gradient,) = truth[name, "input", 0]
        assert_row_holds(recorded.row(name, "input", "grad", "input"), norms(gradient))


# --- the look itself ---------------------------------------------------------------------------------


class CountOperators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def stale_view() -> tuple[Tensor, Tensor]:
    whole = X.clone().requires_grad_() * 1
    left, right = whole[:, :4], whole[:, 4:]
    left.mul_(2)
    return whole, right


def test_looking_at_a_stale_view_leaves_it_stale():
    _, view = stale_view()
    version = view._version

    assert edge_of(view) is None
    assert is_stale(view)
    assert view._version == version
    before = sequence_number()
    later = view.sin()
    assert view.grad_fn._sequence_nr() >= before
    assert later.grad_fn.next_functions[0][0] is view.grad_fn


def test_no_mode_of_the_users_sees_the_look():
    _, view = stale_view()
    leaf = X.clone().requires_grad_()
    with CountOperators() as counted:
        edge_of(view)
        leaf_edge(leaf)

    assert counted.names == []


def test_a_view_written_to_again_after_the_look_gets_the_right_node():
    whole, view = stale_view()
    edge_of(view)
    whole[:, 4:].mul_(3)
    source = whole.sum() * 0 + view.sum()
    (gradient,) = torch.autograd.grad(source, whole)

    assert torch.equal(gradient, torch.cat([torch.zeros(6, 4), torch.ones(6, 4)], 1))


@pytest.mark.parametrize("make", [lambda t: t[:, :4], lambda t: t.view(-1), lambda t: t.t(), lambda t: t * 1])
def test_what_is_up_to_date_keeps_its_node(make):
    whole = X.clone().requires_grad_() * 1
    whole.mul_(2)
    tensor = make(whole)
    before = sequence_number()

    assert edge_of(tensor) == (tensor.grad_fn, 0)
    assert not is_stale(tensor)
    assert sequence_number() == before


def test_a_view_that_may_not_be_used_any_more_is_stale_and_raises_nothing():
    with torch.no_grad():
        whole = X.clone()
        view = whole[0]
    whole.requires_grad_()
    whole = X.clone().requires_grad_() * 1
    first, _ = whole.unbind(1)[:2]
    whole.mul_(2)

    assert is_stale(first)
    with pytest.raises(RuntimeError, match="modified inplace"):
        first.sin()
    assert not is_stale(view)
