"""Sampling into the packed buffer: which elements, exact extremes, every dtype, one buffer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tensorboard_torchexplorer.binning import bin_rows, slot_values
from tensorboard_torchexplorer.sampling import WHOLE, Sampler, make_plan, walk_indices
from tensorboard_torchexplorer.schema import Status


def sample(tensor: Tensor, sample_n: int | None = 100, *, exact: bool = False, seed: int = 0):
    """The slot of a tensor, its sampled values, and its row."""
    sampler = Sampler(sample_n, exact=exact, seed=seed)
    sampler.begin()
    with torch.no_grad():
        taken = sampler.take(tensor)
    assert taken >= 0, f"status {-taken}"
    slots, host = finished(sampler)
    return slots[taken], slot_values(host, slots[taken]), row_of(host, slots, taken)


def finished(sampler: Sampler):
    """The slots of a record, and its buffers on the host."""
    samples = sampler.finish()
    return samples.slots, samples.host()


def row_of(host, slots, number: int):
    return bin_rows(host, slots, np.array([number]), {}, 30, 0.0)[0]


def norms(gradient: Tensor) -> np.ndarray:
    sampler = Sampler(100)
    sampler.begin()
    with torch.no_grad():
        taken = sampler.norms(gradient)
    assert taken >= 0, f"status {-taken}"
    slots, host = finished(sampler)
    return slot_values(host, slots[taken])


LAYOUTS = {
    "contiguous": torch.arange(12 * 64 * 9.0).reshape(12, 64, 3, 3),
    "transposed": torch.arange(12 * 64 * 9.0).reshape(108, 64).T,
    "channels-last": torch.arange(12 * 64 * 9.0).reshape(12, 64, 3, 3).to(memory_format=torch.channels_last),
    "slice": torch.arange(4000.0).reshape(40, 100)[3:33, 10:90],
    "every second": torch.arange(8000.0)[::2],
    "power of two": torch.arange(4096.0).reshape(64, 64),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_element_is_picked_equally_often(layout):
    tensor = LAYOUTS[layout]
    size, draws, sample_n = tensor.numel(), 3000, 100
    sampler = Sampler(sample_n)
    hits = np.zeros(int(tensor.max()) + 1)
    for _ in range(draws):
        sampler.begin()
        number = sampler.take(tensor)
        slots, host = finished(sampler)
        values = slot_values(host, slots[number]).astype(int)
        hits[values] += 1
        assert len(np.unique(values)) == sample_n
    counts = hits[tensor.reshape(-1).long().numpy()]
    assert counts.sum() == hits.sum(), "something was picked that is not in the tensor"
    # Walks are drawn with a uniform start, so each count is binomial(draws, sample_n / size); counts of
    # elements on one walk go together.
    share = sample_n / size
    deviation = (counts - draws * share) / math.sqrt(draws * share * (1 - share))
    assert abs(deviation.mean()) < 1e-9
    assert np.abs(deviation).max() < 6


def test_no_channel_is_favoured():
    channels = torch.arange(64.0).repeat(4096, 1)  # each column one value
    _, values, _ = sample(channels, 128)
    assert len(np.unique(values)) > 40


def test_broadcast_tensors_are_sampled_by_their_elements():
    tensor = torch.arange(7.0).expand(1000, 7)
    counts = np.zeros(7)
    for seed in range(300):
        counts += np.bincount(sample(tensor, 100, seed=seed)[1].astype(int), minlength=7)
    assert counts.min() / counts.max() > 0.9


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(1, 200))
def test_a_walk_meets_no_element_twice_and_stays_inside(shape, sample_n):
    tensor = torch.zeros(shape)
    plan = make_plan(tensor.shape, tensor.stride(), sample_n)
    assert plan.samples == min(tensor.numel(), sample_n)
    if plan.samples == plan.size:
        return  # taken whole, no walk
    picked = walk_indices(plan, start=plan.size - 1)
    assert len(set(picked.tolist())) == sample_n
    assert picked.min() >= 0
    assert picked.max() < tensor.numel()


def test_the_walk_can_be_repeated():
    tensor = torch.randn(50, 70)
    sampler = Sampler(100)
    sampler.begin()
    first = sampler.take(tensor)
    tensor += 1
    second = sampler.take(tensor, first)
    slots, host = finished(sampler)
    np.testing.assert_allclose(
        slot_values(host, slots[second]) - slot_values(host, slots[first]), 1, atol=1e-5
    )


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [7, WHOLE, 5000])
def test_each_dtype_gives_its_values_and_extremes(dtype, size):
    source = torch.linspace(0, 100, size).round()
    tensor = source.to(dtype)
    slot, values, row = sample(tensor, 100)
    truth = tensor.abs() if dtype.is_complex else tensor
    truth = truth.to(torch.float64).numpy()
    assert np.isin(values, truth).all()
    assert (row["min"], row["max"]) == (truth.min(), truth.max())
    assert (slot.size, row["size"], row["sampled"]) == (size, size, size if size <= WHOLE else 100)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors_are_read_dequantized():
    tensor = torch.quantize_per_tensor(torch.arange(3000.0), 0.5, 3, torch.qint32)
    _, values, row = sample(tensor)
    assert np.isin(values, np.arange(3000.0)).all()
    assert row["max"] == 2999


def test_float64_beyond_the_range_of_float32():
    tensor = torch.tensor([1e300, -1e299, 3.0] * 1000, dtype=torch.float64)
    _, values, row = sample(tensor)
    assert set(values) <= {1e300, -1e299, 3.0}
    assert (row["min"], row["max"]) == (-1e299, 1e300)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_non_finite_values_are_counted_in_the_whole_tensor(dtype):
    tensor = torch.zeros(100_000, dtype=dtype)
    tensor[17], tensor[99_999] = math.nan, math.nan
    tensor[5] = math.inf
    tensor[6:9] = -math.inf
    tensor[50] = 2.0
    tensor[51] = -3.0
    _, _, row = sample(tensor)
    assert (row["nan"], row["posinf"], row["neginf"]) == (2, 1, 3)
    assert (row["min"], row["max"]) == (-3.0, 2.0)


def test_a_tensor_of_nothing_but_nan():
    _, _, row = sample(torch.full((2000,), math.nan))
    assert (row["nan"], row["counts"].sum()) == (2000, 0)
    assert math.isnan(row["min"])
    assert math.isnan(row["mean"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_exact_moments_come_from_the_whole_tensor(dtype):
    tensor = (torch.randn(10_000, generator=torch.Generator().manual_seed(0)) * 50).to(dtype)
    tensor[:1234] = 0
    _, _, row = sample(tensor, 100, exact=True)
    truth = tensor.to(torch.float64)
    assert row["mean"] == pytest.approx(truth.mean().item(), rel=1e-4)
    assert row["std"] == pytest.approx(truth.std(correction=0).item(), rel=1e-4)
    assert row["zeros"] == pytest.approx((truth == 0).double().mean().item())


def _ragged(layout: torch.layout) -> Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


UNREADABLE = {
    "empty": (lambda: torch.zeros(0, 4), Status.EMPTY),
    "blocked layout": (lambda: torch.eye(3).to_mkldnn(), Status.SPARSE),
    "meta": (lambda: torch.zeros(3, device="meta"), Status.META),
    "nested": (lambda: _ragged(torch.strided), Status.NESTED),
    "jagged": (lambda: _ragged(torch.jagged), Status.NESTED),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_sampled_says_why(name):
    make, status = UNREADABLE[name]
    tensor = make()
    sampler = Sampler()
    sampler.begin()
    assert sampler.take(tensor) == -status
    assert sampler.norms(tensor) == -status


def test_norms_are_one_per_sample():
    gradient = torch.randn(8, 3, 5, 5)
    np.testing.assert_allclose(norms(gradient), gradient.flatten(1).norm(dim=1).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [
        (torch.tensor(-3.0), [3.0]),
        (torch.tensor([-3.0, 4.0]), [3.0, 4.0]),
        (torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.bfloat16), [5.0, 0.0]),
        (torch.tensor([[300.0, 400.0]], dtype=torch.float16), [500.0]),
        (torch.tensor([[3e200, 4e200]], dtype=torch.float64), [5e200]),
        (torch.tensor([[3 + 4j, 0]]), [5.0]),
        (torch.ones(4, 2, 3, 5).to(memory_format=torch.channels_last), [math.sqrt(30)] * 4),
    ],
)
def test_norms_of_any_shape_and_dtype(gradient, expected):
    np.testing.assert_allclose(norms(gradient), expected, rtol=1e-5)


def test_a_huge_batch_of_norms_is_sampled():
    sampler = Sampler(100)
    sampler.begin()
    with torch.no_grad():
        number = sampler.norms(torch.arange(50_000.0).reshape(-1, 1))
    slots, host = finished(sampler)
    row = row_of(host, slots, number)
    assert (slots[number].samples, slots[number].size) == (100, 50_000)
    assert (row["min"], row["max"]) == (0, 49_999)


def test_many_tensors_share_one_buffer_and_keep_their_values():
    sampler = Sampler(None)
    generator = torch.Generator().manual_seed(0)
    dtypes = [torch.float32, torch.float64, torch.int64, torch.bfloat16]
    for _ in range(2):  # the second record has the capacity of the first
        sampler.begin()
        tensors = [
            torch.randint(-99, 99, (1 + 997 * i % 5000,), generator=generator).to(dtypes[i % 4])
            for i in range(200)
        ]
        numbers = [sampler.take(tensor) for tensor in tensors]
        slots, host = finished(sampler)
        for tensor, number in zip(tensors, numbers, strict=True):
            np.testing.assert_array_equal(slot_values(host, slots[number]), tensor.double().numpy())


class _CountCopies(TorchDispatchMode):
    """Counts what would wait for a device: copies to the host and reads of single values."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._overloadpacket.__name__ in ("_local_scalar_dense", "_to_copy", "item", "nonzero"):
            self.waits.append(str(func))
        return func(*args, **(kwargs or {}))


def test_taking_reads_nothing_back():
    sampler = Sampler(100)
    tensors = [torch.randn(30, 40), torch.randn(30, 40).bfloat16(), torch.randint(9, (5000,))]
    sampler.begin()
    with torch.no_grad(), _CountCopies() as counter:
        for tensor in tensors:
            sampler.take(tensor)
            if tensor.is_floating_point():
                sampler.norms(tensor)
        sampler.finish()
    assert counter.waits == []


def test_the_global_random_streams_are_not_touched():
    import random

    before = (torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())
    sample(torch.randn(5000, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])
    assert before[2] == random.getstate()


def test_records_in_inference_mode_can_be_followed_by_normal_ones():
    sampler = Sampler(10)
    sampler.begin()
    with torch.inference_mode():
        taken = [sampler.take(torch.ones(2000))]
    taken.append(sampler.take(torch.ones(2000)))
    slots, host = finished(sampler)
    assert [slot_values(host, slots[number]).sum() for number in taken] == [10, 10]


class Refuses(TorchDispatchMode):
    """Whatever has three elements can't be copied."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "copy_" in str(func) and any(t.shape == (3,) for t in tree_leaves(args) if isinstance(t, Tensor)):
            raise NotImplementedError("no copies")
        return func(*args, **(kwargs or {}))


def test_noted_tensors_are_copied_at_once_and_one_that_fails_costs_no_other_one():
    sampler = Sampler(100)
    sampler.begin()
    good = [torch.randn(4, 3), torch.tensor(2.5), torch.arange(6).reshape(2, 3).T, torch.randn(5).bfloat16()]
    with torch.no_grad():
        first = [sampler.take(tensor, later=True) for tensor in good[:2]]
        bad = sampler.take(torch.ones(3), later=True)
        rest = [sampler.take(tensor, later=True) for tensor in good[2:]]
        with Refuses():
            failed = sampler.copy_noted()
        assert sampler.copy_noted() == [], "copied twice"
    assert [(taken, str(error)) for taken, error in failed] == [(bad, "no copies")]
    slots, host = finished(sampler)
    for taken, tensor in zip(first + rest, good, strict=True):
        np.testing.assert_array_equal(slot_values(host, slots[taken]), tensor.double().reshape(-1))
