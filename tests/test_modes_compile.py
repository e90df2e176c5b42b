"""torch.compile: logged steps run eagerly, all others with the graphs that they have unwatched."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
from compiled import WARNINGS, WAYS, Body, Breaks, Graphs, Net, X, fresh_compiler, loop, run
from torch import nn

from tensorboard_torchexplorer import ExplorerWriter
from tensorboard_torchexplorer.capture.dynamo import _stance
from tensorboard_torchexplorer.schema import Status
from tests.recording import read_back

pytestmark = WARNINGS


@pytest.fixture(autouse=True)
def fresh():
    with fresh_compiler():
        yield


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
