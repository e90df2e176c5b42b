"""Public faults of tools like this one, by the rows' numbers: steps, gradients, copies."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from cases import Lambda, X, train
from recording import assert_row_holds, norms, record
from torch import Tensor, nn

from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter


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


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_c42_lbfgs(search):
    """A record holds the first forward of its step, the parameters before it, the last gradients of it."""
    model, before, after, forwards = nn.Linear(4, 3), [], [], []

    def run(writer: ExplorerWriter) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5, line_search_fn=search)

        def closure() -> Tensor:
            optimizer.zero_grad()
            out = model(X)
            forwards[-1].append(out.detach())
            loss = out.square().mean()
            loss.backward()
            return loss

        for step in range(3):
            before.append(model.weight.detach().clone())
            forwards.append([])
            optimizer.step(closure)
            after.append(model.weight.grad.clone())
            assert watch.step == step + 1

    recorded = record(run)

    assert recorded.steps == [0, 1, 2]
    for step in range(3):
        assert recorded.history.infos[step].forwards == len(forwards[step]) > 1
        assert_row_holds(recorded.row("", "param", "value", "weight", step), before[step])
        assert_row_holds(recorded.row("", "param", "grad", "weight", step), after[step])
        assert_row_holds(recorded.row(".", "output", "value", "output", step), forwards[step][0])


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
