"""Tensors of every dtype, layout and content, from a module's output to the row in the record."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from recording import Recorded, numbers, record
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from tensorboard_torchexplorer.schema import Status

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested"),
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per"),
]


class Emits(nn.Module):
    """Returns a tensor as one of its results."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.l = nn.Linear(2, 2)
        self.held = [tensor]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.l(x), self.held[0]


class Takes(nn.Module):
    def forward(self, x: Tensor, tensor: Tensor) -> Tensor:
        return x.sum()


class Model(nn.Module):
    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.emits, self.takes = Emits(tensor), Takes()

    def forward(self, x: Tensor) -> Tensor:
        return self.takes(*self.emits(x))


def recorded_with(tensor: Tensor, **options: object) -> Recorded:
    model = Model(tensor)

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1, **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(3, 2)).backward()
            optimizer.step()
        assert watch.faults.list() == []

    return record(train)


def rows(recorded: Recorded) -> list[np.void]:
    """That of the output, and of the input that takes it."""
    return [
        recorded.row("emits", "output", "value", "[1]"),
        recorded.row("takes", "input", "value", "tensor"),
    ]


def deviation(truth: np.ndarray) -> float:
    """The standard deviation, by squares of numbers near 1."""
    unit = (np.abs(truth).max() or 1.0) * 2
    return (truth / unit).std() * unit


def made(dtype: torch.dtype, size: int, low: float = -100.0, high: float = 100.0) -> Tensor:
    steps = torch.linspace(low, high, size, dtype=torch.float64)
    return steps[torch.randperm(size, generator=torch.Generator().manual_seed(0))].to(dtype)


TENSORS: dict[str, Callable[[int], Tensor]] = {
    **{
        str(dtype).removeprefix("torch."): lambda n, dtype=dtype: made(dtype, n)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    },
    **{
        str(dtype).removeprefix("torch."): lambda n, dtype=dtype: made(dtype, n)
        for dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    },
    **{
        name: lambda n, name=name: made(torch.int64, n, 0, 250).to(getattr(torch, name))
        for name in ("uint8", "uint16", "uint32", "uint64")
    },
    **{
        name: lambda n, name=name: made(torch.float32, n, 0.01, 100).to(getattr(torch, name))
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
        if hasattr(torch, name)
    },
    "float64 beyond float32": lambda n: made(torch.float64, n, -1e300, 1e300),
    "float64 below float32": lambda n: made(torch.float64, n, 1e-300, 2e-300),
    "float64 finer than float32": lambda n: 1 + made(torch.float64, n, 0, 1e-12),
    "int64 beyond float32": lambda n: made(torch.float64, n, -(2.0**62), 2.0**62).to(torch.int64),
    "bool": lambda n: made(torch.float32, n) > 50,
    "complex64": lambda n: torch.complex(made(torch.float32, n), made(torch.float32, n).flip(0)),
    "complex128": lambda n: torch.complex(made(torch.float64, n), made(torch.float64, n).flip(0)),
    "lazy conjugate": lambda n: torch.complex(made(torch.float32, n), made(torch.float32, n)).conj(),
    "lazy negative": lambda n: torch.complex(made(torch.float32, n), made(torch.float32, n)).conj().imag,
    "quantized": lambda n: torch.quantize_per_tensor(made(torch.float32, n), 1.0, 0, torch.qint8),
    "quantized by channel": lambda n: torch.quantize_per_channel(
        made(torch.float32, n).reshape(2, -1), torch.ones(2), torch.zeros(2), 0, torch.qint8
    ),
    "sparse": lambda n: (
        made(torch.float32, n).reshape(2, -1) * (torch.arange(n).reshape(2, -1) % 3 == 0)
    ).to_sparse(),
    "sparse rows": lambda n: (
        made(torch.float32, n).reshape(2, -1) * (torch.arange(n).reshape(2, -1) % 3 == 0)
    ).to_sparse_csr(),
    "broadcast": lambda n: made(torch.float32, 2)[:, None].expand(2, n // 2),
    "transposed": lambda n: made(torch.float32, n).reshape(2, -1).t(),
    "every other": lambda n: made(torch.float32, 2 * n)[::2],
    "constant": lambda n: torch.full((n,), -2.5),
    "zeros": lambda n: torch.zeros(n),
    "negative zeros": lambda n: -torch.zeros(n),
    "subnormal": lambda n: made(torch.float32, n, 1e-45, 1e-40),
    "subclass of the user": lambda n: made(torch.float32, n).as_subclass(Tagged),
    "parameter": lambda n: nn.Parameter(made(torch.float32, n)),
    "inference tensor": lambda n: inference(n),
}


class Tagged(Tensor):
    pass


def freed(tensor: Tensor) -> Tensor:
    """As FSDP and offloading libraries leave what they have put away: reading it ends the process."""
    tensor.untyped_storage().resize_(0)
    return tensor


def inference(size: int) -> Tensor:
    with torch.inference_mode():
        return made(torch.float32, size)


@pytest.mark.parametrize(
    "options", [{"sample_n": None}, {"sample_n": 100}, {"sample_n": 100, "exact": True}], ids=str
)
@pytest.mark.parametrize("name", TENSORS)
def test_every_dtype_and_layout(name, options):
    tensor = TENSORS[name](2000)
    truth = numbers(tensor)

    for row in rows(recorded_with(tensor, reject_outlier_proportion=0.0, **options)):
        assert row["status"] == Status.OK
        assert row["size"] == truth.size == 2000
        # Extremes are those of the whole tensor, to the precision that is written.
        assert row["min"] == pytest.approx(truth.min(), rel=2e-7, abs=0)
        assert row["max"] == pytest.approx(truth.max(), rel=2e-7, abs=0)
        assert row["nan"] == row["posinf"] == row["neginf"] == 0
        assert row["counts"].sum() == row["sampled"]
        everything = options["sample_n"] is None
        if not name.startswith("sparse"):
            assert row["sampled"] == (2000 if everything else 100)
        spread = truth.max() / 2 - truth.min() / 2
        if everything or "exact" in options:
            assert row["mean"] == pytest.approx(
                truth.mean(), rel=1e-4 if name == "subnormal" else 1e-5, abs=1e-5 * spread
            )
            assert row["std"] == pytest.approx(
                deviation(truth), rel=1e-3 if name == "subnormal" else 1e-4, abs=1e-6 * spread
            )
            assert row["zeros"] == pytest.approx((truth == 0).mean(), abs=0.003)
        else:
            assert truth.min() <= row["mean"] <= truth.max()
            assert row["mean"] == pytest.approx(truth.mean(), abs=0.24 * spread)
        assert truth.min() - 1e-6 * spread <= row["low"] <= row["high"] <= truth.max() + 1e-6 * spread


ONLY: dict[str, tuple[Callable[[], Tensor], dict[str, float]]] = {
    "zero dimensions": (
        lambda: torch.tensor(3.5),
        {"size": 1, "min": 3.5, "max": 3.5, "mean": 3.5, "std": 0},
    ),
    "one element": (lambda: torch.tensor([-2.0]), {"size": 1, "min": -2, "max": -2, "mean": -2}),
    "one boolean": (lambda: torch.tensor(True), {"size": 1, "min": 1, "max": 1}),
    "NaN only": (lambda: torch.full((3, 4), math.nan), {"size": 12, "nan": 12}),
    "many NaN only": (lambda: torch.full((30, 40), math.nan), {"size": 1200, "nan": 1200}),
    "+Inf only": (lambda: torch.full((30, 40), math.inf), {"size": 1200, "posinf": 1200}),
    "-Inf only": (lambda: torch.full((7,), -math.inf), {"size": 7, "neginf": 7}),
    "all three and numbers": (
        lambda: torch.tensor([math.nan, math.inf, math.inf, -math.inf, 1.0, 2.0] * 200),
        {"size": 1200, "nan": 200, "posinf": 400, "neginf": 200, "min": 1, "max": 2},
    ),
    "half with Inf": (
        lambda: torch.tensor([1e6, -1e6, 3.0] * 400).half(),
        {"size": 1200, "posinf": 400, "neginf": 400, "min": 3, "max": 3},
    ),
    "float8 with NaN": (
        lambda: torch.tensor([math.nan, 3.0] * 600).to(torch.float8_e4m3fn),
        {"size": 1200, "nan": 600, "min": 3, "max": 3},
    ),
    "complex with Inf": (
        lambda: torch.complex(torch.tensor([math.inf, 3.0] * 600), torch.tensor([0.0, 4.0] * 600)),
        {"size": 1200, "posinf": 600, "min": 5, "max": 5},
    ),
}


@pytest.mark.parametrize("name", ONLY)
def test_values_that_are_few_or_not_finite(name):
    make, wanted = ONLY[name]

    for row in rows(recorded_with(make())):
        assert row["status"] == Status.OK
        assert {key: row[key] for key in wanted} == wanted
        if "min" not in wanted:
            assert math.isnan(row["min"])
            assert math.isnan(row["max"])
            assert row["counts"].sum() == 0


REASONS: dict[str, tuple[Callable[[], Tensor], int]] = {
    "empty": (lambda: torch.zeros(0, 3), Status.EMPTY),
    "empty and sparse": (lambda: torch.zeros(0, 3).to_sparse(), Status.EMPTY),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), Status.NESTED),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        Status.NESTED,
    ),
    "meta": (lambda: torch.zeros(3, device="meta"), Status.META),
    "blocked layout": (lambda: torch.ones(3, 3).to_mkldnn(), Status.SPARSE),
    "bits": (lambda: torch.zeros(8, dtype=torch.uint8).view(torch.bits8), Status.DTYPE),
    "pairs of four bits": (
        lambda: torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        Status.DTYPE,
    ),
    "four bits": (lambda: torch.empty(8, dtype=torch.uint4), Status.DTYPE),
    "freed": (lambda: freed(torch.ones(8, 8)), Status.FREED),
    "freed, many": (lambda: freed(torch.ones(80, 80)), Status.FREED),
    "freed, a part": (lambda: freed(torch.ones(80, 80)[3:, 2:]), Status.FREED),
    "freed, empty": (lambda: freed(torch.ones(8, 8)[:0]), Status.EMPTY),
    "wrapper": (lambda: TwoTensor(torch.ones(3), torch.ones(3)), Status.SUBCLASS),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_is_not_recorded_says_why(name):
    make, reason = REASONS[name]

    for row in rows(recorded_with(make())):
        assert row["status"] == reason


def test_parameters_whose_memory_was_freed():
    """Value and gradient of a layer that is put away while the step is read."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.away = nn.Linear(4, 4), nn.Linear(40, 40)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    model = Model()

    def train(writer) -> None:
        watch = writer.watch(model, log_freq=1)
        optimizer = torch.optim.SGD(model.used.parameters(), lr=0.1)
        for parameter in model.away.parameters():
            parameter.grad = freed(torch.ones_like(parameter))
            freed(parameter.data)
        for _ in range(2):
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
        assert watch.faults.list() == []

    recorded = record(train)
    assert recorded.status("used", "param", "grad", "weight") == Status.OK
    for name in ("weight", "bias"):
        for kind in ("value", "grad"):
            assert recorded.status("away", "param", kind, name) == Status.FREED
