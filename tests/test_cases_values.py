"""The rows of the public faults about values: not finite, constant, empty, of other types, sparse, huge."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import Lambda, X, squared, train
from recording import assert_row_holds
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from tensorboard_torchexplorer.schema import HEALTH, Status
from tensorboard_torchexplorer.writer import ExplorerWriter


def test_c48_one_nan_weight():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    steps = iter(range(3))

    def loss(model: nn.Module) -> Tensor:
        if next(steps) == 2:
            with torch.no_grad():
                model[1].weight[0, 1] = math.nan
        return squared(model)

    recorded = train(model, loss, steps=3, rate=1e-3)

    row = recorded.row("1", "param", "value", "weight")
    finite = model[1].weight.detach()[torch.isfinite(model[1].weight)]
    assert row["nan"] == 1
    assert row["counts"].sum() == 11 - 1  # of the finite ones a tenth is left out of the bins
    assert recorded.row("1", "output", "value", "output")["nan"] == 6  # one column of the batch
    assert recorded.row("0", "output", "value", "output")["nan"] == 0
    assert math.isfinite(row["min"])
    assert math.isfinite(row["max"])
    assert finite.numel() < 12  # the optimizer has spread it since
    nonfinite = recorded.history.health()[-1, :, HEALTH.index("nonfinite")]
    by_node = dict(zip(recorded.ids(), nonfinite, strict=True))
    assert by_node["1"] > 0
    forward = {node: int(recorded.row(node, "output", "value", "output")["nan"]) for node in ("0", "1")}
    assert forward == {"0": 0, "1": 6}  # where it began


@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize("size", [4, 400], ids=["all sampled", "sampled"])
def test_c50_infinite_activations(value, size):
    model = Lambda(lambda m, x: m.look(m.l(x)).clamp(-1e3, 1e3), l=nn.Linear(4, size), look=nn.Identity())
    steps = iter(range(2))

    def loss(model: nn.Module) -> Tensor:
        if next(steps):
            with torch.no_grad():
                model.l.bias[1] = value
        return squared(model)

    started = time.perf_counter()
    recorded = train(model, loss, steps=2, sample_n=100)

    assert time.perf_counter() - started < 20
    row = recorded.row("look", "output", "value", "output")
    assert (row["posinf"], row["neginf"]) == ((6, 0) if value > 0 else (0, 6))
    assert row["size"] == 6 * size
    assert math.isfinite(row["min"])
    assert math.isfinite(row["max"])
    assert math.isfinite(row["high"])
    before = recorded.row("look", "output", "value", "output", 0)
    assert before["posinf"] == before["neginf"] == 0


@pytest.mark.parametrize("value", [0.0, 1e6, 1e-30, -3.5, 1e300])
@pytest.mark.parametrize("shape", [(1,), (3, 4), ()])
def test_c51_constant_tensors(value, shape):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(torch.full(shape, value, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.p.sum()

    recorded = train(Model(), lambda m: m(torch.ones((), dtype=torch.float64)), rate=0.0)

    row = recorded.row("", "param", "value", "p")
    assert row["min"] == row["max"] == row["mean"] == value
    assert row["std"] == 0
    assert row["low"] <= value <= row["high"]
    size = math.prod(shape)
    assert row["counts"].sum() == size - size // 10
    assert np.count_nonzero(row["counts"]) == 1


def test_c52_empty_batches_and_zero_dimensions():
    boxes = Lambda(lambda m, x: (m.l(x[x[:, 0] > 100]), x.mean()), l=nn.Linear(4, 4))
    model = Lambda(lambda m, x: m.scale(m.boxes(x)[1]), boxes=boxes, scale=nn.Identity())
    data = iter((X, X + 1000, X[:0], X))

    recorded = train(model, lambda m: m(next(data).clone().requires_grad_()), steps=4)

    found = recorded.series["boxes", "output", "value", "[0]"]
    assert list(found["status"]) == [Status.EMPTY, Status.OK, Status.EMPTY, Status.EMPTY]
    assert found["size"][1] == 24
    assert list(recorded.series["boxes", "output", "value", "[1]"]["size"]) == [1, 1, 1, 1]
    assert_row_holds(recorded.row("boxes", "output", "value", "[1]", 0), X.mean())
    assert_row_holds(recorded.row("scale", "output", "grad", "output", 0), torch.ones(1))
    assert recorded.row("boxes", "output", "value", "[1]", 2)["nan"] == 1  # the mean of nothing
    assert recorded.node("boxes").outputs[0].shape == [None, 4]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_c53_half_precision(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3)).to(dtype)
    x, wanted = X.to(dtype), []

    # Gradients down to the smallest subnormal number of a half, and below it.
    recorded = train(
        model,
        lambda m: (m(x) * 2e-7).sum(),
        each=lambda step: wanted.append([p.grad.clone() for p in model.parameters()]),
    )

    for (path, name), gradient in zip(
        [("0", "weight"), ("0", "bias"), ("2", "weight"), ("2", "bias")], wanted[0], strict=True
    ):
        row = recorded.row(path, "param", "grad", name)
        assert_row_holds(row, gradient)
        assert row["zeros"] == pytest.approx((gradient == 0).double().mean().item(), abs=5e-3)
    assert recorded.row("0", "output", "value", "output")["size"] == 6 * 64
    assert recorded.node("0").outputs[0].dtype == str(dtype).removeprefix("torch.")
    if dtype == torch.float16:
        assert recorded.row("0", "param", "grad", "weight")["zeros"] > 0.3  # underflow can be seen


class Words(nn.Module):
    def __init__(self, words: int, size: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, size, sparse=True)
        self.out = nn.Linear(size, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.embed(tokens))


@pytest.mark.parametrize("sample_n", [None, 100])
def test_c55_sparse_gradient(sample_n):
    torch.manual_seed(0)
    model, tokens = Words(50), torch.tensor([[1, 2, 2, 7]])  # one row is hit twice
    dense: list[Tensor] = []

    recorded = train(
        model,
        lambda m: m(tokens).square().sum(),
        each=lambda step: dense.append(model.embed.weight.grad.to_dense()),
        sample_n=sample_n,
        reject_outlier_proportion=0.0,
    )

    row = recorded.row("embed", "param", "grad", "weight")
    gradient = dense[0].double().numpy()
    assert row["status"] == Status.OK
    assert row["size"] == gradient.size
    assert row["min"] == pytest.approx(gradient.min())
    assert row["max"] == pytest.approx(gradient.max())
    assert row["zeros"] == pytest.approx((gradient == 0).mean(), abs=5e-3)
    assert row["low"] <= 0 <= row["high"]
    if sample_n is None:
        assert row["sampled"] == gradient.size
        assert row["mean"] == pytest.approx(gradient.mean(), rel=1e-5)
        assert row["std"] == pytest.approx(gradient.std(), rel=1e-5)
        counts, _ = np.histogram(gradient, len(row["counts"]), (row["low"], row["high"]))
        zero = int(np.argmax(counts))
        assert np.abs(row["counts"] - counts).sum() <= 2  # a value on a border may fall to either side
        assert row["counts"][zero] >= (gradient == 0).sum()


def test_c55_a_million_words_cost_no_dense_gradient():
    model, tokens = Words(1_000_000), torch.arange(10)[None]

    def peak(watched: bool) -> int:
        """Of the memory that torch allocates for tensors, in bytes."""
        model.zero_grad()
        with tempfile.TemporaryDirectory() as folder, ExplorerWriter(folder) as writer:
            if watched:
                writer.watch(model, log_freq=1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
                model(tokens).sum().backward()
                optimizer.step()
            writer.unwatch()
        return max(event.cpu_memory_usage for event in profiler.key_averages())

    assert peak(watched=True) < peak(watched=False) + (10 << 20)


class Huge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.linspace(-1, 1, 20_000_000))
        self.small = nn.Parameter(torch.ones(10))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.small.sum()


def test_c56_huge_tensors():
    model = Huge()
    with tempfile.TemporaryDirectory() as folder:
        with ExplorerWriter(folder) as writer:
            watch = writer.watch(model, log_freq=1)
            optimizer = torch.optim.SGD([model.small], lr=0.1)
            sizes = []
            for _ in range(5):
                model(torch.ones(())).backward()
                optimizer.step()
                writer.flush()
                sizes.append(sum(file.stat().st_size for file in Path(folder).iterdir()))
            assert watch.faults.list() == []
        growth = np.diff(sizes)
        assert growth.max() < 4096  # bytes a record
        from recording import read_back

        recorded = read_back(folder)
    row = recorded.row("", "param", "value", "p")
    assert recorded.steps == [0, 1, 2, 3, 4]
    assert (row["size"], row["sampled"]) == (20_000_000, 100)
    assert (row["min"], row["max"]) == (-1, 1)
    assert recorded.status("", "param", "grad", "p") == Status.NO_GRADIENT
