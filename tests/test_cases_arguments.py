"""Public faults of tools like this one, by the rows' numbers: arguments, results, containers."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from cases import Lambda, Pair, X, edges, train
from recording import assert_row_holds, norms
from torch import Tensor, nn


@dataclasses.dataclass
class Result:
    a: Tensor
    b: list[Tensor]


CONTAINERS: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Any], list[str]]] = {
    "dict of lists": (lambda a, b, c: {"a": a, "b": [b, c]}, ["a", "b[0]", "b[1]"]),
    "list": (lambda a, b, c: [a, b, c], ["[0]", "[1]", "[2]"]),
    "deque": (lambda a, b, c: deque([a, b, c]), ["[0]", "[1]", "[2]"]),
    "named tuple in a tuple": (lambda a, b, c: (Pair(a, b), c), ["[0].first", "[0].second", "[1]"]),
    "dataclass": (lambda a, b, c: Result(a, [b, c]), ["a", "b[0]", "b[1]"]),
    "odd keys": (lambda a, b, c: {1: a, "x y": b, "deep": {"c": [(c,)]}}, ["1", "x y", "deep.c[0][0]"]),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_c04_list_and_dict_outputs(name):
    build, names = CONTAINERS[name]
    one = nn.Linear(4, 4)
    inner = Lambda(lambda m, x: build(m.one(x), x * m.one.weight.sum(), m.one(x).exp()), one=one)
    found: list[Tensor] = []

    def loss(model: nn.Module) -> Tensor:
        found[:] = tensors(model(X))
        return sum((k + 1) * t.square().sum() for k, t in enumerate(found))

    recorded = train(Lambda(lambda m, x: m.inner(x), inner=inner), loss)

    assert [port.name for port in recorded.node("inner").outputs] == names
    for k, (port, tensor) in enumerate(zip(names, found, strict=True)):
        assert_row_holds(recorded.row("inner", "output", "value", port), tensor)
        assert_row_holds(
            recorded.row("inner", "output", "grad", port), norms(2 * (k + 1) * tensor.detach()), rel=1e-5
        )


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif dataclasses.is_dataclass(value):
        value = [getattr(value, f.name) for f in dataclasses.fields(value)]
    return [tensor for item in value for tensor in tensors(item)]


def test_c05_keyword_arguments():
    torch.manual_seed(0)
    block = Lambda(lambda m, x, mask: m.l(x) * mask, l=nn.Linear(4, 4))
    model = Lambda(lambda m, x, mask: m.b(x=x, mask=m.gate(mask)), b=block, gate=nn.Linear(4, 4))
    x, mask = X.clone().requires_grad_(), X * 2
    gate = model.gate(mask).detach().requires_grad_()
    block(x, gate).square().mean().backward()

    recorded = train(model, lambda m: m(x=x, mask=mask).square().mean())

    assert [port.name for port in recorded.node(".").inputs] == ["x", "mask"]
    assert [port.name for port in recorded.node("b").inputs] == ["x", "mask"]
    assert edges(recorded) == {"input0 b", "input1 gate", "gate b", "b output0"}
    assert_row_holds(recorded.row("b", "input", "value", "mask"), gate)
    assert_row_holds(recorded.row("b", "input", "grad", "mask"), norms(gate.grad), rel=1e-5)
    assert_row_holds(recorded.row("b", "input", "grad", "x"), norms(x.grad / 2), rel=1e-5)  # twice into .grad


class EveryKind(nn.Module):
    """A forward with each kind of parameter that Python knows."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x, /, scale=None, unused=3, *rest, mask, bias=None, **more) -> Tensor:
        return self.l(x) * scale + sum(rest) * mask + sum(more.values())


def test_c05_every_kind_of_parameter():
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    given: dict[str, Tensor] = {}

    def outer(m: nn.Module, x: Tensor) -> Tensor:
        y, z = m.a(x), m.b(x)
        given.update(
            {"x": y * 2, "scale": z * 3, "rest[0]": y * 4, "rest[1]": x, "mask": z * 5, "odd": y * 6}
        )
        for name in set(given) - {"rest[1]"}:
            given[name].retain_grad()
        return m.k(
            given["x"],
            given["scale"],
            7,
            given["rest[0]"],
            given["rest[1]"],
            mask=given["mask"],
            odd=given["odd"],
        )

    recorded = train(Lambda(outer, a=a, b=b, k=EveryKind()))

    node = recorded.node("k")
    assert [port.name for port in node.inputs] == list(given)
    assert dict(map(tuple, node.arguments)) == {"unused": "7"}
    assert edges(recorded) == {"input0 a", "input0 b", "a k", "b k", "input0 k", "k output0"}
    for name, tensor in given.items():
        assert_row_holds(recorded.row("k", "input", "value", name), tensor)
        if name != "rest[1]":
            assert_row_holds(recorded.row("k", "input", "grad", name), norms(tensor.grad), rel=1e-5)


def test_c06_forward_called_directly():
    a = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model, wanted = Lambda(lambda m, x: m.b(m.a.forward(x)), a=a, b=nn.Linear(4, 2)), []

    recorded = train(model, each=lambda step: wanted.append(a[0].weight.grad.clone()))

    assert edges(recorded) == {"input0 a.0", "a.0 a.1", "a.1 b", "b output0"}
    assert_row_holds(recorded.row("a.0", "param", "grad", "weight"), wanted[0])
    assert recorded.node("a.0").notes == ["'a' around it was not called through __call__"]
    assert recorded.node("b").notes == []


def test_c06_a_layer_whose_forward_is_called_directly_is_listed():
    model = Lambda(lambda m, x: m.b(m.a.forward(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 2))
    wanted = {}

    def note(step: int) -> None:
        wanted["a"] = model.a.weight.grad.clone()

    recorded = train(model, each=note)

    assert recorded.node("a").notes == ["not called through __call__"]
    assert edges(recorded) == {"input0 b", "b output0"}
    assert_row_holds(recorded.row("a", "param", "grad", "weight"), wanted["a"])


def test_c09_none_in_arguments_and_results():
    seen: list[Any] = []

    def outer(m: nn.Module, x: Tensor) -> Tensor:
        y, weights = m.attention(x, x, x, need_weights=False)
        result = m.b(y, None, x * 2)
        seen.append((weights, type(result), result[1]))
        return result[0]

    b = Lambda(lambda m, x, none, z: (m.l(x) + z, None), l=nn.Linear(4, 4))
    model = Lambda(outer, attention=nn.MultiheadAttention(4, 2, batch_first=True), b=b)
    z = X.reshape(2, 3, 4)

    recorded = train(model, lambda m: m(z).sum())

    assert seen == [(None, tuple, None)]
    node = recorded.node("b")
    assert [port.name for port in node.inputs] == ["args[0]", "args[2]"]
    assert_row_holds(recorded.row("b", "input", "value", "args[2]"), z * 2)
    assert [port.name for port in node.outputs] == ["[0]"]
    assert edges(recorded) == {"input0 attention", "attention b", "input0 b", "b output0"}


@dataclasses.dataclass
class Boxes:
    y: Tensor
    meta: str
    n: int
    boxes: list[Tensor]


@dataclasses.dataclass(frozen=True)
class FrozenBoxes:
    y: Tensor
    meta: str
    n: int
    boxes: list[Tensor]


@dataclasses.dataclass(slots=True)
class SlotBoxes:
    y: Tensor
    meta: str
    n: int
    boxes: list[Tensor]


@pytest.mark.parametrize("kind", [Boxes, FrozenBoxes, SlotBoxes])
def test_c13_dataclasses_and_mixed_containers(kind):
    made: list[Any] = []

    def inner(m: nn.Module, batch: list[dict[str, Any]]) -> Any:
        y = m.l(batch[0]["image"] + batch[1]["image"])
        made.append(kind(y, "a", 3, [y * 2, y * 3]))
        return made[-1]

    def outer(m: nn.Module, batch: list[dict[str, Any]]) -> Tensor:
        result = m.inner(batch)
        assert result is made[-1]
        assert result.meta == "a"
        return result.y + result.boxes[0] + result.boxes[1]

    model = Lambda(outer, inner=Lambda(inner, l=nn.Linear(4, 4)))
    batch = [{"image": X, "file": "1.png", "height": 4}, {"image": X * 2, "file": "2.png", "height": 5}]

    recorded = train(model, lambda m: m(batch).sum())

    node = recorded.node("inner")
    assert [port.name for port in node.inputs] == ["args[0][0].image", "args[0][1].image"]
    assert ["args[0][1].file", "'2.png'"] in node.arguments
    assert [port.name for port in node.outputs] == ["y", "boxes[0]", "boxes[1]"]
    assert_row_holds(recorded.row("inner", "output", "grad", "boxes[1]"), norms(torch.ones(6, 4)))


@pytest.mark.parametrize("container", [list, tuple, deque])
def test_c15_list_of_tensors_as_one_argument(container):
    b = Lambda(lambda m, xs: m.l(torch.cat(list(xs), -1)), l=nn.Linear(8, 2))
    model = Lambda(lambda m, x: m.b(container([m.a(x), x])), a=nn.Linear(4, 4), b=b)

    recorded = train(model)

    assert [port.name for port in recorded.node("b").inputs] == ["args[0][0]", "args[0][1]"]
    assert edges(recorded) == {"input0 a", "a b", "input0 b", "b output0"}
    assert_row_holds(recorded.row("b", "input", "value", "args[0][1]"), X)


def test_c15_a_generator_is_not_consumed():
    taken: list[int] = []

    def items(x: Tensor) -> Iterator[Tensor]:
        for number in range(3):
            taken.append(number)
            yield x * number

    def reads_two(m: nn.Module, xs: Iterator[Tensor]) -> Tensor:
        assert taken == []
        return m.l(next(xs) + next(xs))

    def outer(m: nn.Module, x: Tensor) -> Tensor:
        xs = items(x)
        y = m.b(xs)
        assert taken == [0, 1]
        return y + next(xs).sum()

    recorded = train(Lambda(outer, b=Lambda(reads_two, l=nn.Linear(4, 4))))

    assert taken == [0, 1, 2]
    assert recorded.node("b").inputs == []
    assert ["args[0]", "generator"] in recorded.node("b").arguments


def test_c16_arguments_that_are_no_tensors():
    class B(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4)

        def forward(self, x, count, flag, how, array, device, text, function, shape) -> Tensor:
            return self.l(x) * count

    model = Lambda(
        lambda m, x: m.b(x, 2, True, "mean", np.ones(3), torch.device("cpu"), "y" * 500, len, x.shape), b=B()
    )

    recorded = train(model)

    node = recorded.node("b")
    assert [port.name for port in node.inputs] == ["x"]
    texts = dict(map(tuple, node.arguments))
    assert texts["count"] == "2"
    assert texts["flag"] == "True"
    assert texts["how"] == "'mean'"
    assert texts["array"] == "ndarray (3,) float64"
    assert texts["device"] == "device(type='cpu')"
    assert len(texts["text"]) == 80
    assert texts["text"].endswith("…")
    assert texts["function"] == "builtin_function_or_method"
    assert texts["shape"] == "torch.Size([6, 4])"
