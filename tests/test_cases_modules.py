"""Public faults of tools like this one, by the rows' numbers: what modules are and where they are kept."""

from __future__ import annotations

import copy
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from cases import Lambda, Pair, X, edges, modules, observed, squared, train
from recording import assert_row_holds, norms, record
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint

from tensorboard_torchexplorer.capture.survey import split_extra
from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter


def pruned(layer: nn.Linear) -> nn.Linear:
    return prune.l1_unstructured(layer, "weight", 0.5)


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


class Key:
    def __repr__(self) -> str:
        raise AssertionError("nobody asks for this text")


def test_c21_the_keys_of_other_things_are_not_written_out():
    model = nn.Linear(4, 4)
    model.cache = {Key(): [torch.ones(2)], "deeper": {Key(): nn.Parameter(torch.ones(3))}}

    recorded = train(model)

    assert list(modules(recorded)) == [""]


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


def replaced(model: nn.Sequential) -> None:
    model[2] = nn.Linear(4, 9)


def inserted(model: nn.Sequential) -> None:
    model.insert(1, nn.Linear(4, 4, bias=False))


def wrapped(model: nn.Sequential) -> None:
    model[0] = nn.Sequential(model[0], nn.Tanh())


@pytest.mark.parametrize("change", [replaced, inserted, wrapped])
def test_modules_that_others_take_the_place_of(change):
    """What is shown of a path is what stands there now."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    gradients: dict[str, Tensor] = {}

    def run(writer: ExplorerWriter) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        for step in range(3):
            if step == 1:
                change(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.zero_grad()
            squared(model).backward()
            gradients.update({name: p.grad.clone() for name, p in model.named_parameters()})
            optimizer.step()
        assert watch.faults.list() == []

    recorded = record(run)

    found = modules(recorded)
    for path, module in model.named_modules():
        assert found[path].class_name == type(module).__name__, path
        assert found[path].extra == split_extra(module.extra_repr()), path
        now = {name: list(parameter.shape) for name, parameter in module.named_parameters(recurse=False)}
        assert now.items() <= {p.name: p.shape for p in found[path].parameters}.items()
    for name, gradient in gradients.items():
        path, _, leaf = name.rpartition(".")
        if name in dict(model.named_parameters()):
            assert_row_holds(recorded.row(path, "param", "grad", leaf), gradient)
