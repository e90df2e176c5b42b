"""torch.compile around what makes a step: calls that pass us by, closures, whole steps, optimizers."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
from compiled import WARNINGS, Graphs, Net, X, fresh_compiler, loop
from torch._dynamo.utils import counters

from tensorboard_torchexplorer import ExplorerWriter
from tensorboard_torchexplorer.schema import Status
from tests.recording import Key, assert_row_holds, read_back

pytestmark = WARNINGS

TORCH = torch.torch_version.TorchVersion(torch.__version__)


@pytest.fixture(autouse=True)
def fresh():
    with fresh_compiler():
        yield


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

    # Torch 2.6 computes a compiled step another way than an eager one, also where nobody watches.
    assert results[True][0] == pytest.approx(results[False][0], rel=1e-6 if TORCH < "2.13" else 0, abs=0)
    for key in (Key("head", "output", "grad", "output"), Key("head", "param", "grad", "weight")):
        assert set(seen.series[key]["status"]) == {Status.OK}
    if function is accumulated:  # each backward counts, or from torch 2.15 on each step
        assert seen.steps[-1] >= {1: 11, 3: 9, 5: 10}[every]
        return
    if every != 1:
        assert_compiled_alike(results)
    assert numbers[4:] == list(range(4, 12))
    assert seen.steps[0] == 0
    assert seen.steps[-2:] == {1: [10, 11], 3: [6, 9], 5: [5, 10]}[every]
    for step, row in zip(seen.steps, seen.series[Key("head", "param", "value", "weight")], strict=True):
        if step > 4:
            assert_row_holds(row, weights[12 + step])


def assert_compiled_alike(results):
    """The same graphs, and no more breaks: from torch 2.15 on one less where an optimizer is followed."""
    (_, graphs, breaks), (_, unwatched_graphs, unwatched_breaks) = results[True], results[False]
    assert graphs == unwatched_graphs
    assert breaks in (unwatched_breaks - 1, unwatched_breaks)


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
    assert_compiled_alike(results)
    seen = read_back(str(tmp_path / "True"))
    # Steps without hooks are noticed by changed parameters, then backward passes are counted.
    assert seen.steps == [0, 2, 4]
    assert seen.status("head", "output", "grad", "output") == Status.OK
    assert seen.status("head", "param", "grad", "weight") == Status.OK
