"""torch.compile: logged steps run eagerly, all others with the graphs that they have unwatched."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

from tensorboard_torchexplorer import ExplorerWriter, attach
from tensorboard_torchexplorer.capture.dynamo import EAGER, _stance
from tensorboard_torchexplorer.schema import Status
from tests.recording import Key, assert_row_holds, read_back

# The compiler's own, while it traces.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    assert _stance() == "default"
    assert not EAGER._holders


class Graphs:
    """A backend that counts what it is given and runs it as it is."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, graph, inputs):
        self.sizes.append(len(list(graph.graph.nodes)))
        return graph.forward


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.layers(x)


class Head(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = Body()
        self.head = Head(8, 3)

    def forward(self, x):
        return self.head(attach(self.body(x), "hidden"))


class Breaks(Net):
    """With a graph break in the middle."""

    def forward(self, x):
        hidden = self.body(x)
        torch._dynamo.graph_break()
        return self.head(hidden)


def loop(model, call, steps, *, evaluate=False, optimizer=None):
    """Trains with `call` as the forward; the losses."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        loss = call(X).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if evaluate:
            model.eval()
            with torch.no_grad():
                losses += [call(X).sum().item(), call(X + 1).sum().item()]
            model.train()
    return losses


def whole_model(model, backend, **options):
    return torch.compile(model, backend=backend, **options)


def in_place(model, backend, **options):
    model.compile(backend=backend, **options)
    return model


def step_function(model, backend, **options):
    @torch.compile(backend=backend, **options)
    def forward(x):
        return model(x * 1)

    return forward


def children(model, backend, **options):
    model.body = torch.compile(model.body, backend=backend, **options)
    model.head.compile(backend=backend, **options)
    return model


WAYS = {
    "compile(model)": whole_model,
    "model.compile()": in_place,
    "step function": step_function,
    "children": children,
}


def run(way, when, folder, *, build=Net, steps=7, evaluate=False, watch=True, **options):
    """Train and watch a model; (losses, weights, sizes of the graphs, counters of the compiler)."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model, backend = build(), Graphs()
    fullgraph = options.pop("fullgraph", False)
    writer = ExplorerWriter(str(folder))
    if watch and when == "before":
        writer.watch(model, log_freq=3, **options)
    call = WAYS[way](model, backend, fullgraph=fullgraph)
    if watch and when == "after":
        writer.watch(call if isinstance(call, nn.Module) else model, log_freq=3, **options)
    losses = loop(model, call, steps, evaluate=evaluate)
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    writer.close()
    stats = {
        "graphs": backend.sizes,
        "breaks": sum(counters["graph_break"].values()),
        "recompiles": sum(counters["recompiles"].values()),
        "frames": counters["stats"]["unique_graphs"],
    }
    return losses, weights, stats


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("way", WAYS)
def test_c25_idle_steps_keep_their_graphs_and_logged_ones_are_recorded(way, when, fullgraph, tmp_path):
    plain = run(way, when, tmp_path / "plain", watch=False, fullgraph=fullgraph)
    watched = run(way, when, tmp_path / "watched", fullgraph=fullgraph)
    seen = read_back(str(tmp_path / "watched"))

    assert watched[0] == plain[0]
    assert all(torch.equal(a, b) for a, b in zip(watched[1], plain[1], strict=True))
    assert watched[2] == plain[2]
    assert len(watched[2]["graphs"]) == (2 if way == "children" else 1)
    assert 0 in seen.steps
    assert seen.steps[-2:] == [3, 6]
    for at in range(-2, 0):
        assert seen.status(".", "output", "grad", "output", at) == Status.OK
        assert seen.status("head", "input", "value", "x", at) == Status.OK
        assert seen.status("head", "param", "grad", "weight", at) == Status.OK
    assert seen.history.infos[-1].faults == []


@pytest.mark.parametrize("way", WAYS)
def test_graph_breaks_stay_as_many(way, tmp_path):
    plain = run(way, "after", tmp_path / "plain", build=Breaks, watch=False)
    watched = run(way, "after", tmp_path / "watched", build=Breaks)

    assert watched[0] == plain[0]
    assert watched[2] == plain[2]
    assert (plain[2]["breaks"] > 0) == (way != "children")


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_evaluation_rounds_in_between(way, fullgraph, tmp_path):
    plain = run(way, "after", tmp_path / "plain", evaluate=True, watch=False, fullgraph=fullgraph)
    watched = run(way, "after", tmp_path / "watched", evaluate=True, fullgraph=fullgraph, eval_freq=2)
    seen = read_back(str(tmp_path / "watched"))
    evaluated = read_back(str(tmp_path / "watched"), phase="eval")

    assert watched[0] == plain[0]
    assert watched[2] == plain[2]
    assert seen.steps == [0, 3, 6]
    if way == "step function":
        return  # an evaluation that is compiled as a whole passes by unless a logged step begins there
    assert evaluated.steps == [1, 3, 5, 7]
    assert evaluated.status("head", "output", "value", "output") == Status.OK


@pytest.mark.parametrize("way", WAYS)
def test_skip_records_parameters_and_their_gradients_only(way, tmp_path):
    plain = run(way, "after", tmp_path / "plain", watch=False)
    watched = run(way, "after", tmp_path / "watched", compiled="skip")
    seen = read_back(str(tmp_path / "watched"))

    assert watched[0] == plain[0]
    assert watched[2] == plain[2]
    assert seen.steps == [0, 3, 6]
    assert seen.history.infos[-1].faults == []
    assert seen.status("head", "param", "value", "weight") == Status.OK
    assert seen.status("head", "param", "grad", "weight") == Status.OK
    assert not [key for key in seen.series if key.group != "param"]


def test_skip_changes_nothing_for_a_model_that_is_not_compiled(tmp_path):
    model = Net()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1, compiled="skip")
        loop(model, model, 2)
    assert read_back(str(tmp_path)).status("head", "output", "grad", "output") == Status.OK


def test_parameters_recorded_without_a_forward_are_those_of_the_step(tmp_path):
    torch.manual_seed(0)
    model = Net()
    twin = copy.deepcopy(model)
    call = torch.compile(model, backend="eager")
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(call, log_freq=1, compiled="skip", sample_n=None)
        loop(model, call, 2)
    loop(twin, twin, 1)
    torch.manual_seed(1)
    twin(X).square().mean().backward()
    seen = read_back(str(tmp_path))

    assert_row_holds(seen.row("head", "param", "value", "weight", 1), twin.head.weight)
    assert_row_holds(seen.row("head", "param", "grad", "weight", 1), twin.head.weight.grad)


def test_steps_without_a_forward_are_told_once_and_parameters_go_on(tmp_path, caplog):
    """Called by .forward(): no trigger, no hook."""
    model = Net()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=2)
        loop(model, model.forward, 6)
    seen = read_back(str(tmp_path))

    assert seen.steps == [0, 2, 4]
    assert [fault.place for fault in seen.history.infos[-1].faults] == ["forwards"]
    assert sum("no forward of the model was seen" in entry.message for entry in caplog.records) == 1
    assert seen.status("head", "param", "grad", "weight") == Status.OK
    assert seen.node("head").notes == ["not called through __call__"]


def test_steps_that_lose_their_forward_keep_their_rows_with_the_reason(tmp_path):
    model = Net()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loop(model, model, 1, optimizer=optimizer)
        loop(model, model.forward, 1, optimizer=optimizer)
    seen = read_back(str(tmp_path))

    assert seen.steps == [0, 1]
    assert seen.status("head", "output", "value", "output", 1) == Status.NOT_OBSERVED
    assert seen.status("head", "param", "value", "weight", 1) == Status.OK


def test_a_closure_that_runs_the_forward_inside_the_step_is_observed(tmp_path):
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        return loss

    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1)
        for _ in range(3):
            optimizer.step(closure)
    seen = read_back(str(tmp_path))

    assert seen.steps == [0, 1, 2]
    assert all(seen.status("head", "output", "grad", "output", at) == Status.OK for at in range(3))


def test_parameters_that_move_within_a_step_are_no_steps(tmp_path):
    """SAM: two backward passes at two points, then one step of the optimizer."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1)
        for _ in range(4):
            model(X).square().mean().backward()
            moved = [(p, p.grad * 0.01) for p in model.parameters()]
            with torch.no_grad():
                for parameter, way in moved:
                    parameter.add_(way)
            optimizer.zero_grad()
            model(X).square().mean().backward()
            with torch.no_grad():
                for parameter, way in moved:
                    parameter.sub_(way)
            optimizer.step()
            optimizer.zero_grad()
    seen = read_back(str(tmp_path))

    assert seen.steps == [0, 1, 2, 3]
    assert seen.history.infos[-1].forwards == 2


def test_a_stance_of_the_user_is_left_alone(tmp_path):
    model = Net()
    call = torch.compile(model, backend="eager")
    with ExplorerWriter(str(tmp_path)) as writer, torch.compiler.set_stance("eager_on_recompile"):
        writer.watch(call, log_freq=2)
        for _ in range(3):
            loop(model, call, 1)
        assert _stance() == "eager_on_recompile"
        with torch.compiler.set_stance("force_eager"):
            loop(model, call, 3)
            assert _stance() == "force_eager"
        assert _stance() == "eager_on_recompile"


def once(model, optimizer, x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def accumulated(model, optimizer, x):
    model(x).square().mean().backward()
    return once(model, optimizer, x)


def in_a_loop(model, optimizer, x):
    for _ in range(1):  # which a graph break leaves uncompiled, but not what it calls
        loss = model(x).square().mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


@pytest.mark.parametrize("every", [1, 3, 5])
@pytest.mark.parametrize("function", [once, accumulated, in_a_loop])
def test_a_training_step_compiled_as_a_whole(function, every, tmp_path):
    """Optimizer and all: the first step runs eagerly, the next ones are noticed by the sentinel."""
    results, numbers, weights = {}, [], []
    for watch in (False, True):
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        model, backend = Net(), Graphs()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = torch.compile(function, backend=backend)
        with ExplorerWriter(str(tmp_path / str(watch))) as writer:
            if watch:
                watched = writer.watch(model, log_freq=every, sample_n=None)
            losses = []
            for number in range(12):
                torch.manual_seed(number)
                weights.append(model.head.weight.detach().clone())
                if watch:
                    numbers.append(watched.step)
                losses.append(step(model, optimizer, X).item())
            assert not watch or watched.faults.list() == []
        results[watch] = losses, set(backend.sizes), sum(counters["graph_break"].values())
    seen = read_back(str(tmp_path / "True"))

    assert results[True][0] == results[False][0]
    for key in (Key("head", "output", "grad", "output"), Key("head", "param", "grad", "weight")):
        assert set(seen.series[key]["status"]) == {Status.OK}
    if function is accumulated:  # each backward counts
        assert seen.steps[-1] >= 10
        return
    assert every == 1 or results[True][1:] == results[False][1:]
    assert numbers[4:] == list(range(4, 12))
    assert seen.steps[0] == 0
    assert seen.steps[-2:] == {1: [10, 11], 3: [6, 9], 5: [5, 10]}[every]
    for step, row in zip(seen.steps, seen.series[Key("head", "param", "value", "weight")], strict=True):
        if step > 4:
            assert_row_holds(row, weights[12 + step])


def test_a_compiled_optimizer_is_not_changed(tmp_path):
    results = {}
    for watch in (False, True):
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        model, backend = Net(), Graphs()
        optimizer = torch.optim.Adam(model.parameters())
        step = torch.compile(lambda optimizer=optimizer: optimizer.step(), backend=backend)
        with ExplorerWriter(str(tmp_path / str(watch))) as writer:
            if watch:
                writer.watch(model, log_freq=2)
            for number in range(6):
                torch.manual_seed(number)
                model(X).square().mean().backward()
                step()
                optimizer.zero_grad()
        weights = [parameter.detach().clone() for parameter in model.parameters()]
        results[watch] = weights, backend.sizes, sum(counters["graph_break"].values())

    assert all(torch.equal(a, b) for a, b in zip(results[True][0], results[False][0], strict=True))
    assert results[True][1:] == results[False][1:]
    seen = read_back(str(tmp_path / "True"))
    # Steps without hooks are noticed by changed parameters, then backward passes are counted.
    assert seen.steps == [0, 2, 4]
    assert seen.status("head", "output", "grad", "output") == Status.OK
    assert seen.status("head", "param", "grad", "weight") == Status.OK


def test_compiled_functions_of_others_are_compiled_between_logged_steps(tmp_path):
    """The stance is of the process, and must not stay."""
    model, backend = Net(), Graphs()
    other = torch.compile(lambda x: x.sin() + 1, backend=backend)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=10)
        other(X)
        assert backend.sizes == []
        loop(model, model, 1)
        other(X)
        assert len(backend.sizes) == 1


def test_inference_of_a_compiled_model_is_compiled_after_the_first_call(tmp_path):
    backend = Graphs()
    model = Net().eval()
    call = torch.compile(model, backend=backend, fullgraph=True)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(call)
        with torch.no_grad():
            for _ in range(4):
                call(X)
    assert len(backend.sizes) == 1
    assert read_back(str(tmp_path), phase="eval").steps == [0]


def test_compiled_children_have_the_paths_of_the_uncompiled(tmp_path):
    """So that runs with and without compilation can be compared."""

    def net():
        torch.manual_seed(0)
        model = nn.Sequential(Body(), nn.Linear(8, 8), nn.Linear(8, 3))
        model.hidden = [nn.Linear(3, 3)]
        model.append(model.hidden[0])
        return model

    def recorded(model, name):
        with ExplorerWriter(str(tmp_path / name)) as writer:
            watch = writer.watch(model, log_freq=1, sample_n=None, exclude="1")
            model(X).sum().backward()
            watch.close()
        return read_back(str(tmp_path / name))

    plain, compiled = net(), net()
    for module in (compiled[0].layers, compiled[0], compiled[1]):
        place = compiled[0] if module is compiled[0].layers else compiled
        name = "layers" if place is compiled[0] else str(list(compiled).index(module))
        setattr(place, name, torch.compile(module, backend="eager"))
    compiled.hidden[0] = compiled[3] = torch.compile(compiled[3], backend="eager")
    one, other = recorded(plain, "plain"), recorded(compiled, "compiled")

    assert one.ids() == other.ids()
    assert [module.path for module in one.graph.modules] == [module.path for module in other.graph.modules]
    assert one.series.keys() == other.series.keys()
    assert [m.flags for m in one.graph.modules if m.path == "1"] == [["excluded"]]
    for key, rows in one.series.items():
        assert list(rows["status"]) == list(other.series[key]["status"]), key
