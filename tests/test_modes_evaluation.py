"""Forwards without training: recorded apart, at their own pace, and from the very first one."""

from __future__ import annotations

import copy
import time

import pytest
import torch
from torch import nn

from tensorboard_torchexplorer.capture.fused import FUSED
from tensorboard_torchexplorer.reader import FileSource, read
from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter
from tests.recording import assert_row_holds, norms, read_back, record

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))
V = torch.randn(9, 8, generator=torch.Generator().manual_seed(8))


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def train_step(model, optimizer, x=X):
    model.train()
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def evaluate(model, *batches):
    model.eval()
    with torch.no_grad():
        return [model(batch) for batch in batches]


def test_c38_a_model_that_never_trains_shows_structure_and_activations_at_once(tmp_path):
    """`from_pretrained` gives a model in eval mode, and the page stayed empty."""
    model = mlp().eval()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model)
        (output,) = evaluate(model, V)
        writer.flush()
        seen = read_back(str(tmp_path), phase="eval")

    assert seen.ids() == [".", "0", "1", "2"]
    assert seen.steps == [0]
    assert_row_holds(seen.row(".", "output", "value", "output"), output)
    assert seen.status("2", "output", "grad", "output") == Status.EVAL
    assert read_back(str(tmp_path)).steps == []


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_rounds_of_evaluation_are_recorded_at_their_own_pace(guard, tmp_path):
    """Two batches a round, three training steps between rounds, every second round."""
    model = mlp()
    firsts = []
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=2, eval_freq=2, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for round_ in range(4):
            for _ in range(3):
                train_step(model, optimizer)
            model.eval()
            with guard():
                firsts.append(model(V + round_).clone())
                model(V - round_)
    train, evaluated = read_back(str(tmp_path)), read_back(str(tmp_path), phase="eval")

    assert train.steps == [0, 2, 4, 6, 8, 10]
    assert evaluated.steps == [3, 9]
    assert_row_holds(evaluated.row(".", "output", "value", "output", 0), firsts[0])
    assert_row_holds(evaluated.row(".", "output", "value", "output", 1), firsts[2])


def test_without_eval_freq_evaluation_of_a_trained_model_is_not_recorded(tmp_path):
    model = mlp()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            train_step(model, optimizer)
            evaluate(model, V)

    assert read_back(str(tmp_path), phase="eval").steps == []
    assert read_back(str(tmp_path)).steps == [0, 1]


def test_evaluation_between_forward_and_backward_changes_neither_record(tmp_path):
    """C33: the training record keeps its own values and gradients, the evaluation has its own."""
    model, twin = mlp(), None
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1, eval_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            twin = copy.deepcopy(model)
            torch.manual_seed(step)
            output = model(X)
            (validated,) = evaluate(model, V)
            model.train()
            output.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.manual_seed(1)
    truth = twin(X)
    truth.retain_grad()
    truth.square().mean().backward()
    train, evaluated = read_back(str(tmp_path)), read_back(str(tmp_path), phase="eval")

    assert train.steps == evaluated.steps == [0, 1]
    assert_row_holds(train.row(".", "output", "value", "output"), truth)
    assert_row_holds(train.row(".", "output", "grad", "output"), norms(truth.grad))
    assert_row_holds(train.row("0", "param", "grad", "weight"), twin[0].weight.grad)
    assert_row_holds(evaluated.row(".", "output", "value", "output"), validated)


def test_evaluation_before_training_with_gradients_enabled_is_no_training_step(tmp_path):
    """A sanity check of the validation loop that forgot no_grad."""
    model = mlp().eval()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1, sample_n=None)
        checked = model(V)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        weights = []
        for _ in range(2):
            weights.append(model[0].weight.detach().clone())
            train_step(model, optimizer)
    train, evaluated = read_back(str(tmp_path)), read_back(str(tmp_path), phase="eval")

    assert (train.steps, evaluated.steps) == ([0, 1], [0])
    assert_row_holds(evaluated.row("2", "output", "value", "output"), checked)
    assert_row_holds(train.row("0", "input", "value", "input", 0), X)
    for step, weight in enumerate(weights):
        assert_row_holds(train.row("0", "param", "value", "weight", step), weight)


def test_fine_tuning_in_eval_mode_is_training(tmp_path):
    model = mlp().eval()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(X).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert read_back(str(tmp_path)).steps == [0, 1, 2]
    assert read_back(str(tmp_path), phase="eval").steps == []


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        return self.encoder(x)


def test_a_fused_encoder_is_shown_as_run_and_its_children_as_not_run(tmp_path):
    """C08"""
    torch.manual_seed(0)
    model = Encoder()
    plain = copy.deepcopy(model)
    x = torch.randn(2, 5, 8)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1, eval_freq=1, sample_n=None)
        for one in (model, plain):
            train_step(one, torch.optim.SGD(one.parameters(), lr=0.1), x)
        output, truth = evaluate(model, x)[0], evaluate(plain, x)[0]
    train, evaluated = read_back(str(tmp_path)), read_back(str(tmp_path), phase="eval")
    layer = "encoder/layers.0"

    assert torch.equal(output, truth)
    assert evaluated.status(layer, "output", "value", "output") == Status.OK
    assert_row_holds(evaluated.row(".", "output", "value", "output"), output)
    assert FUSED in evaluated.node(layer).notes
    assert FUSED not in evaluated.node("encoder").notes
    for child in ("linear1", "norm2"):
        assert evaluated.status(f"{layer}/{child}", "output", "value", "output") == Status.NOT_RUN
        assert train.status(f"{layer}/{child}", "output", "value", "output") == Status.OK
        assert FUSED not in evaluated.node(f"{layer}/{child}").notes
    assert train.steps == [0]


def test_a_fused_encoder_that_has_never_trained_is_marked_as_well():
    model = Encoder().eval()
    seen = record(lambda writer: (writer.watch(model), evaluate(model, torch.randn(2, 5, 8))), phase="eval")

    assert FUSED in seen.node("encoder/layers.1").notes
    assert "not called through __call__" in seen.node("encoder/layers.1/linear1").notes


def test_the_structure_is_on_disk_after_the_first_forward(tmp_path):
    """Before the first step has ended, which may take minutes with gradient accumulation."""
    model = mlp()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, name="net")
        loss = model(X).square().mean()
        writer.flush()
        seen = read_back(str(tmp_path), "net")
        assert seen.ids() == [".", "0", "1", "2"]
        assert sum(edge.level == 0 for edge in seen.graph.edges) == 4
        assert seen.steps == []
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    (run,) = read(str(tmp_path)).values()

    assert not run.problems
    assert read_back(str(tmp_path), "net").steps == [0]


class Auxiliary(nn.Module):
    """Calls one of its layers only in training, so that an evaluation numbers the others otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.auxiliary, self.last = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(self.auxiliary(x) if self.training else x)


@pytest.mark.parametrize("gradients", [False, True], ids=["no_grad", "without no_grad"])
@pytest.mark.parametrize("start_step", [None, 0, 2, 9])
def test_another_process_that_evaluates_leaves_the_training_as_it_is(
    start_step, gradients, tmp_path, monkeypatch
):
    model = Auxiliary()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    weights = {name: [] for name in ("first", "auxiliary", "last")}
    with ExplorerWriter(tmp_path) as writer:
        writer.watch(model, log_freq=1, exact=True)
        for _ in range(4):
            for name, seen in weights.items():
                seen.append(model.get_submodule(name).weight.mean().item())
            model(torch.randn(3, 4)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    monkeypatch.setattr("tensorboard_torchexplorer.recording._SESSION", "another process")
    time.sleep(1.1)  # files are read in the order of the seconds that their names begin with
    with ExplorerWriter(tmp_path) as writer:
        writer.watch(model, start_step=start_step, log_freq=1)
        model.eval()
        with torch.set_grad_enabled(gradients):
            out = model(torch.randn(3, 4))

    found = read(tmp_path)["."]["Auxiliary"]

    history, evaluation = found.history(), found.history("eval")
    assert (history.steps.tolist(), evaluation.steps.tolist()) == ([0, 1, 2, 3], [start_step or 0])
    assert found.restarts == []
    for name, seen in weights.items():
        index = next(
            i
            for i, s in enumerate(found.graph.series)
            if (s.group, s.kind, s.name) == ("param", "value", "weight")
            and found.graph.modules[s.module].path == name
        )
        assert history.rows(index)["mean"] == pytest.approx(seen, rel=1e-5)
    (last,) = (i for i, node in enumerate(found.graph.nodes) if node.id == "last")
    index = next(
        i for i, s in enumerate(found.graph.series) if (s.node, s.group, s.kind) == (last, "output", "value")
    )
    assert evaluation.rows(index)["max"] == pytest.approx([out.max().item()])
    assert [node.id for node in found.graph.nodes] == [".", "first", "auxiliary", "last"]


def test_a_training_that_begins_with_an_evaluation_is_one_history(tmp_path):
    model = Auxiliary()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    shown, graphs = [], []
    with ExplorerWriter(tmp_path) as writer:
        writer.watch(model, log_freq=1, eval_freq=1)
        for training in (False, True, False, True):
            if training:
                train_step(model, optimizer, X[:, :4])
            else:
                evaluate(model, X[:, :4])
            writer.flush()
            found = read(tmp_path)["."]["Auxiliary"]
            shown.append([node.id for node in found.graph.nodes])
            graphs.append([tag for tag in FileSource(tmp_path).listing()["."] if "graph" in tag])

    assert shown == [[".", "first", "last", "auxiliary"]] * 4
    assert (found.history().steps.tolist(), found.restarts) == ([0, 1], [])
    assert found.history("eval").steps.tolist() == [0, 1]
    # With the training it is written anew: what others evaluate later must not take it away.
    both = ["torchexplorer/eval/graph/Auxiliary", "torchexplorer/graph/Auxiliary"]
    assert graphs == [both[:1], both, both, both]


def test_a_model_that_is_trained_in_evaluation_mode_is_trained(tmp_path):
    """As where the statistics of a normalization are to stay as they are."""
    model = mlp().eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with ExplorerWriter(tmp_path) as writer:
        writer.watch(model, log_freq=1)
        for _ in range(2):
            model(X).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    found = read(tmp_path)["."]["Sequential"]
    assert found.history().steps.tolist() == [0, 1]
    assert found.history("eval").steps.tolist() == []
    assert "torchexplorer/graph/Sequential" in FileSource(tmp_path).listing()["."]
