from __future__ import annotations

import struct
import tracemalloc
import zlib
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from tensorboard_torchexplorer import events
from tensorboard_torchexplorer import rows as rows_module
from tensorboard_torchexplorer.rows import (
    BATCH_BYTES,
    MAX_BINS,
    MAX_CHUNK,
    MAX_ROWS,
    decode_rows,
    encode_rows,
    rebin,
    row_dtype,
)
from tensorboard_torchexplorer.schema import ROW_FIELDS, Status
from tests import strategies
from tests.record_graphs import wide
from tests.records import Run, rows_for


def decoded(payload: bytes, count: int, bins: int) -> np.ndarray:
    rows, problems = decode_rows([payload], range(count), bins)
    assert problems == {}
    return rows[0]


def sealed(record: bytes) -> bytes:
    """A forged record with the right checksum in front."""
    return zlib.crc32(record).to_bytes(4, "little") + record


@cache
def deflated(zeros: int) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return stream.compress(bytes(zeros)) + stream.flush()


def some_rows(count: int = 5, bins: int = 30, seed: int = 0) -> np.ndarray:
    return rows_for(np.random.default_rng(seed).normal(size=(count, 100)), bins)


class TestIdentity:
    @given(strategies.rows())
    def test_float32_rows_come_back_bit_for_bit(self, rows):
        found = decoded(encode_rows(rows), len(rows), rows["counts"].shape[1])

        assert rows.tobytes() == found.tobytes()

    @given(strategies.rows(strategies.DOUBLE))
    def test_wide_rows_come_back_bit_for_bit(self, rows):
        found = decoded(encode_rows(rows, wide=True), len(rows), rows["counts"].shape[1])

        assert rows.tobytes() == found.tobytes()

    @pytest.mark.parametrize("value", [1e300, -1e300, 1e-300, 5e-324, 3.5e38])
    def test_a_value_that_float32_cannot_hold_keeps_its_column_float64(self, value):
        rows = some_rows()
        rows["max"][2] = value

        assert decoded(encode_rows(rows), 5, 30)["max"][2] == value

    def test_a_column_of_negative_zeros_is_not_taken_for_empty(self):
        rows = np.zeros(3, row_dtype(4))
        rows["mean"] = -0.0

        assert np.signbit(decoded(encode_rows(rows), 3, 4)["mean"]).all()

    def test_c51_constant_and_single_values_keep_their_one_bin(self):
        rows = np.zeros(3, row_dtype(30))
        for row, value in enumerate((0.0, 1e6, 1e-30)):
            for name in ("min", "max", "low", "high", "mean"):
                rows[name][row] = np.float32(value)
            rows["size"][row] = rows["sampled"][row] = 1
            rows["counts"][row, 0] = 1

        found = decoded(encode_rows(rows), 3, 30)

        assert found.tobytes() == rows.tobytes()
        assert found["counts"].sum(1).tolist() == [1, 1, 1]

    def test_c48_c50_counts_of_nonfinite_values_are_exact(self):
        rows = some_rows()
        rows["nan"][1], rows["posinf"][2], rows["neginf"][3] = 2**40 + 1, 3, 2**63

        found = decoded(encode_rows(rows), 5, 30)

        assert found["nan"].tolist() == [0, 2**40 + 1, 0, 0, 0]
        assert (found["posinf"][2], found["neginf"][3]) == (3, 2**63)

    def test_c36_c52_a_blank_row_keeps_its_reason(self):
        rows = np.zeros(18, row_dtype(30))
        rows["status"] = range(18)

        assert decoded(encode_rows(rows), 18, 30)["status"].tolist() == list(range(18))


class TestReading:
    @given(st.data())
    def test_chosen_rows_are_those_of_the_whole(self, data):
        records = [
            some_rows(data.draw(st.integers(1, 100)), seed=seed)
            for seed in range(data.draw(st.integers(1, 4)))
        ]
        wanted = data.draw(st.lists(st.integers(0, 120), min_size=1, max_size=20))

        found, problems = decode_rows([encode_rows(record) for record in records], wanted, 30)

        assert problems == {}
        for record, row in zip(records, found, strict=True):
            for number, entry in zip(wanted, row, strict=True):
                if number < len(record):
                    assert entry.tobytes() == record[number].tobytes()
                else:
                    assert (entry["status"], entry["counts"].sum()) == (Status.NOT_RUN, 0)

    def test_records_of_different_layouts_mix(self):
        plain, large, double = some_rows(), some_rows(), some_rows()
        large["counts"][0, 0] = 70_000
        double["max"][0] = 1e200
        records = [plain, large, plain, double]

        found, problems = decode_rows([encode_rows(record) for record in records], [0, 4], 30)

        assert problems == {}
        assert found.tobytes() == np.stack([record[[0, 4]] for record in records]).tobytes()

    def test_a_record_with_other_bins_is_spread_over_those_asked_for(self):
        rows = some_rows(bins=10)

        found = decoded(encode_rows(rows), 5, 30)

        assert found["counts"].shape == (5, 30)
        assert found["counts"].sum(1).tolist() == rows["counts"].sum(1).tolist()
        assert found["low"].tolist() == rows["low"].tolist()


class TestRebin:
    @given(
        st.lists(st.integers(0, 2**26), min_size=1, max_size=50),
        st.integers(1, 50),
    )
    def test_totals_are_kept_and_nothing_is_negative(self, counts, bins):
        spread = rebin(np.array(counts, np.uint32), bins).astype(np.int64)

        assert len(spread) == bins
        assert (spread >= 0).all()
        assert spread.sum() == sum(counts)

    def test_as_many_bins_change_nothing(self):
        counts = np.arange(12, dtype=np.uint32).reshape(2, 6)

        assert rebin(counts, 6).tolist() == counts.tolist()

    def test_a_bin_is_split_evenly_and_neighbours_are_joined(self):
        assert rebin(np.array([4, 0, 2]), 6).tolist() == [2, 2, 0, 0, 1, 1]
        assert rebin(np.array([4, 1, 2, 3]), 2).tolist() == [5, 5]


class TestDamage:
    @given(st.binary(max_size=300), st.booleans())
    def test_any_bytes_give_fault_rows_and_a_reason(self, payload, is_sealed):
        payload = sealed(payload) if is_sealed else payload

        found, problems = decode_rows([payload, encode_rows(some_rows())], [0, 1], 30)

        assert 1 not in problems
        assert found["status"][1].tolist() == [0, 0]
        if 0 in problems:
            assert found["status"][0].tolist() == [Status.FAULT, Status.FAULT]

    @given(st.integers(0, 10_000), st.integers(0, 7))
    def test_any_flipped_bit_is_noticed(self, at, bit):
        """TensorBoard's data server lets it pass where the event still parses."""
        payload = bytearray(encode_rows(some_rows(70)))
        payload[at % len(payload)] ^= 1 << bit

        found, problems = decode_rows([bytes(payload)], [0, 69], 30)

        assert list(problems) == [0]
        assert found["status"].tolist() == [[Status.FAULT, Status.FAULT]]

    @given(st.integers(4, 10_000), st.integers(0, 7))
    def test_any_forged_record_is_survived(self, at, bit):
        payload = bytearray(encode_rows(some_rows(70)))
        payload[4 + at % (len(payload) - 4)] ^= 1 << bit

        found, _ = decode_rows([sealed(bytes(payload[4:]))], range(70), 30)

        counted = found["counts"].any(axis=-1)
        assert (np.isfinite(found["low"]) & (found["low"] <= found["high"]))[counted].all()

    @pytest.mark.parametrize(("count", "chunk"), [(60_000, 60_000), (128, 128), (60_000, 128)])
    def test_a_forged_record_cannot_ask_for_all_memory(self, count, chunk):
        """Zeros deflate to a thousandth."""
        widths = bytes(len(ROW_FIELDS)) + b"\1"
        sizes = [min(chunk, count - start) * MAX_BINS for start in range(0, count, chunk)]
        streams = [deflated(size) for counts in sizes for size in (0, 0, counts)]
        body = struct.pack("<BBHIH", 1, 1, MAX_BINS, count, chunk) + widths
        body += struct.pack(f"<{len(streams)}I", *map(len, streams)) + b"".join(streams)
        payloads = [sealed(body)] * 300
        tracemalloc.start()
        try:
            _, problems = decode_rows(payloads, [0, 1], 30)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert peak < 3 * BATCH_BYTES
        assert len(problems) == (300 if chunk > MAX_CHUNK else 0)

    @pytest.mark.parametrize("budget", [1, 3000, 1 << 20])
    def test_records_are_the_same_whatever_fits_at_a_time(self, monkeypatch, budget):
        monkeypatch.setattr(rows_module, "BATCH_BYTES", budget)
        records = [some_rows(70, seed=seed) for seed in range(9)]
        payloads = [encode_rows(record) for record in records]
        payloads[4] = payloads[4][:-1]

        found, problems = decode_rows(payloads, [0, 33, 69], 30)

        assert list(problems) == [4]
        for position, record in enumerate(records):
            if position != 4:
                assert found[position].tobytes() == record[[0, 33, 69]].tobytes()

    @given(st.integers(0, 10_000))
    def test_any_cut_off_record_is_named(self, length):
        payload = encode_rows(some_rows(70))

        found, problems = decode_rows([payload[: length % len(payload)]], [3], 30)

        assert list(problems) == [0]
        assert found["status"][0, 0] == Status.FAULT

    def test_a_later_format_is_told_so(self):
        payload = sealed(b"\x02" + encode_rows(some_rows())[5:])

        _, problems = decode_rows([payload], [0], 30)

        assert problems == {0: "rows of format 2, this version reads up to 1"}

    def test_a_forged_record_cannot_make_us_inflate_without_end(self):
        bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
        stream = bomb.compress(bytes(200 << 20)) + bomb.flush()
        header = struct.pack("<BBHIH", 1, 0, 30, 20, 32) + bytes([1] + [0] * 12 + [1])
        payload = sealed(header + struct.pack("<3I", len(stream), 0, len(stream)) + stream + stream)
        tracemalloc.start()

        _, problems = decode_rows([payload] * 3, [0], 30)

        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert set(problems.values()) == {"a stream of a record of rows has the wrong length"}
        assert peak < 4 << 20

    def test_impossible_sizes_are_refused(self):
        for bins, rows, chunk in ((0, 1, 32), (5000, 1, 32), (30, MAX_ROWS + 1, 32), (30, 1, 0)):
            header = struct.pack("<BBHIH", 1, 0, bins, rows, chunk) + bytes(14)

            assert "no record of rows" in decode_rows([sealed(header)], [0], 30)[1][0]

    def test_rows_that_no_writer_makes_become_faults(self):
        rows = some_rows()
        rows["low"][0], rows["high"][1], rows["status"][2] = np.nan, -1e9, 200

        assert decoded(encode_rows(rows), 5, 30)["status"].tolist() == [12, 12, 12, 0, 0]

    def test_more_rows_than_a_shard_may_have_are_not_written(self):
        with pytest.raises(ValueError, match="at most 65536 rows, got 65537"):
            encode_rows(np.zeros(MAX_ROWS + 1, row_dtype(1)))

    @pytest.mark.parametrize("bins", [0, -1, 4097])
    def test_odd_numbers_of_bins_are_refused(self, bins):
        with pytest.raises(ValueError, match=f"got {bins}"):
            row_dtype(bins)


def test_a_histogram_takes_at_most_50_bytes_of_the_event():
    graph = wide(100)
    values = events.step_values(Run(graph).record(3))

    size = Event(wall_time=1.0, step=3, summary=Summary(value=values)).ByteSize()

    assert size / len(graph.series) <= 50


def test_frozen_and_blank_rows_take_next_to_nothing():
    rows = np.zeros(128, row_dtype(30))
    rows["status"] = Status.FROZEN

    assert len(encode_rows(rows)) < 200


def test_blank_rows_among_others_take_next_to_nothing():
    rows = some_rows(128)
    alone = len(encode_rows(rows[:16]))
    rows[16:] = np.zeros((), rows.dtype)
    rows["status"][16:] = Status.EVAL

    assert len(encode_rows(rows)) < alone + 400
