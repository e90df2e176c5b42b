"""The rows of the public faults about cost and side effects: time, random streams, memory, transfers."""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import Lambda, X, modules, squared, train
from neutrality import train as train_and_note
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from tensorboard_torchexplorer.writer import ExplorerWriter


def test_c65_idle_steps_run_next_to_nothing_of_ours(tmp_path):
    """Lines of Python executed in this package per idle step do not grow with the model."""

    def lines(depth: int) -> int:
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth)))
        seen = 0

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal seen
            if "tensorboard_torchexplorer" not in frame.f_code.co_filename:
                return None
            seen += 1
            return trace

        with ExplorerWriter(tmp_path / str(depth)) as writer:
            writer.watch(model, log_freq=10**9)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(4):
                if step == 3:
                    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
                    sys.settrace(trace)
                model(X).sum().backward()
                optimizer.step()
                sys.settrace(None)
        return seen

    few, many = lines(5), lines(300)

    assert few == many < 400  # how many a statement counts for differs between versions of Python


def test_c66_random_streams():
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        noise = torch.randn(4) + float(np.random.rand()) + random.random()
        return m.drop(m.l(x)) + noise

    def build() -> tuple[nn.Module, Callable[[Any], Any]]:
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(0)
        return Lambda(forward, l=nn.Linear(4, 4), drop=nn.Dropout(0.5)), squared

    plain = train_and_note(build, steps=4)
    with tempfile.TemporaryDirectory() as folder, ExplorerWriter(folder) as writer:
        watched = train_and_note(build, lambda model: writer.watch(model, log_freq=2, sample_n=3), steps=4)

    assert watched.facts["chance"] == plain.facts["chance"]
    assert watched.facts["loss"] == plain.facts["loss"]
    assert len(set(map(str, plain.facts["chance"]))) == 4


@pytest.mark.parametrize("backward", [True, False], ids=["with backward", "without"])
def test_c67_nothing_is_kept(backward, tmp_path):
    """Neither activations nor graph nodes outlive the step, without the help of the garbage collector."""
    kept: list[weakref.ref[Any]] = []

    class Marks(torch.autograd.Function):
        """Its context object is a node of the graph, to which a weak reference can be had."""

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.token = type("Token", (), {})()
            kept.append(weakref.ref(ctx.token))
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 2

    def notes(m: nn.Module, x: Tensor) -> Tensor:
        y = Marks.apply(m.l(x))
        kept.append(weakref.ref(y))
        return m.out(y)

    model = nn.Sequential(Lambda(notes, l=nn.Linear(4, 4), out=nn.Linear(4, 4)), nn.ReLU(True))
    gc.collect()
    gc.disable()
    try:
        with ExplorerWriter(tmp_path) as writer:
            watch = writer.watch(model, log_freq=1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                loss = model(X).square().mean()
                if backward:
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                del loss
                assert [reference() for reference in kept] == [None] * len(kept)
            assert watch.faults.list() == []
            assert len(kept) >= 6
    finally:
        gc.enable()


def test_c67_memory_is_flat_over_200_logged_steps(tmp_path):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(True), nn.Linear(64, 64))
    x = torch.randn(2000, 64)

    with ExplorerWriter(tmp_path) as writer:
        writer.watch(model, log_freq=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def steps(number: int) -> None:
            for _ in range(number):
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            writer.flush()
            gc.collect()

        steps(40)
        tracemalloc.start()
        resident, traced = resident_bytes(), tracemalloc.get_traced_memory()[0]
        steps(200)
        grown = resident_bytes() - resident, tracemalloc.get_traced_memory()[0] - traced
        tracemalloc.stop()

    assert grown[0] < 8 << 20  # one step's activations are 1.5 MB
    assert grown[1] < 200_000


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("depth", [2, 20])
def test_c68_no_synchronisation(depth, tmp_path):
    """Reading a number back from the device is `_local_scalar_dense`, a copy to the host `_to_copy`; the
    number of neither depends on the model."""

    def calls(watched: bool) -> dict[str, int]:
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.9)) for _ in range(depth)))
        for block in model:
            nn.init.orthogonal_(block[0].weight)  # or gradients vanish, which costs a look on the host
        with ExplorerWriter(tmp_path / f"{depth} {watched}") as writer:
            if watched:
                writer.watch(model, log_freq=1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                with profile(activities=[ProfilerActivity.CPU]) as profiler:
                    model(X).square().mean().backward()
                    optimizer.step()
        names = (
            "aten::item",
            "aten::_local_scalar_dense",
            "aten::_to_copy",
            "aten::is_nonzero",
            "aten::nonzero",
        )
        counts = {event.key: event.count for event in profiler.key_averages()}
        return {name: counts.get(name, 0) for name in names}

    assert calls(watched=True) == calls(watched=False)


def test_c69_only_some_layers():
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(330))

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        for block in m.blocks:
            x = block(x)
        return x

    model = Lambda(forward, blocks=blocks)
    hooked: list[int] = []

    def loss(model: nn.Module) -> Tensor:
        handle = model.blocks[0].register_forward_hook(
            lambda *_: hooked.append(sum(bool(m._forward_hooks) for m in model.modules()))
        )
        value = squared(model)
        handle.remove()
        return value

    recorded = train(model, loss, steps=2, include=["blocks.3.*", "blocks.17"], exclude=nn.ReLU)

    owners = {key.node for key in recorded.series}
    assert owners == {"blocks.3/0", "blocks.3.0", "blocks.17"}
    assert hooked[0] > 900  # the first step finds the structure
    assert hooked[1] < 10  # root, blocks, those asked for and the hook of this test
    assert len(recorded.graph.nodes) == 1 + 3 * 330
    assert "excluded" in modules(recorded)["blocks.3.1"].flags
    assert "excluded" not in modules(recorded)["blocks.3.0"].flags
