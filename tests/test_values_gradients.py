"""Gradients of every dtype and size, from the backward to the row in the record."""

from __future__ import annotations

import math
import sys
import threading

import pytest
import torch
from recording import assert_row_holds, norms, numbers, record
from torch import Tensor, nn


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128],
    ids=str,
)
def test_gradients_of_every_dtype(dtype):
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3, dtype=dtype), torch.randn(5, 4, dtype=dtype)
    wanted: list[Tensor] = []

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None, reject_outlier_proportion=0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        out = model(x)
        out.register_hook(lambda g: wanted.append(g.clone()))
        out.abs().float().square().sum().backward()
        wanted.append(model.weight.grad.clone())
        optimizer.step()
        assert watch.faults.list() == []

    recorded = record(train)

    out, weight = wanted
    wide = out.to(torch.complex128 if dtype.is_complex else torch.float64)
    row = recorded.row(".", "output", "grad", "output")
    assert row["size"] == 5
    assert row["max"] == pytest.approx(
        wide.norm(dim=1).max().item(), rel=2e-3 if dtype.itemsize == 2 else 1e-5
    )
    row = recorded.row("", "param", "grad", "weight")
    assert row["mean"] == pytest.approx(numbers(weight).mean(), rel=1e-5)
    assert row["max"] == pytest.approx(numbers(weight).max(), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("factor", [1e-25, 1e-35, 1.0, 1e20, 1e30])
def test_norms_of_vanishing_and_exploding_gradients(factor, dtype):
    """Their squares are beyond float32. A sample without any gradient stays exactly 0."""
    model, x = nn.Linear(4, 4).to(dtype), torch.ones(5, 4, dtype=dtype)
    wanted = torch.arange(20.0).reshape(5, 4).to(dtype) * factor

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None, reject_outlier_proportion=0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        wanted[0] = 0
        (model(x) * wanted).sum().backward()
        optimizer.step()
        assert watch.faults.list() == []

    row = record(train).row(".", "output", "grad", "output")
    truth = wanted.double().norm(dim=1)
    assert row["max"] == pytest.approx(truth.max().item(), rel=1e-2)
    assert row["mean"] == pytest.approx(truth.mean().item(), rel=1e-2)
    assert (row["min"], row["zeros"], row["posinf"]) == (0, pytest.approx(0.2, abs=0.003), 0)


def test_extremes_over_several_passes_are_those_of_all_samples():
    """More samples than are kept of a tensor, and two backward passes: the largest norm is still exact."""
    model, batch = nn.Linear(2, 2), 6000
    first, second = torch.full((batch, 2), 1.0), torch.full((batch, 2), 2.0)
    first[4321], second[1234], second[17] = 0.25, 500.0, torch.nan

    def train(writer) -> None:
        writer.watch(model, log_freq=1, sample_n=100)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        out = model(torch.ones(batch, 2))
        out.backward(first, retain_graph=True)
        out.backward(second)
        optimizer.step()

    row = record(train).row(".", "output", "grad", "output")
    assert (row["size"], row["sampled"], row["nan"]) == (2 * batch, 200, 1)
    assert row["min"] == pytest.approx(0.25 * math.sqrt(2))
    assert row["max"] == pytest.approx(500 * math.sqrt(2))


def test_a_sparse_gradient_of_an_activation():
    """Samples of a gradient that arrives in coordinates."""

    class Sparse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            return x.sum()

        @staticmethod
        def backward(ctx, gradient: Tensor) -> Tensor:
            dense = torch.zeros(5, 4)
            dense[1], dense[3, 2] = torch.tensor([3.0, 0, 4, 0]), -2
            return dense.to_sparse()

    class Dense(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx, gradient: Tensor) -> Tensor:
            return gradient.to_dense()

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Dense.apply(x)

    model = nn.Sequential(nn.Linear(4, 4), Inner())

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None, reject_outlier_proportion=0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        Sparse.apply(model(torch.ones(5, 4))).backward()
        optimizer.step()
        assert watch.faults.list() == []

    row = record(train).row("1", "output", "grad", "output")
    assert (row["size"], row["max"], row["min"], row["zeros"]) == (5, 5, 0, pytest.approx(0.6, abs=0.003))
    assert row["mean"] == pytest.approx(7 / 5)


def test_gradients_of_real_parts_are_read_by_themselves():
    """`view_as_real` makes a view that counts its strides in other units than that which it is a view of."""
    torch.manual_seed(0)

    class Spectrum(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.view_as_real(torch.fft.rfft(x))

    model = nn.Sequential(nn.Linear(4, 6), Spectrum(), nn.Identity())
    wanted: list[Tensor] = []

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        out = model(torch.randn(5, 4))
        out.register_hook(lambda g: wanted.append(g.clone()))
        out.square().mul(torch.arange(40.0).view(5, 4, 2)).sum().backward()
        optimizer.step()
        assert watch.faults.list() == []

    recorded = record(train)
    for node, group in (("1", "output"), ("2", "input"), ("2", "output")):
        name = "output" if group == "output" else "input"
        assert_row_holds(recorded.row(node, group, "grad", name), norms(wanted[0]), rel=1e-5)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("columns", [[1, 3], []], ids=["some", "none"])
def test_a_leaf_of_compressed_rows_has_its_gradient(columns):
    """torch has no views of this layout. Its gradient may store nothing at all."""
    x = torch.zeros(3, 4)
    x[:, columns] = 1.0
    sparse = x.to_sparse_csr().requires_grad_()

    class Times(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 2))

        def forward(self, rows: Tensor) -> Tensor:
            return torch.sparse.mm(rows, self.weight)

    model = Times()

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(sparse).square().sum().backward()
        optimizer.step()
        assert watch.faults.list() == []

    row = record(train).row(".", "input", "grad", "rows")
    assert sparse.grad is not None
    assert row["size"] == 3
    assert row["max"] == pytest.approx(sparse.grad.to_dense().norm(dim=1).max().item(), rel=1e-5)


def test_two_backward_passes_at_once_in_threads_of_their_own():
    """Over two parts of one forward: what one measures must not land in the place of the other."""
    torch.manual_seed(0)
    model = nn.ModuleDict({side: nn.Sequential(*(nn.Linear(4, 4) for _ in range(40))) for side in "ab"})
    model.forward = lambda x: (model["a"](x), model["b"](x))
    wanted: dict[str, Tensor] = {}

    def note(path):
        return lambda module, args, out: (
            out.register_hook(lambda g: wanted.update({path: g.clone()})) and None
        )

    for path, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(note(path))

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        losses = [out.square().sum() for out in model(torch.ones(40, 4))]
        threads = [threading.Thread(target=loss.backward) for loss in losses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        optimizer.step()
        optimizer.zero_grad()
        assert watch.faults.list() == []

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        records = [record(train) for _ in range(12)]
    finally:
        sys.setswitchinterval(interval)
    for path, gradient in wanted.items():
        side, number = path.split(".")
        for recorded in records:
            row = recorded.row(f"{side}/{number}", "output", "grad", "output")
            assert_row_holds(row, norms(gradient), rel=1e-5)
