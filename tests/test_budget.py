from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tensorboard_torchexplorer.budget import interval, is_due


def logged(steps: int, log_freq: int, max_records: int | None) -> list[int]:
    return [step for step in range(steps) if is_due(step, log_freq, max_records)]


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_without_a_budget_the_interval_stays(step, log_freq):
    assert interval(step, log_freq, None) == log_freq


@given(st.integers(1, 20), st.integers(1, 50), st.integers(0, 5000))
def test_records_grow_with_the_logarithm_of_the_run(log_freq, max_records, steps):
    octaves = (steps // (log_freq * max_records)).bit_length()

    assert len(logged(steps, log_freq, max_records)) <= max_records + octaves * (max_records / 2 + 1)


@given(st.integers(1, 20), st.integers(1, 50))
def test_the_first_records_are_at_full_frequency(log_freq, max_records):
    steps = logged(log_freq * max_records, log_freq, max_records)

    assert steps == list(range(0, log_freq * max_records, log_freq))


def test_c71_a_long_run_stays_small_and_evenly_covered():
    steps = logged(1_000_000, 10, 1000)

    # 10,000 steps at 10, six doublings of 500 records each, and the rest of a seventh at 1280.
    assert len(steps) == 1000 + 6 * 500 + 282
    assert steps[:3] == [0, 10, 20]
    gaps = {later - earlier for earlier, later in zip(steps[-100:], steps[-99:], strict=False)}
    assert gaps == {1280}
