"""Putting watches on and taking them off: what they leave behind, and several at once."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from watched import TwoParts, X, everything, train, two_parts

from tensorboard_torchexplorer.reader import read
from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter
from tests.recording import Key, assert_row_holds, read_back, record


def global_hooks() -> tuple:
    return (
        len(optimizers._global_optimizer_pre_hooks),
        len(optimizers._global_optimizer_post_hooks),
        torch.amp.GradScaler.step,
        torch.autograd.Function.__dict__["apply"],
        len(torch.nn.modules.module._global_forward_hooks),
    )


def with_user_hooks() -> TwoParts:
    model = two_parts()
    model.encoder.register_forward_hook(lambda module, args, output: None)
    model.register_forward_pre_hook(lambda module, args: None)
    model.decoder.register_full_backward_hook(lambda module, grad_in, grad_out: None)
    return model


def compiled_by_method() -> TwoParts:
    model = two_parts()
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize("build", [two_parts, with_user_hooks, compiled_by_method])
@pytest.mark.parametrize("steps", [0, 3])
def test_c39_unwatch_leaves_the_model_and_the_process_as_they_were(build, steps, tmp_path):
    model = build()
    with ExplorerWriter(str(tmp_path)) as writer:
        before, hooks = everything(model), global_hooks()
        writer.watch(model, log_freq=2)
        assert everything(model) != before
        train(model, steps)
        writer.unwatch(model)

        assert everything(model) == before
        assert global_hooks() == hooks


def test_unwatch_in_the_middle_of_a_logged_step(tmp_path):
    model = two_parts()
    before = everything(model)
    with ExplorerWriter(str(tmp_path)) as writer:
        with writer.watch(model, log_freq=1):
            loss = model(X).square().mean()
        assert everything(model) == before
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    seen = read_back(str(tmp_path))

    assert seen.status(".", "output", "value", "output") == Status.OK
    assert seen.status(".", "output", "grad", "output") == Status.NO_BACKWARD


def test_c39_watching_again_goes_on_with_the_steps(tmp_path):
    """A notebook cell that is run once more, with or without unwatch in between."""
    model = two_parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ExplorerWriter(str(tmp_path)) as writer:
        for again in (False, False, True):
            if again:
                writer.unwatch(model)
            writer.watch(model, log_freq=1)
            assert sum(name == "_compiled_call_impl" for name in vars(model)) == 1
            train(model, 2, optimizer)
    (run,) = read(str(tmp_path)).values()

    assert list(run.models) == ["TwoParts"]
    assert not run.problems
    assert read_back(str(tmp_path)).steps == [0, 1, 2, 3, 4, 5]


def test_a_new_model_under_the_same_name_keeps_the_old_records_readable(tmp_path):
    """Indices of series are on disk: the graphs are united."""
    first, second = nn.Sequential(nn.Linear(8, 3)), nn.Sequential(nn.Tanh(), nn.Linear(8, 2), nn.Linear(2, 8))
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(first, "net", log_freq=1, sample_n=None)
        train(first)
        writer.watch(second, "net", log_freq=1, sample_n=None)
        train(second)
    seen = read_back(str(tmp_path))

    assert seen.steps == [0, 1]
    assert seen.status("0", "output", "value", "output", 0) == Status.OK
    assert seen.row("0", "output", "value", "output", 0)["size"] == 6 * 3
    assert seen.row("0", "output", "value", "output", 1)["size"] == 6 * 8
    assert seen.status("1", "output", "value", "output", 0) == Status.NOT_RUN
    assert seen.row("1", "output", "value", "output", 1)["size"] == 6 * 2


def test_other_options_apply_when_watched_again(tmp_path):
    model = two_parts()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1, log=["params"])
        train(model, 1)
        writer.watch(model, log_freq=1, log=["io"])
        train(model, 1)
    seen = read_back(str(tmp_path))

    parameter = [seen.status("decoder", "param", "value", "weight", at) for at in (0, 1)]
    output = [seen.status("decoder", "output", "value", "output", at) for at in (0, 1)]
    assert parameter == [Status.OK, Status.NOT_RUN]
    assert output == [Status.NOT_RUN, Status.OK]


def test_c40_several_models_of_one_writer_by_name(tmp_path):
    """C40: each has its own graph and history."""
    model = two_parts()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model.encoder, "enc", log_freq=1)
        writer.watch(model.decoder, "dec", log_freq=2)
        train(model, 3)
    encoder, decoder = read_back(str(tmp_path), "enc"), read_back(str(tmp_path), "dec")

    assert (encoder.ids(), encoder.steps) == ([".", "0", "1"], [0, 1, 2])
    assert (decoder.ids(), decoder.steps) == (["."], [0, 2])


def test_models_of_one_class_get_different_names(tmp_path):
    with ExplorerWriter(str(tmp_path)) as writer:
        models = [nn.Linear(2, 2) for _ in range(2)]
        names = [writer.watch(model).name for model in models]

    assert names == ["Linear", "Linear 2"]


def test_c40_a_submodule_is_watched_while_its_parent_is_called(tmp_path):
    """C40: and while the parent is watched as well, each sees what it would see alone."""
    rows = {}
    for both in (False, True):
        model = two_parts()
        with ExplorerWriter(str(tmp_path / str(both))) as writer:
            if both:
                writer.watch(model, "all", log_freq=1, sample_n=None)
            writer.watch(model.encoder, "part", log_freq=1, sample_n=None)
            train(model, 2)
        seen = read_back(str(tmp_path / str(both)), "part")
        assert seen.steps == [0, 1]
        rows[both] = {key: bytes(row.tobytes()) for key, row in seen.series.items()}
        edges = [edge for edge in seen.graph.edges if edge.level == 0]
        assert len(edges) == 3
    assert rows[True] == rows[False]
    whole = read_back(str(tmp_path / "True"), "all")
    assert whole.steps == [0, 1]
    assert sum(edge.level == 0 for edge in whole.graph.edges) == 3


def test_a_budget_of_records_thins_a_long_run():
    model = nn.Linear(2, 2)

    def train(writer):
        writer.watch(model, log_freq=2, max_records=4, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(40):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert record(train).steps == [0, 2, 4, 6, 8, 12, 16, 24, 32]


class Turns(nn.Module):
    """Its children run in another order when `turned`, and would be found in that order anew."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.turned = nn.Linear(8, 8), nn.Linear(8, 8), False

    def forward(self, x):
        return self.a(self.b(x)) if self.turned else self.b(self.a(x))


def test_another_number_of_bins_keeps_the_old_records_readable(tmp_path):
    model = Turns()
    before = copy.deepcopy(model)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, "net", log_freq=1, sample_n=None, bins=30)
        train(model)
        model.turned = True
        after = copy.deepcopy(model)
        writer.watch(model, "net", log_freq=1, sample_n=None, bins=12)
        train(model)
    seen = read_back(str(tmp_path))

    assert seen.steps == [0, 1]
    for name in "ab":
        rows = seen.series[Key(name, "param", "value", "weight")]
        assert rows["counts"].shape == (2, 12)
        for row, truth in zip(rows, (before, after), strict=True):
            assert_row_holds(row, getattr(truth, name).weight)


def test_without_a_backward_parameters_are_those_at_the_end(tmp_path):
    """Of a model that is trained by other means, or not at all."""
    model = two_parts().requires_grad_(False)
    seen = record(lambda writer: (writer.watch(model, log_freq=1, sample_n=None), model(X)))

    assert_row_holds(seen.row("decoder", "param", "value", "weight"), model.decoder.weight)
    assert seen.status("decoder", "param", "grad", "weight") == Status.FROZEN


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Rounds(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.after(Straight.apply(self.before(x)))


def test_a_model_within_another_is_traced_for_both(tmp_path):
    """Custom functions are opaque to operators, and in a frozen model autograd shows nothing either: both
    tracers have to be told of them."""
    model = nn.Sequential(Rounds(), nn.Linear(8, 8)).requires_grad_(False)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, "outer", log_freq=1)
        writer.watch(model[0], "inner", log_freq=1)
        model(X)
    outer, inner = (read_back(str(tmp_path), name).graph for name in ("outer", "inner"))

    def edges(graph, level):
        names = [node.id for node in graph.nodes]
        return {
            (names[edge.source.index], names[edge.target.index], edge.kind)
            for edge in graph.edges
            if names[edge.level] == level and edge.source.kind == edge.target.kind == "node"
        }

    assert edges(inner, ".") == {("before", "after", "gradient")}
    assert edges(outer, "0") == {("0/before", "0/after", "gradient")}


def test_c85_a_torch_that_lacks_what_we_need_is_told_at_the_call(tmp_path, monkeypatch):
    monkeypatch.delattr(torch.compiler, "set_stance")
    lacking = r"watch: torch .* has no set_stance; use torch 2\.6 or newer"
    with ExplorerWriter(str(tmp_path)) as writer, pytest.raises(RuntimeError, match=lacking):
        writer.watch(two_parts())
