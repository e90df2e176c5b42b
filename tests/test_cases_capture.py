"""Public faults of tools like this one as cases: one test per row that concerns capture, named by the row.

Each row stands for its kind, so its siblings (other containers, dtypes, levels) are beside it.
"""

from __future__ import annotations

import copy
import dataclasses
import io
import itertools
import pickle
import tempfile
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from neutrality import Observed
from neutrality import train as train_and_note
from recording import Recorded, assert_row_holds, norms, record
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint

from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(7))


def squared(model: nn.Module) -> Tensor:
    return model(X).square().mean()


def train(
    model: nn.Module,
    loss: Callable[[nn.Module], Tensor] = squared,
    steps: int = 1,
    *,
    phase: str = "train",
    each: Callable[[int], Any] = lambda step: None,
    rate: float = 0.1,
    **options: Any,
) -> Recorded:
    """Watched training with everything sampled; `each(step)` is called before each optimizer step."""

    def run(writer: ExplorerWriter) -> None:
        watch = writer.watch(model, **{"log_freq": 1, "sample_n": None, **options})
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
        for step in range(steps):
            loss(model).backward()
            each(step)
            optimizer.step()
            optimizer.zero_grad()
        assert watch.faults.list() == []

    return record(run, phase=phase)


def edges(recorded: Recorded, level: str = ".") -> set[str]:
    """The edges of a level as `source target`, data-only ones with `..` between."""
    graph = recorded.graph
    ids = [node.id for node in graph.nodes]
    inside = "" if level == "." else f"{level}/"

    def name(end: Any) -> str:
        return ids[end.index].removeprefix(inside) if end.kind == "node" else f"{end.kind}{end.index}"

    return {
        f"{name(edge.source)} {'' if edge.kind == 'gradient' else '.. '}{name(edge.target)}"
        for edge in graph.edges
        if ids[edge.level] == level
    }


def modules(recorded: Recorded) -> dict[str, Any]:
    return {module.path: module for module in recorded.graph.modules}


def observed(build: Callable[[], tuple[nn.Module, Callable[[Any], Any]]]) -> tuple[Observed, Observed]:
    """What an unwatched and a watched training leave behind."""
    plain = train_and_note(build)
    with tempfile.TemporaryDirectory() as folder, ExplorerWriter(folder) as writer:
        watched = train_and_note(build, lambda model: writer.watch(model, log_freq=1), writer.unwatch)
    return plain, watched


def pruned(layer: nn.Linear) -> nn.Linear:
    return prune.l1_unstructured(layer, "weight", 0.5)


class Lambda(nn.Module):
    """A module of one function and named children."""

    def __init__(self, function: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


# --- Modules: in place, containers, arguments --------------------------------------------------------


def in_place(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), activation, nn.Linear(5, 3))


@pytest.mark.parametrize("shape", [(6, 4), (3, 2, 4)], ids=["matrix", "view of the product"])
@pytest.mark.parametrize(
    "activation",
    [nn.ReLU(True), nn.LeakyReLU(0.1, True), nn.SiLU(True), nn.Dropout(0.5, True), nn.ELU(1.0, True)],
)
def test_c01_in_place_activation(activation, shape):
    x = X.reshape(shape)

    def losses(watched: bool) -> tuple[list[float], Recorded | None]:
        model, found = in_place(activation), []

        def loss(model: nn.Module) -> Tensor:
            found.append(model(x).square().mean())
            return found[-1]

        torch.manual_seed(1)
        if watched:
            recorded = train(model, loss, steps=3)
        else:
            recorded = None
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                loss(model).backward()
                optimizer.step()
                optimizer.zero_grad()
        return [value.item() for value in found], recorded

    plain, (watched, recorded) = losses(False)[0], losses(True)

    assert watched == plain
    # The output of the first layer as it was before the activation overwrote it.
    before = in_place(activation)[0](x)
    assert_row_holds(recorded.row("0", "output", "value", "output", 0), before)
    for node in ("0", "1", "2"):
        for kind in ("value", "grad"):
            assert recorded.status(node, "output", kind, "output") == Status.OK


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


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


@pytest.mark.parametrize("to_none", [True, False])
def test_c07_gradients_are_those_of_the_step(to_none):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.l = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)
            self.bias = nn.Parameter(torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return (self.l(self.frozen(x)) + self.bias).tanh() + self.bias

    model, wanted = Model(), []

    def run(writer: ExplorerWriter) -> None:
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for scale in (1.0, 10.0, 100.0):
            model(X * scale).sum().backward()
            wanted.append((model.l.weight.grad.clone(), model.bias.grad.clone()))
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)

    recorded = record(run)

    assert recorded.steps == [0, 1, 2]
    for at, (weight, bias) in enumerate(wanted):
        assert_row_holds(recorded.row("l", "param", "grad", "weight", at), weight)
        assert_row_holds(recorded.row("", "param", "grad", "bias", at), bias)
        assert recorded.status("frozen", "param", "grad", "weight", at) == Status.FROZEN


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_c08_fused_encoder(guard, tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 2))
    x = torch.randn(3, 5, 8)
    twin = copy.deepcopy(model).eval()
    results = []

    def run(writer: ExplorerWriter) -> None:
        watch = writer.watch(model, log_freq=1, eval_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        model(x).sum().backward()
        optimizer.step()
        model.eval()
        with guard():
            results.append(model(x))
        assert watch.faults.list() == []

    evaluated = record(run, phase="eval")
    with guard():
        assert torch.equal(results[0], twin(x))  # the fused kernel ran, as it does unwatched
    fused = "0/layers.0"
    assert_row_holds(evaluated.row(fused, "output", "value", "output"), layer_output(twin, x, guard))
    assert evaluated.status(f"{fused}/linear1", "output", "value", "output") == Status.NOT_RUN
    assert any("fused" in note for note in evaluated.node(fused).notes)


def layer_output(model: nn.Module, x: Tensor, guard: Callable[[], Any]) -> Tensor:
    with guard():
        return model[0].layers[0](x)


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


def test_c10_recurrent_state_tuples():
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        out, (h, c) = m.lstm(x)
        again, _ = m.next(out, (h.tanh(), c))
        return m.head(h[0]) + again.sum(0)

    model = Lambda(forward, lstm=nn.LSTM(4, 4), next=nn.LSTM(4, 4), head=nn.Linear(4, 4))

    recorded = train(model, lambda m: m(X.reshape(2, 3, 4)).square().mean())

    assert [port.name for port in recorded.node("lstm").outputs] == ["[0]", "[1][0]", "[1][1]"]
    assert [port.name for port in recorded.node("next").inputs] == ["input", "hx[0]", "hx[1]"]
    assert {"lstm next", "lstm head"} <= edges(recorded)
    for port in ("[0]", "[1][0]", "[1][1]"):
        assert recorded.status("lstm", "output", "grad", port) == Status.OK


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5"])
def test_c12_transformers(name):
    from models_transformers import TRANSFORMERS

    model, run = TRANSFORMERS[name]()
    plain, _ = TRANSFORMERS[name]()
    torch.manual_seed(0)
    wanted = run(plain).item()
    got = []

    def loss(model: nn.Module) -> Tensor:
        torch.manual_seed(0)
        got.append(run(model))
        return got[-1]

    recorded = train(model, loss)

    assert got[0].item() == wanted
    level, layers, head = {
        "gpt2": ("transformer", "h", "lm_head"),
        "llama": ("model", "layers", "lm_head"),
        "bert": ("bert/encoder", "layer", "classifier"),
        "t5": ("decoder", "block", "lm_head"),
    }[name]
    assert f"{layers}.0 {layers}.1" in edges(recorded, level)
    assert f"{head} output1" in edges(recorded)
    if name == "gpt2":
        tied = modules(recorded)["lm_head"].parameters[0]
        assert tied.shared == "transformer.wte.weight"
    if name in ("gpt2", "llama"):
        arguments = dict(map(tuple, recorded.node(f"{level}/{layers}.0").arguments))
        assert "DynamicCache" in arguments.values()


def test_c12_tied_weights_are_marked_and_recorded_once():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.embed(tokens))

    model, wanted = Tied(), []
    tokens = torch.tensor([[1, 2, 3]])

    recorded = train(
        model,
        lambda m: m(tokens).square().mean(),
        each=lambda step: wanted.append(model.embed.weight.grad.clone()),
    )

    assert modules(recorded)["embed"].parameters[0].shared == ""
    assert modules(recorded)["head"].parameters[0].shared == "embed.weight"
    for path in ("embed", "head"):  # the gradient is that of both uses
        assert_row_holds(recorded.row(path, "param", "grad", "weight"), wanted[0])


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


# --- What modules are ------------------------------------------------------------------------------


def test_c18_weight_norm_is_named_by_its_module():
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), nn.ReLU())
    weight = model[0].weight.detach().clone()

    recorded = train(model)

    assert modules(recorded)["0"].class_name == "Linear"
    assert modules(recorded)["0"].flags == ["parametrized: weight by WeightNorm"]
    inside = "0.parametrizations.weight"
    assert {p.name for p in modules(recorded)[inside].parameters} == {"original0", "original1"}
    assert recorded.status(inside, "param", "grad", "original0") == Status.OK
    # The weight in effect is what the parametrization returns.
    assert_row_holds(recorded.row("0/parametrizations.weight", "output", "value", "output"), weight)
    assert recorded.status("0/parametrizations.weight", "output", "grad", "output") == Status.OK


@pytest.mark.parametrize("parametrize_", [parametrizations.orthogonal, parametrizations.spectral_norm])
def test_c18_the_new_kind_shows_both_weights(parametrize_):
    torch.manual_seed(0)
    model = nn.Sequential(parametrize_(nn.Linear(4, 4)), nn.ReLU())
    twin = copy.deepcopy(model)
    wanted: dict[str, Tensor] = {}
    made = twin[0].parametrizations.weight
    made.register_forward_hook(
        lambda m, args, weight: wanted.update(weight=weight, kept=weight.retain_grad())
    )
    squared(twin).backward()

    recorded = train(model)

    assert recorded.ids()[:3] == [".", "0", "0/parametrizations.weight"]
    assert modules(recorded)["0"].class_name == "Linear"
    assert "parametrized: weight by" in modules(recorded)["0"].flags[0]
    node = "0/parametrizations.weight"
    assert_row_holds(recorded.row(node, "output", "value", "output"), wanted["weight"])
    assert_row_holds(recorded.row(node, "output", "grad", "output"), norms(wanted["weight"].grad), rel=1e-5)
    row = recorded.row("0.parametrizations.weight", "param", "grad", "original")
    assert_row_holds(row, made.original.grad, rel=1e-5)


class Noise(nn.Module):
    """Counts its runs, and draws a number in each."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, weight: Tensor) -> Tensor:
        self.runs += 1
        return weight + torch.rand(()) * 0.1


def test_c18_nothing_but_the_model_runs_a_parametrization():
    """`Linear.extra_repr` looks whether there is a bias."""

    def build() -> tuple[nn.Module, Callable[[Any], Any]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Conv1d(6, 6, 1))
        for layer in model:
            parametrize.register_parametrization(layer, "bias", Noise(), unsafe=True)
        return model, squared

    plain, watched = observed(build)

    assert watched.differences(plain) == {}


@pytest.mark.parametrize(
    ("broken", "shown"),
    [(lambda: 1 / 0, "extra_repr() raised ZeroDivisionError"), (lambda: None, "NoneType")],
)
def test_what_describes_a_module_may_fail(broken, shown):
    class Odd(nn.Linear):
        def extra_repr(self) -> str:
            return broken()

    recorded = train(nn.Sequential(Odd(4, 4), nn.ReLU()))

    assert shown in modules(recorded)["0"].extra[0][1]
    assert recorded.status("0", "param", "grad", "weight") == Status.OK


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("old", "flag", "names"),
    [
        (nn.utils.weight_norm, "WeightNorm", {"bias", "weight_g", "weight_v"}),
        (nn.utils.spectral_norm, "SpectralNorm", {"bias", "weight_orig"}),
        (pruned, "L1Unstructured", {"bias", "weight_orig"}),
    ],
)
def test_c18_the_old_kind_by_hooks(old, flag, names):
    model = nn.Sequential(old(nn.Linear(4, 4)), nn.ReLU())

    recorded = train(model, steps=2)

    entry = modules(recorded)["0"]
    assert entry.class_name == "Linear"
    assert entry.flags == [flag]
    assert {p.name for p in entry.parameters} == names
    for name in names:
        assert recorded.status("0", "param", "grad", name) == Status.OK


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("old", [nn.utils.weight_norm, nn.utils.spectral_norm, pruned])
def test_c18_the_old_kind_shows_the_weight_in_effect(old, checkpointed):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.normed = nn.Linear(4, 4), old(nn.Linear(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            if checkpointed:
                return checkpoint(self.normed, x, use_reentrant=True)
            return self.normed(x)

    def keep(module: nn.Module, args: Any) -> None:
        if module.weight.requires_grad:
            module.weight.retain_grad()
            weights.append(module.weight)

    torch.manual_seed(0)
    model = Net()
    torch.manual_seed(0)
    twin, weights = Net(), []
    twin.normed.register_forward_pre_hook(keep)
    twin(X).square().mean().backward()

    recorded = train(model)

    assert [port.name for port in recorded.node("normed").outputs] == ["output", "weight"]
    assert recorded.node("normed").notes == ["in effect: weight"]
    weight = weights[-1]
    if not checkpointed:  # spectral_norm makes another step of its iteration in the recomputation
        assert_row_holds(recorded.row("normed", "output", "value", "weight"), weight)
    assert_row_holds(recorded.row("normed", "output", "grad", "weight"), norms(weight.grad), rel=1e-5)


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


def test_c18_parametrizations_come_and_go_while_watched():
    model, steps = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), iter(range(3))

    def loss(model: nn.Module) -> Tensor:
        step = next(steps)
        if step == 1:
            parametrize.register_parametrization(model[0], "weight", Doubled())
        if step == 2:
            parametrize.remove_parametrizations(model[0], "weight")
        return squared(model)

    recorded = train(model, loss, steps=3)

    assert recorded.ids().count("0") == 1
    assert recorded.steps == [0, 1, 2]
    row = recorded.series["0", "param", "value", "weight"]
    assert list(row["status"]) == [Status.OK, Status.NOT_RUN, Status.OK]
    (effective,) = (
        k for k in recorded.series if k.node == "0/parametrizations.weight" and k[1:3] == ("output", "value")
    )
    assert list(recorded.series[effective]["status"]) == [Status.NOT_RUN, Status.OK, Status.NOT_RUN]
    assert recorded.status("0", "output", "grad", "output") == Status.OK
    assert modules(recorded)["0"].class_name == "Linear"


@pytest.mark.parametrize("by_keyword", [False, True])
def test_c20_lazy_modules(by_keyword):
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    call = Lambda(lambda m, x: m.inner(input=x) if by_keyword else m.inner(x), inner=model)

    recorded = train(call)

    entry = modules(recorded)["inner.0"]
    assert entry.class_name == "Linear"
    assert ["in_features", "4"] in entry.extra
    assert entry.parameters[0].shape == [4, 4]
    assert modules(recorded)["inner.1"].class_name == "BatchNorm1d"
    assert recorded.status("inner.0", "param", "grad", "weight") == Status.OK


def test_c20_a_lazy_module_that_has_not_run_says_so():
    model = Lambda(lambda m, x: m.l(x), l=nn.Linear(4, 4), later=nn.LazyLinear(3))

    recorded = train(model, loss=squared, rate=0.0)

    assert recorded.status("later", "param", "value", "weight") == Status.LAZY
    assert recorded.status("later", "param", "grad", "weight") == Status.LAZY


def test_c21_modules_in_containers():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
            self.heads = nn.ModuleDict({"left": nn.Linear(4, 2)})
            self.hidden = [nn.Linear(4, 4)]
            self.table = {"key": nn.Linear(4, 4)}
            self.pair = (nn.Linear(4, 4),)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return self.heads["left"](self.pair[0](self.table["key"](self.hidden[0](x))))

    recorded = train(Model())

    found = modules(recorded)
    assert found["layers.0"].container == "ModuleList"
    assert found["heads.left"].container == "ModuleDict"
    plain = [path for path, module in found.items() if any("unregistered" in flag for flag in module.flags)]
    assert plain == ["hidden[0]", "table['key']", "pair[0]"]
    chain = ["input0", "layers.0", "layers.1", *plain, "heads.left", "output0"]
    assert edges(recorded) == {f"{a} {b}" for a, b in itertools.pairwise(chain)}
    assert recorded.status("hidden[0]", "param", "grad", "weight") == Status.OK


class Holds(nn.Module):
    """Keeps modules where torch does not look for them; `get` gives them back."""

    def __init__(self, held: Any, get: Callable[[Any], Iterable[nn.Module]]) -> None:
        super().__init__()
        self.first, self.get = nn.Linear(4, 4), get
        self.__dict__["held"] = held

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for module in self.get(self.held):
            x = module(x)
        return x


HOLDERS: dict[str, tuple[Callable[[nn.Module, nn.Module], Any], Callable[[Any], Any], list[str]]] = {
    "lists in a list": (lambda a, b: [[a], [b]], lambda h: h[0] + h[1], ["held[0][0]", "held[1][0]"]),
    "dict of lists": (
        lambda a, b: {"x.y": [a], 3: (b,)},
        lambda h: [*h["x.y"], *h[3]],
        ["held['x_y'][0]", "held[3][0]"],
    ),
    "ordered dict": (
        lambda a, b: OrderedDict(a=a, b=b),
        lambda h: h.values(),
        ["held['a']", "held['b']"],
    ),
    "named tuple": (lambda a, b: Pair(a, b), lambda h: h, ["held[0]", "held[1]"]),
    "deque": (lambda a, b: deque([a, b]), lambda h: h, ["held[0]", "held[1]"]),
    "pairs": (
        lambda a, b: [("a", a), ("b", b)],
        lambda h: [module for _, module in h],
        ["held[0][1]", "held[1][1]"],
    ),
    "ModuleList in a list": (
        lambda a, b: [nn.ModuleList([a, b])],
        lambda h: h[0],
        ["held[0].0", "held[0].1"],
    ),
    "attribute": (lambda a, b: nn.Sequential(a, b), lambda h: h, ["held.0", "held.1"]),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_c21_modules_that_are_not_registered(name):
    make, get, paths = HOLDERS[name]
    a, b = nn.Linear(4, 4), nn.Linear(4, 2)
    wanted: list[Tensor] = []

    recorded = train(Holds(make(a, b), get), each=lambda step: wanted.append(b.weight.grad.clone()))

    found = modules(recorded)
    for path in paths:
        assert any(flag.startswith("unregistered") for flag in found[path].flags), path
    assert edges(recorded) == {
        f"{one} {two}" for one, two in itertools.pairwise(["input0", "first", *paths, "output0"])
    }
    assert_row_holds(recorded.row(paths[1], "param", "grad", "weight"), wanted[0])


def test_c21_what_a_module_is_a_part_of_is_not_taken_for_its_own():
    child = nn.Linear(4, 4)
    outer = nn.Sequential(child, nn.Linear(4, 2))
    child.__dict__["parent"], child.parents = outer, [outer]

    recorded = train(child)

    assert list(modules(recorded)) == [""]


def test_c21_lists_of_parameters_are_no_calls_that_were_missed():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gains = nn.ParameterList(nn.Parameter(torch.full((1,), k)) for k in (1.0, 2.0))
            self.by_name = nn.ParameterDict({"shift": nn.Parameter(torch.ones(4))})
            self.l = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.l(x) * self.gains[0] * self.gains[1] + self.by_name["shift"]

    model, wanted = Model(), []

    recorded = train(model, each=lambda step: wanted.append(model.gains[1].grad.clone()))

    assert recorded.node("gains").notes == recorded.node("by_name").notes == []
    assert_row_holds(recorded.row("gains", "param", "grad", "1"), wanted[0])
    assert recorded.status("by_name", "param", "value", "shift") == Status.OK


def test_c22_reused_modules():
    relu, a = nn.ReLU(), nn.Linear(4, 4)
    inner = Lambda(lambda m, x: m.relu(m.l(x)), relu=relu, l=nn.Linear(4, 4))
    model = Lambda(lambda m, x: m.relu(m.inner(m.relu(m.a(m.a(x))))), a=a, relu=relu, inner=inner)
    once = a(X)

    recorded = train(model)

    assert recorded.ids() == [".", "a", "a#1", "relu", "inner", "inner/l", "inner/^relu", "relu#1"]
    assert_row_holds(recorded.row("a", "output", "value", "output"), once)
    assert_row_holds(recorded.row("a#1", "input", "value", "input"), once)
    assert sum(k.group == "param" and k.kind == "value" for k in recorded.series) == 4  # each once
    assert edges(recorded) == {
        "input0 a",
        "a a#1",
        "a#1 relu",
        "relu inner",
        "inner relu#1",
        "relu#1 output0",
    }


# --- Steps and gradients ---------------------------------------------------------------------------


def test_c32_accumulation():
    model, wanted = nn.Linear(4, 3), []

    def run(writer: ExplorerWriter) -> None:
        writer.watch(model, log_freq=3, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            for part in range(4):
                (model(X * (part + 1)).square().mean() / 4).backward()
            wanted.append(model.weight.grad.clone())
            optimizer.step()
            optimizer.zero_grad()

    recorded = record(run)

    assert recorded.steps == [0, 3]
    assert_row_holds(recorded.row("", "param", "grad", "weight", 0), wanted[0])
    assert_row_holds(recorded.row("", "param", "grad", "weight", 1), wanted[3])
    assert [info.forwards for info in recorded.history.infos] == [4, 4]
    assert_row_holds(recorded.row(".", "input", "value", "input"), X)  # of the first batch


def test_c33_several_forwards_and_an_evaluation_in_between():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    out = model(X)
    out.square().mean().backward()
    wanted = model[0].weight.grad.clone()
    model.zero_grad()

    def run(writer: ExplorerWriter) -> None:
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        first = model(X)
        model.eval()
        with torch.no_grad():
            model(X * 50)
        model.train()
        first.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        (model(X) + model(X * 2)).sum().backward()
        optimizer.step()

    recorded = record(run)

    assert recorded.steps == [0, 1]
    assert_row_holds(recorded.row(".", "input", "value", "input", 0), X)
    assert_row_holds(
        recorded.row(".", "output", "grad", "output", 0), norms(2 * out.detach() / out.numel()), rel=1e-5
    )
    assert_row_holds(recorded.row("0", "param", "grad", "weight", 0), wanted)
    assert recorded.history.infos[1].forwards == 2
    assert_row_holds(recorded.row(".", "output", "grad", "output", 1), norms(torch.ones(6, 3)))


def test_c34_two_passes_over_one_graph():
    model, found = nn.Linear(4, 3), []

    def run(writer: ExplorerWriter) -> None:
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        out = model(X)
        out.sum().backward(retain_graph=True)
        out.mean().backward()
        found.append(model.weight.grad.clone())
        optimizer.step()

    recorded = record(run)

    both = torch.cat([norms(torch.ones(6, 3)), norms(torch.full((6, 3), 1 / 18))])
    assert_row_holds(recorded.row(".", "output", "grad", "output"), both)
    assert_row_holds(recorded.row("", "param", "grad", "weight"), found[0])


def test_c36_frozen_and_missing_gradients():
    model = Lambda(
        lambda m, x: m.head(m.frozen(x)) if x.sum() > 0 else m.other(m.frozen(x)),
        frozen=nn.Linear(4, 4).requires_grad_(False),
        head=nn.Linear(4, 3),
        other=nn.Linear(4, 3),
    )
    signs = iter((1, -1, 1))

    recorded = train(model, lambda m: m(X.abs() * next(signs)).square().mean(), steps=3)

    assert list(recorded.series["frozen", "param", "grad", "weight"]["status"]) == [Status.FROZEN] * 3
    assert list(recorded.series["head", "param", "grad", "weight"]["status"]) == [0, Status.NO_GRADIENT, 0]
    assert list(recorded.series["other", "param", "grad", "weight"]["status"]) == [2, 0, 2]
    assert list(recorded.series["other", "param", "value", "weight"]["status"]) == [0, 0, 0]
    assert list(recorded.series["head", "output", "grad", "output"]["status"]) == [0, Status.NOT_RUN, 0]
    assert recorded.status("frozen", "output", "grad", "output") == Status.REQUIRES_NONE


def test_c42_lbfgs():
    model = nn.Linear(4, 3)

    def run(writer: ExplorerWriter) -> None:
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = model(X).square().mean()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)

    recorded = record(run)

    assert recorded.steps == [0, 1]
    assert recorded.history.infos[0].forwards > 1


class OwnState(nn.Linear):
    """Hands out everything it holds, as classes with a `__getstate__` of their own often do."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


@pytest.mark.parametrize("build", [lambda: nn.Linear(4, 4), lambda: OwnState(4, 4), lambda: nn.GRU(4, 4)])
def test_c43_pickle_and_save(build, tmp_path):
    model = build()
    with ExplorerWriter(tmp_path) as writer:
        watch = writer.watch(model, log_freq=1)
        optimizer = torch.optim.Adam(model.parameters())
        out = model(X)
        file = io.BytesIO()
        torch.save({"model": model, "optimizer": optimizer.state_dict()}, file)  # within a logged step
        copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)]
        copies.append(torch.load(io.BytesIO(file.getvalue()), weights_only=False)["model"])
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        optimizer.step()
        step = watch.step
        for twin in copies:
            assert b"torchexplorer" not in pickle.dumps(twin)
            assert type(twin(X)) is type(out)
        assert watch.step == step
        assert watch.faults.list() == []
    assert b"torchexplorer" not in file.getvalue()


# --- Errors ----------------------------------------------------------------------------------------


class Fails(nn.Module):
    """Raises at chosen calls."""

    def __init__(self, error: BaseException, at: set[int]) -> None:
        super().__init__()
        self.error, self.at, self.calls = error, at, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls - 1 in self.at:
            raise self.error
        return x


class Interrupted(nn.Module):
    """Catches what no hook is told of, at its first call `within`."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Linear(4, 4), Interrupts())
        self.b, self.shared = nn.Linear(4, 4), nn.ReLU()
        self.c = CallsWhatItIsGiven()

    def forward(self, x: Tensor) -> Tensor:
        try:
            x = self.a(x)
        except KeyboardInterrupt:
            x = self.b(x)
        return self.c(self.shared(x), self.shared)


class Interrupts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyboardInterrupt


class CallsWhatItIsGiven(nn.Module):
    def forward(self, x: Tensor, function: nn.Module) -> Tensor:
        return function(x) * 2


def test_c47_an_interrupt_that_the_model_catches():
    recorded = train(Interrupted(), steps=2)

    assert recorded.ids() == [".", "a", "a/0", "a/1", "b", "shared", "c", "c/^shared"]
    for node in ("b", "shared", "c", "c/^shared"):
        assert recorded.status(node, "output", "grad", "output") == Status.OK
        assert recorded.status(node, "input", "value", recorded.node(node).inputs[0].name) == Status.OK


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("size mismatch"),
        KeyboardInterrupt(),
        StopIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("at", [0, 1], ids=["in the first step", "later"])
def test_c47_an_exception_in_the_forward(error, at):
    def steps(watched: bool) -> tuple[list[Tensor], Recorded | None, nn.Module]:
        torch.manual_seed(0)
        fails = Fails(error, {at})
        inner = nn.Sequential(nn.Linear(4, 4), fails, nn.Linear(4, 4))
        model, weights, caught = nn.Sequential(nn.Linear(4, 4), inner, nn.Dropout(0.5)), [], []

        def run(writer: ExplorerWriter | None) -> None:
            watch = writer.watch(model, log_freq=1, sample_n=None) if writer else None
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                try:
                    loss = model(X).square().mean()
                except type(error):
                    caught.append(step)
                    loss = model(X[:3]).square().mean()  # a smaller batch
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                weights.append(model[0].weight.detach().clone())
            assert caught == [at]
            if watch:
                assert watch.faults.list() == []

        if watched:
            return weights, record(run), model
        run(None)
        return weights, None, model

    plain, _, _ = steps(False)
    weights, recorded, model = steps(True)

    assert all(torch.equal(a, b) for a, b in zip(plain, weights, strict=True))
    assert recorded.steps == [0, 1, 2]
    assert recorded.row(".", "input", "value", "input", at)["size"] == 12  # of the batch that was trained on
    assert recorded.status("1/2", "output", "grad", "output", at) == Status.OK
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_c47_an_exception_in_the_backward():
    class Breaks(torch.autograd.Function):
        broken = True

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            if Breaks.broken:
                raise RuntimeError("in the backward")
            return gradient * 2

    def weights(watched: bool) -> tuple[Tensor, Recorded | None]:
        torch.manual_seed(0)
        Breaks.broken = True
        model = Lambda(lambda m, x: m.b(Breaks.apply(m.a(x))), a=nn.Linear(4, 4), b=nn.Linear(4, 4))

        def run(writer: ExplorerWriter | None) -> None:
            watch = writer.watch(model, log_freq=1, sample_n=None) if writer else None
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with pytest.raises(RuntimeError, match="in the backward"):
                model(X).square().mean().backward()
            optimizer.zero_grad()
            Breaks.broken = False
            for _ in range(2):
                model(X).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            if watch:
                assert watch.faults.list() == []

        if watched:
            recorded = record(run)
            return model.a.weight.detach(), recorded
        run(None)
        return model.a.weight.detach(), None

    plain, _ = weights(False)
    watched, recorded = weights(True)

    assert torch.equal(plain, watched)
    assert recorded.steps == [0, 1]
    assert recorded.status("a", "output", "grad", "output", 0) == Status.OK
    assert recorded.status("a", "output", "grad", "output", 1) == Status.OK
