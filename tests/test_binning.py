"""Samples to histogram rows: every kept value counted once, statistics right at the extremes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tensorboard_torchexplorer.binning import bin_rows
from tensorboard_torchexplorer.slots import Slots

values32 = arrays(np.float32, st.integers(1, 60), elements=st.floats(width=32))
values64 = arrays(np.float64, st.integers(1, 60), elements=st.floats())


def rows_of(*tensors: np.ndarray, bins: int = 30, reject: float = 0.1):
    """Rows of whole tensors of one width."""
    wide = tensors[0].dtype == np.float64
    unit = 2 if wide else 1
    packed = np.concatenate(tensors).view(np.float32)
    slots, offset = Slots(), 0
    for tensor in tensors:
        slots.add(offset, len(tensor), len(tensor), wide)
        offset += unit * len(tensor)
    return bin_rows([packed], slots, np.arange(len(slots)), {}, bins, reject)


@pytest.mark.parametrize("wide", [False, True])
@given(data=st.data(), bins=st.integers(1, 64), reject=st.sampled_from([0.0, 0.1, 0.5, 0.99]))
def test_every_kept_finite_value_is_counted_once(wide, data, bins, reject):
    values = data.draw(values64 if wide else values32)
    row = rows_of(values, bins=bins, reject=reject)[0]
    finite = values[np.isfinite(values)].astype(np.float64)
    assert row["counts"].sum() == len(finite) - int(reject * len(finite))
    assert row["nan"] + row["posinf"] + row["neginf"] + len(finite) == len(values) == row["size"]
    if len(finite):
        assert row["min"] == finite.min() <= row["low"] <= row["high"] <= finite.max() == row["max"]
        assert row["min"] <= row["mean"] <= row["max"] or np.isclose(row["mean"], row["min"])
        assert row["std"] >= 0
        assert np.isfinite([row["mean"], row["std"]]).all()


@example([np.full(12, 1e300), np.full(12, 5e-310), np.geomspace(1e-305, 1e-300, 12)], 0.1)
@given(
    st.one_of(st.lists(values, min_size=1, max_size=8) for values in (values32, values64)),
    st.sampled_from([0.0, 0.1]),
)
def test_rows_do_not_depend_on_their_neighbours(tensors, reject):
    together = rows_of(*tensors, reject=reject)
    alone = [rows_of(tensor, reject=reject)[0] for tensor in tensors]
    for one, other in zip(together, alone, strict=True):
        assert one.tobytes() == other.tobytes()


def test_counts_are_those_of_numpy_without_outlier_rejection():
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    row = rows_of(values, reject=0.0)[0]
    expected, _ = np.histogram(values.astype(np.float64), 30)
    np.testing.assert_array_equal(row["counts"], expected)


def test_the_values_farthest_from_the_median_are_left_out():
    values = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 1000], np.float32)
    row = rows_of(values, reject=0.1)[0]
    assert (row["low"], row["high"], row["max"]) == (0, 8, 1000)


def test_statistics_are_those_of_the_finite_values():
    values = np.array([0, 0, 3, 5, np.nan, np.inf], np.float32)
    row = rows_of(values, reject=0.0)[0]
    assert row["mean"] == 2
    assert row["std"] == pytest.approx(np.std([0, 0, 3, 5]))
    assert row["zeros"] == 0.5


@pytest.mark.parametrize("value", [0.0, 7.0, 1e6, 1e-30, -1e300, 5e-324])
def test_a_constant_tensor_is_one_full_bin(value):
    row = rows_of(np.full(50, value))[0]
    assert row["low"] == row["high"] == row["min"] == row["mean"] == value
    assert row["std"] == 0
    assert row["counts"][0] == 45


def test_one_value():
    row = rows_of(np.array([3.5], np.float32))[0]
    assert (row["mean"], row["std"], row["counts"].sum()) == (3.5, 0, 1)


def test_the_widest_float64_range_does_not_overflow():
    row = rows_of(np.array([-1.7e308, 0.0, 1.7e308]), bins=2, reject=0.0)[0]
    assert list(row["counts"]) == [1, 2]
    assert math.isfinite(row["std"])


def test_many_of_the_largest_float64_do_not_overflow():
    row = rows_of(np.full(60, 1.7e308), reject=0.0)[0]
    assert (row["mean"], row["std"], row["counts"][0]) == (1.7e308, 0, 60)


def test_the_smallest_and_the_largest_float64_together():
    row = rows_of(np.array([5e-324, 1.7e308]), reject=0.0)[0]
    assert (row["low"], row["high"], row["counts"].sum()) == (5e-324, 1.7e308, 2)


def test_several_passes_make_one_histogram():
    slots = Slots()
    passes = [slots.add(0, 4, 4, False), slots.add(6, 4, 4, False)]
    row = bin_rows([np.arange(10, dtype=np.float32)], slots, np.array(passes[:1]), {0: passes}, 4, 0.0)[0]
    assert (row["size"], row["min"], row["max"], row["counts"].sum()) == (8, 0, 9, 8)


def test_several_devices_have_buffers_of_their_own():
    slots, hosts = Slots(), [np.arange(4, dtype=np.float32), np.arange(10, 14, dtype=np.float32)]
    for device in (1, 0, 1):
        slots.add(0, 4, 4, False, extremes=2, device=device)
    rows = bin_rows(hosts, slots, np.arange(3), {}, 4, 0.0)
    assert rows["low"].tolist() == [10, 0, 10]
    assert rows["max"].tolist() == [13, 3, 13]


def test_no_series_no_rows():
    assert len(bin_rows([], Slots(), np.zeros(0, np.int64), {}, 4, 0.0)) == 0
