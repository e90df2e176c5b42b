"""Rows of one shard (a structured numpy array) to compact bytes, and chosen rows of many such records back.

Layout, little endian:

    CRC-32 u4 of all that follows
    version u1, flags u1, bins u2, rows u4, rows per chunk u2
    width u1 of each column (`ROW_FIELDS`, then counts): bytes per value, 0 where all values are zero
    for each chunk three u4: lengths of its streams `head`, `tail` and `counts`
    the streams, chunk after chunk

A column is stored as byte planes (all first bytes, then all second bytes, ...), because neighbours in a
plane resemble each other. The upper two bytes of the floats and all bytes of the whole numbers make
`head`; the rest of the floats, which is noise, makes `tail`, stored as it is unless deflate helps (flag 1);
`counts` has a stream of its own since Huffman codes pay only among values of one kind. A chunk can be read
without the others: the history of one invocation needs 8 of about 128 rows.

Measured on 128 rows of 30 bins (100 sampled values, or norms of a batch of 32): 40.8 bytes a row in chunks
of 32. One single chunk gives 38.8, but takes three times as long to read the rows of one invocation.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorboard_torchexplorer.schema import ROW_FIELDS, STATUS, Status

VERSION = 1
CHUNK = 32
MAX_BINS = 4096
MAX_ROWS = 1 << 16
MAX_CHUNK = 128
"""Far above what the recorder writes (about 128 rows a shard); bounds what a forged record can ask for."""

BATCH_BYTES = 64 << 20
"""So much is inflated at a time, if it is more than one record."""

Rows = npt.NDArray[np.void]
"""A structured array of `row_dtype(bins)`."""

_HEADER = struct.Struct("<BBHIH")
_TAIL_DEFLATED = 1
_COLUMNS = len(ROW_FIELDS)
_INTEGERS = tuple(index for index, (_, code) in enumerate(ROW_FIELDS) if code[0] == "u")
_FLOATS = tuple(index for index, (_, code) in enumerate(ROW_FIELDS) if code[0] == "f")
_CRC = 4
_PREFIX = _HEADER.size + _COLUMNS + 1
_HEAD_BYTES = 2  # of a float go to `head`: sign, exponent and the first bits of the fraction


class DecodeError(ValueError):
    """Stored bytes that are damaged, forged, or of a version that this code does not know."""


@cache
def row_dtype(bins: int) -> np.dtype[np.void]:
    """The type of a row in memory: the columns of `ROW_FIELDS`, then `counts`, u4 of shape [bins]."""
    if not 1 <= bins <= MAX_BINS:
        raise ValueError(f"bins must lie in 1..{MAX_BINS}, got {bins}")
    fields: list[tuple[Any, ...]] = [(name, "<" + code) for name, code in ROW_FIELDS]
    return np.dtype([*fields, ("counts", "<u4", (bins,))])


def encode_rows(rows: Rows, *, wide: bool = False) -> bytes:
    """`rows` (any number, 1-d) as bytes. Whole numbers keep their value. Floats are rounded to float32,
    but a column stays float64 with `wide`, and where float32 could not hold one of its values."""
    count, bins = len(rows), rows.dtype["counts"].shape[0]
    if count > MAX_ROWS:
        raise ValueError(f"a shard holds at most {MAX_ROWS} rows, got {count}")
    integers = [_planes(column) for column in np.stack([rows[ROW_FIELDS[index][0]] for index in _INTEGERS])]
    floats = _float_planes(np.stack([rows[ROW_FIELDS[index][0]] for index in _FLOATS]), wide)
    counts = _planes(rows["counts"].reshape(-1))
    counts = counts.reshape(len(counts), count, bins)
    head = np.concatenate([*integers, *(planes[-_HEAD_BYTES:] for planes in floats)])
    tail = np.concatenate([planes[:-_HEAD_BYTES] for planes in floats])

    # Noise does not deflate. Rows without values do, and float64 columns that hold float32 values.
    sparse = wide or bool(np.count_nonzero(rows["status"]) > count // 8)
    chunks = [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
    heads = [_deflate(head[:, chunk].tobytes(), sparse) for chunk in chunks]
    tails = [tail[:, chunk].tobytes() for chunk in chunks]
    if sparse:
        tails = [_deflate(stream, sparse) for stream in tails]
    packed = [_deflate(counts[:, chunk].tobytes(), sparse) if len(counts) else b"" for chunk in chunks]

    streams = [stream for triple in zip(heads, tails, packed, strict=True) for stream in triple]
    widths = bytearray(_COLUMNS + 1)
    for index, planes in zip((*_INTEGERS, *_FLOATS, _COLUMNS), (*integers, *floats, counts), strict=True):
        widths[index] = len(planes)
    header = _HEADER.pack(VERSION, _TAIL_DEFLATED if sparse else 0, bins, count, CHUNK) + widths
    record = b"".join([header, struct.pack(f"<{len(streams)}I", *map(len, streams)), *streams])
    return zlib.crc32(record).to_bytes(_CRC, "little") + record


def decode_rows(payloads: Sequence[bytes], wanted: Sequence[int], bins: int) -> tuple[Rows, dict[int, str]]:
    """The rows with the numbers `wanted` of each record: array [len(payloads), len(wanted)].

    A row that a record does not have yet gets status NOT_RUN. Counts of a record with another number of
    bins are spread over `bins` (`rebin`). Rows of a record that can't be read get status FAULT; the
    second result says why, by the record's position."""
    result = np.zeros((len(payloads), len(wanted)), row_dtype(bins))
    result["status"] = Status.NOT_RUN
    problems: dict[int, str] = {}
    alike: dict[bytes, list[int]] = {}
    for position, payload in enumerate(payloads):
        alike.setdefault(payload[_CRC : _CRC + _PREFIX], []).append(position)
    for prefix, positions in alike.items():
        try:
            layout = _Layout(prefix)
        except DecodeError as error:
            problems.update(dict.fromkeys(positions, str(error)))
            continue
        _decode_alike(layout, payloads, positions, wanted, result, problems)
    for position in problems:
        result[position] = np.zeros((), result.dtype)
        result["status"][position] = Status.FAULT
    return result, problems


def rebin(counts: npt.NDArray[Any], bins: int) -> npt.NDArray[np.uint32]:
    """`counts` [..., old bins] over the same range in `bins` equal bins; whole numbers, totals kept.

    Values are taken as spread evenly within a bin; the running total at each new edge is rounded."""
    old = counts.shape[-1]
    total = np.zeros((*counts.shape[:-1], old + 1))
    np.cumsum(counts, axis=-1, out=total[..., 1:], dtype=np.float64)
    edges = np.linspace(0, old, bins + 1)
    below = np.minimum(edges.astype(np.int64), old - 1)
    share = edges - below
    at_edge = total[..., below] * (1 - share) + total[..., below + 1] * share
    spread = np.diff(np.rint(at_edge), axis=-1)
    whole: npt.NDArray[np.uint32] = np.minimum(spread, np.iinfo(np.uint32).max).astype(np.uint32)
    return whole


# --- Encoding ---


def _planes(column: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Bytes of whole numbers as [bytes per value, values], as few as the largest needs; none if it is 0."""
    largest = int(column.max(initial=0))
    width = next(width for width in (0, 1, 2, 4, 8) if largest < 1 << 8 * width)
    if not width:
        return np.zeros((0, len(column)), np.uint8)
    return column.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T


def _float_planes(columns: npt.NDArray[np.float64], wide: bool) -> list[npt.NDArray[np.uint8]]:
    """Bytes of each of the float64 `columns` [columns, values] as [bytes per value, values]."""
    with np.errstate(over="ignore", under="ignore"):
        singles = columns.astype("<f4")
    lost = (np.isinf(singles) & np.isfinite(columns)) | ((singles == 0) & (columns != 0))
    found = []
    for single, double, is_lost in zip(singles, columns, lost.any(axis=1), strict=True):
        kept = double.astype("<f8") if wide or is_lost else single
        planes = kept.view(np.uint8).reshape(-1, kept.itemsize).T
        # Looks at bytes: a column of -0.0 is not empty.
        found.append(planes if planes.any() else planes[:0])
    return found


def _deflate(data: bytes, sparse: bool) -> bytes:
    # Between rows with values, matches are rare: Huffman coding alone is faster and no larger.
    strategy = zlib.Z_DEFAULT_STRATEGY if sparse else zlib.Z_HUFFMAN_ONLY
    stream = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    return stream.compress(data) + stream.flush()


# --- Decoding ---


class _Layout:
    """What the first bytes of a record say: how many rows, and where which byte of them lies."""

    def __init__(self, prefix: bytes) -> None:
        if len(prefix) < _PREFIX:
            raise DecodeError(f"a record of rows has {_PREFIX} bytes or more, this one {len(prefix)}")
        version, flags, bins, rows, chunk = _HEADER.unpack_from(prefix)
        self.bins: int = bins
        self.rows: int = rows
        self.chunk: int = chunk
        if version > VERSION:
            raise DecodeError(f"rows of format {version}, this version reads up to {VERSION}")
        if version < 1 or flags & ~_TAIL_DEFLATED:
            raise DecodeError(f"no record of rows: version {version}, flags {flags}")
        if not (1 <= self.bins <= MAX_BINS and self.rows <= MAX_ROWS and 1 <= self.chunk <= MAX_CHUNK):
            raise DecodeError(f"no record of rows: {self.rows} rows of {self.bins} bins by {self.chunk}")
        self.widths = prefix[_HEADER.size : _PREFIX]
        if any(self.widths[index] not in (0, 1, 2, 4, 8) for index in (*_INTEGERS, _COLUMNS)):
            raise DecodeError("no record of rows: a whole number of odd width")
        if any(self.widths[index] not in (0, 4, 8) for index in _FLOATS):
            raise DecodeError("no record of rows: a float of odd width")
        self.tail_deflated = bool(flags & _TAIL_DEFLATED)
        self.chunks = -(-self.rows // self.chunk)
        self.lengths = struct.Struct(f"<{3 * self.chunks}I")
        floats = [self.widths[index] for index in _FLOATS if self.widths[index]]
        self.head_planes = sum(self.widths[index] for index in _INTEGERS) + _HEAD_BYTES * len(floats)
        self.tail_planes = sum(floats) - _HEAD_BYTES * len(floats)

    def rows_of(self, chunk: int) -> int:
        return min(self.chunk, self.rows - chunk * self.chunk)

    def inflated(self, chunks: Sequence[int]) -> int:
        """Bytes of the given chunks of one record."""
        bytes_of_row = self.head_planes + self.tail_planes + self.bins * self.widths[-1]
        return sum(map(self.rows_of, chunks)) * bytes_of_row

    def streams(self, payload: bytes, chunks: Sequence[int]) -> list[tuple[bytes, bytes, bytes]]:
        """Head, tail and counts of the given chunks, inflated and of exactly the right length."""
        if len(payload) < _CRC + _PREFIX + self.lengths.size:
            raise DecodeError("a record of rows is cut off")
        # TensorBoard's data server checks its own checksum only where a record does not parse.
        if zlib.crc32(memoryview(payload)[_CRC:]) != int.from_bytes(payload[:_CRC], "little"):
            raise DecodeError("a record of rows has the wrong checksum")
        start = _CRC + _PREFIX
        lengths = self.lengths.unpack_from(payload, start)
        ends = list(accumulate(lengths, initial=start + self.lengths.size))
        if ends[-1] != len(payload):
            raise DecodeError(f"a record of rows should have {ends[-1]} bytes and has {len(payload)}")
        found = []
        for chunk in chunks:
            head, tail, counts = (payload[ends[at] : ends[at + 1]] for at in range(3 * chunk, 3 * chunk + 3))
            rows = self.rows_of(chunk)
            tail_size, counts_size = rows * self.tail_planes, rows * self.bins * self.widths[-1]
            if self.tail_deflated:
                tail = _inflate(tail, tail_size)
            elif len(tail) != tail_size:
                raise DecodeError("a stream of a record of rows has the wrong length")
            counts = _inflate(counts, counts_size) if counts_size else b""
            found.append((_inflate(head, rows * self.head_planes), tail, counts))
        return found


def _decode_alike(
    layout: _Layout,
    payloads: Sequence[bytes],
    positions: Sequence[int],
    wanted: Sequence[int],
    result: Rows,
    problems: dict[int, str],
) -> None:
    """Fills `result` for the records at `positions`, which share one layout, many at a time."""
    numbers = np.asarray(wanted, np.int64)
    inside = (numbers >= 0) & (numbers < layout.rows)
    chunks = sorted({int(number) for number in numbers[inside] // layout.chunk})
    size = max(1, BATCH_BYTES // max(1, layout.inflated(chunks)))
    for start in range(0, len(positions), size):
        batch = positions[start : start + size]
        _decode_batch(layout, payloads, batch, numbers, inside, chunks, result, problems)


def _decode_batch(
    layout: _Layout,
    payloads: Sequence[bytes],
    positions: Sequence[int],
    numbers: npt.NDArray[np.int64],
    inside: npt.NDArray[np.bool_],
    chunks: Sequence[int],
    result: Rows,
    problems: dict[int, str],
) -> None:
    good, streams = [], []
    for position in positions:
        try:
            streams.append(layout.streams(payloads[position], chunks))
            good.append(position)
        except DecodeError as error:
            problems[position] = str(error)
    if not good:
        return
    for order, chunk in enumerate(chunks):
        columns = np.flatnonzero(inside & (numbers // layout.chunk == chunk))
        local = numbers[columns] - chunk * layout.chunk
        head, tail, counts = (
            np.frombuffer(b"".join(record[order][part] for record in streams), np.uint8).reshape(
                len(good), -1
            )
            for part in range(3)
        )
        block = _block(
            layout, layout.rows_of(chunk), head, tail, counts, local, result.dtype["counts"].shape[0]
        )
        result[np.ix_(np.asarray(good), columns)] = block


def _block(
    layout: _Layout,
    rows: int,
    head: npt.NDArray[np.uint8],
    tail: npt.NDArray[np.uint8],
    counts: npt.NDArray[np.uint8],
    local: npt.NDArray[np.int64],
    bins: int,
) -> Rows:
    """The rows `local` of one chunk of `rows` rows, of all records whose streams are the rows of `head`,
    `tail` and `counts`."""
    records = len(head)
    block = np.zeros((records, len(local)), row_dtype(bins))
    head_planes = head.reshape(records, -1, rows)[:, :, local]
    tail_planes = tail.reshape(records, -1, rows)[:, :, local]
    head_at = tail_at = 0
    for index in (*_INTEGERS, *_FLOATS):
        width = layout.widths[index]
        if not width:
            continue
        if index in _INTEGERS:
            planes, code = head_planes[:, head_at : head_at + width], f"<u{width}"
            head_at += width
        else:
            lower = tail_planes[:, tail_at : tail_at + width - _HEAD_BYTES]
            upper = head_planes[:, head_at : head_at + _HEAD_BYTES]
            planes, code = np.concatenate([lower, upper], axis=1), f"<f{width}"
            head_at += _HEAD_BYTES
            tail_at += width - _HEAD_BYTES
        name, _ = ROW_FIELDS[index]
        block[name] = np.ascontiguousarray(planes.transpose(0, 2, 1)).view(code)[..., 0]
    if layout.widths[-1]:
        width = layout.widths[-1]
        planes = counts.reshape(records, width, rows, layout.bins)[:, :, local]
        found = np.ascontiguousarray(planes.transpose(0, 2, 3, 1)).view(f"<u{width}")[..., 0]
        block["counts"] = found if layout.bins == bins else rebin(found, bins)
    _distrust(block)
    return block


def _distrust(block: Rows) -> None:
    """Turns rows that no writer of ours makes into rows with status FAULT."""
    finite = np.isfinite(block["low"]) & np.isfinite(block["high"]) & (block["low"] <= block["high"])
    odd = (block["status"] >= len(STATUS)) | (~finite & block["counts"].any(axis=-1))
    if odd.any():
        fault = np.zeros((), block.dtype)
        fault["status"] = Status.FAULT
        block[odd] = fault


def _inflate(stream: bytes, size: int) -> bytes:
    """`stream` inflated, which must give exactly `size` bytes; never makes more than that."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflater.decompress(stream, size + 1)
    except zlib.error as error:
        raise DecodeError(f"a stream of a record of rows is damaged: {error}") from None
    if len(data) != size or not inflater.eof:
        raise DecodeError("a stream of a record of rows has the wrong length")
    return data
