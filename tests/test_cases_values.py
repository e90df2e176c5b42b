"""The other rows of the public faults that concern capture: values, control flow, cost, side effects."""

from __future__ import annotations

import gc
import math
import os
import random
import sys
import tempfile
import time
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from neutrality import train as train_and_note
from recording import Recorded, assert_row_holds, norms
from test_cases_capture import Lambda, X, edges, modules, squared, train
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from tensorboard_torchexplorer.capture.graph import MAX_DEPTH
from tensorboard_torchexplorer.schema import HEALTH, Status
from tensorboard_torchexplorer.writer import ExplorerWriter

# --- Values ------------------------------------------------------------------------------------------


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


def test_c56_huge_tensors():
    class Huge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(torch.linspace(-1, 1, 20_000_000))
            self.small = nn.Parameter(torch.ones(10))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.small.sum()

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


# --- Control flow ------------------------------------------------------------------------------------


class Tree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, depth: int) -> Tensor:
        return self(torch.tanh(self.l(x)), depth - 1) if depth else x


def test_c61_recursion():
    recorded = recursed(5)

    assert recorded.ids()[1] == "tree"
    assert [i for i in recorded.ids() if i.endswith("tree")] == ["tree" + "/^tree" * k for k in range(6)]
    deepest = "tree" + "/^tree" * 4
    assert edges(recorded, deepest) == {"input0 l", "l ^tree", "^tree output0"}
    assert recorded.status(f"{deepest}/l", "output", "grad", "output") == Status.OK


def recursed(depth: int) -> Recorded:
    torch.manual_seed(0)
    return train(Lambda(lambda m, x: m.tree(x, depth), tree=Tree()))


def test_c61_a_root_that_calls_itself():
    class Tree(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.leaf = Leaf()

        def forward(self, x, depth=2):
            x = self.l(x)
            return self.leaf(x) if depth == 0 else self(x, depth - 1) + x

    class Leaf(nn.Module):
        def forward(self, x):
            return x if self.root is None else self.root(x, 1)

    model = Tree()
    object.__setattr__(model.leaf, "root", None)
    seen = train(model)

    assert seen.ids() == [".", "l", "^", "^/l", "^/^", "^/^/l", "^/^/leaf"]
    assert all(seen.status(node, "output", "grad", "output") == Status.OK for node in seen.ids()[1:])


def test_c61_deep_recursion_is_cut_with_a_count():
    recorded = recursed(150)

    deepest = max(recorded.graph.nodes, key=lambda node: node.id.count("/"))
    assert deepest.id.count("/") == MAX_DEPTH - 1
    last = recorded.node("tree" + "/^tree" * (MAX_DEPTH - 1))
    # Of the 301 calls of trees and layers, those of 64 trees and 63 layers are kept.
    assert last.notes == [f"recursion cut at depth {MAX_DEPTH}: {151 + 150 - 64 - 63} more calls below"]
    assert edges(recorded)  # levels above are whole
    assert_row_holds(
        recorded.row(".", "output", "grad", "output"), norms(recorded_gradient(recorded)), rel=1e-3
    )


def recorded_gradient(recorded: Recorded) -> Tensor:
    """d mean(out ** 2) / d out of the deep tree, trained afresh."""
    torch.manual_seed(0)
    model = Tree()
    out = model(X, 150).detach()
    return 2 * out / out.numel()


def test_c61_mutual_recursion():
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.other: list[nn.Module] = []

        def forward(self, x: Tensor, left: int) -> Tensor:
            x = self.l(x)
            return self.other[0](x, left - 1) if left else x

    a, b = Half(), Half()
    model = Lambda(lambda m, x: m.a(x, 3), a=a, b=b)
    a.other, b.other = [b], [a]

    recorded = train(model)

    assert [i for i in recorded.ids() if not i.endswith("l")] == [".", "a", "a/^b", "a/^b/^a", "a/^b/^a/^b"]
    assert edges(recorded, "a/^b") == {"input0 l", "l ^a", "^a output0"}


def test_c62_branches_and_growing_loops():
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd, self.even, self.loop = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.steps = 0

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            x = self.odd(x) if self.steps % 2 else self.even(x)
            for _ in range(self.steps):
                x = self.loop(x)
            return x

    recorded = train(Changing(), steps=6, rate=1e-3)

    ran = {node: count(recorded, node) for node in recorded.ids()}
    loops = {"loop": 6, "loop#1": 5, "loop#2": 4, "loop#3": 3, "loop#4": 2, "loop#5": 1}
    assert ran == {".": 6, "odd": 3, "even": 3, **loops}
    # Both branches have values at their own steps, and edges although neither was there from the start.
    ok = recorded.series["odd", "output", "value", "output"]["status"] == Status.OK
    assert list(ok) == [True, False, True, False, True, False]
    gradient = recorded.series["even", "output", "grad", "output"]["status"] == Status.OK
    assert list(gradient) == [False, True, False, True, False, True]
    assert {"input0 odd", "input0 even", "odd loop", "even loop", "loop loop#1", "loop#1 loop#2"} <= edges(
        recorded
    )


def count(recorded: Recorded, node: str) -> int:
    """In how many logged steps a node ran."""
    index = recorded.ids().index(node)
    return sum(any(first <= index < first + n for first, n in info.ran) for info in recorded.history.infos)


def test_c62_stochastic_depth_reaches_every_layer():
    random.seed(0)
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        for layer in m.layers:
            x = layer(x) if random.random() < 0.5 else x
        return x + m.last(x)

    recorded = train(Lambda(forward, layers=layers, last=nn.Linear(4, 4)), steps=12, rate=1e-3)

    assert {f"layers.{k}" for k in range(4)} <= set(recorded.ids())
    for k in range(4):
        ok = (recorded.series[f"layers.{k}", "output", "grad", "output"]["status"] == Status.OK).sum()
        assert ok == count(recorded, f"layers.{k}") < 12


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


@pytest.mark.parametrize(("function", "factor"), [(StraightThrough, 1), (Same, -1), (Dirty, 3)])
def test_c64_custom_functions(function, factor):
    torch.manual_seed(0)
    model = Lambda(
        lambda m, x: m.b(m.f(m.a(x))),
        a=nn.Linear(4, 4),
        f=Lambda(lambda m, x: function.apply(x)),
        b=nn.Linear(4, 4),
    )
    hidden = model.f(model.a(X)).detach().requires_grad_()
    model.b(hidden).square().mean().backward()
    model.zero_grad()

    recorded = train(model)

    assert edges(recorded) == {"input0 a", "a f", "f b", "b output0"}
    assert_row_holds(recorded.row("b", "input", "value", "input"), hidden)
    assert_row_holds(recorded.row("b", "input", "grad", "input"), norms(hidden.grad), rel=1e-5)
    assert_row_holds(recorded.row("f", "output", "grad", "output"), norms(hidden.grad), rel=1e-5)
    assert_row_holds(recorded.row("a", "output", "grad", "output"), norms(hidden.grad * factor), rel=1e-5)


# --- Cost and side effects ---------------------------------------------------------------------------


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

    assert few == many < 300


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
