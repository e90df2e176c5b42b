"""Mixed precision with a loss scale: the gradients that the optimizer used, the scale, skipped steps."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter
from tests.recording import assert_row_holds, clone_instrumented, norms, record

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def scaled_step(model, optimizer, scaler, factor=1.0, clip=False):
    loss = model(X).square().mean() * factor
    scaler.scale(loss).backward()
    if clip:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)
    scaler.step(optimizer)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    scaler.update()
    optimizer.zero_grad()
    return gradients


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("kind", ["sgd", "adam", "fused adam"])
def test_c30_gradients_are_the_unscaled_ones_and_the_scale_is_recorded(kind, clip):
    model = network()
    twin = copy.deepcopy(model)
    truth = clone_instrumented(twin)
    twin(X).square().mean().backward()

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = {
            "sgd": lambda p: torch.optim.SGD(p, lr=0.0),
            "adam": lambda p: torch.optim.Adam(p, lr=0.0),
            "fused adam": lambda p: torch.optim.Adam(p, lr=0.0, fused=True),
        }[kind](model.parameters())
        scaler = GradScaler("cpu", init_scale=65536.0, growth_interval=2)
        for _ in range(3):
            scaled_step(model, optimizer, scaler, clip=clip)

    recorded = record(train)
    assert recorded.steps == [0, 1, 2]
    assert [info.scale for info in recorded.history.infos] == [65536.0, 65536.0, 131072.0]
    assert not any(info.skipped for info in recorded.history.infos)
    for at in range(3):
        for path in ("0", "2"):
            weight = twin.get_submodule(path).weight.grad
            assert_row_holds(recorded.row(path, "param", "grad", "weight", at), weight, rel=1e-5)
            out = truth[path, "output", 0][0]
            assert_row_holds(recorded.row(path, "output", "grad", "output", at), norms(out), rel=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_a_skipped_step_is_marked_and_shows_what_broke(fused):
    model = network()

    def train(writer):
        watch = writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
        scaler = GradScaler("cpu", init_scale=1024.0)
        before = model[0].weight.detach().clone()
        scaled_step(model, optimizer, scaler, factor=1e38)
        assert torch.equal(before, model[0].weight)
        scaled_step(model, optimizer, scaler)
        assert watch.step == 2

    recorded = record(train)
    assert recorded.steps == [0, 1]
    assert [info.skipped for info in recorded.history.infos] == [True, False]
    assert [info.scale for info in recorded.history.infos] == [1024.0, 512.0]
    broken = recorded.row("0", "param", "grad", "weight", 0)
    assert broken["nan"] + broken["posinf"] + broken["neginf"] > 0
    assert recorded.status("0", "param", "grad", "weight", 1) == Status.OK


def test_a_disabled_scaler_is_as_none():
    model = network()

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaled_step(model, optimizer, GradScaler("cpu", enabled=False))

    recorded = record(train)
    assert [(info.step, info.scale, info.skipped) for info in recorded.history.infos] == [(0, None, False)]


def test_the_scaler_is_the_users_own_again_and_was_never_touched(tmp_path):
    original = GradScaler.step
    scaler = GradScaler("cpu", init_scale=8.0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1)
        scaled_step(model, optimizer, scaler)
        assert vars(pickle.loads(pickle.dumps(scaler))).keys() == vars(scaler).keys()
    assert GradScaler.step is original
    assert "step" not in vars(scaler)
