"""Packed samples in, one row (histogram with statistics) per series out. Numpy only.

Meanings. The *finite* values are those sampled that are neither NaN nor Inf. Of these the
`reject` share that lies farthest from their median is left out (rounded down to whole values), as in
the original TorchExplorer, so that outliers do not compress the picture; the others are *kept*. The
kept values are counted in `bins` equal bins over [low, high], their smallest and largest value; a
value on the border of two bins counts in the upper one, `high` itself in the last, and where low ==
high all count in the first. Mean, standard deviation (population: divided by n) and share of zeros are
those of the finite values, outliers included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .rows import row_dtype
from .slots import COLUMNS, Slot, Slots

Floats = NDArray[np.float64]


def bin_rows(
    host: Sequence[NDArray[np.float32]],
    slots: Slots,
    numbers: NDArray[np.int64],
    several: Mapping[int, Sequence[int]],
    bins: int,
    reject: float,
) -> NDArray[np.void]:
    """One row for each of `numbers`, the slots of series: structured array [len(numbers)] of
    `row_dtype(bins)`, status OK. `host` are the packed buffers, by number of the device. `several` are
    the rows that more than one slot makes up (several backward passes reached one tensor), with all of
    these.
    """
    rows = np.zeros(len(numbers), row_dtype(bins))
    if not len(numbers):
        return rows
    table = slots.table()[numbers]
    column = {name: table[:, position] for name, position in COLUMNS.items()}
    for where in _alike(column["device"], column["samples"], column["wide"]):
        first = where[0]
        count, wide = column["samples"][first], column["wide"][first]
        packed, offsets = host[column["device"][first]], column["offset"][where]
        if wide:
            matrix = packed[offsets[:, None] + np.arange(2 * count)].view(np.float64)
        else:
            matrix = packed[offsets[:, None] + np.arange(count)].astype(np.float64)
        _fill(rows, where, matrix, bins, reject)
    rows["size"] = column["size"]

    whole = column["extremes"] >= 0
    special = (column["wide"] != 0) | (column["counts"] >= 0) | (column["moments"] >= 0)
    special |= (column["nan"] + column["posinf"] + column["neginf"]) > 0
    for device, packed in enumerate(host):
        where = np.flatnonzero(whole & ~special & (column["device"] == device))
        offsets = column["extremes"][where]
        rows["min"][where], rows["max"][where] = packed[offsets], packed[offsets + 1]
    for index in np.flatnonzero(whole & special).tolist():
        _whole(rows, index, host, slots[int(numbers[index])])
    for index, members in several.items():
        _several(rows, index, host, [slots[member] for member in members], bins, reject)
    for index in {*np.flatnonzero(column["implicit_zeros"]).tolist(), *several}:
        parts = [slots[member] for member in several.get(index, [int(numbers[index])])]
        if any(part.implicit_zeros for part in parts):
            _add_zeros(rows, index, host, parts, reject)
    return rows


def slot_values(host: Sequence[NDArray[np.float32]], slot: Slot) -> Floats:
    """The sampled values of a slot, float64 [slot.samples]."""
    packed = host[slot.device]
    if slot.wide:
        return packed[slot.offset : slot.offset + 2 * slot.samples].view(np.float64)
    return packed[slot.offset : slot.offset + slot.samples].astype(np.float64)


def _alike(*columns: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The indices of each group of rows that agree in all `columns`."""
    order = np.lexsort(columns)
    changes = np.zeros(len(order) - 1, bool)
    for column in columns:
        changes |= np.diff(column[order]) != 0
    return np.split(order, np.flatnonzero(changes) + 1)


def _fill(rows: NDArray[np.void], where: NDArray[np.int64], matrix: Floats, bins: int, reject: float) -> None:
    """Rows `where` from `matrix` [len(where), samples]."""
    finite = np.isfinite(matrix)
    clean = finite.all(axis=1)
    _statistics(rows, where[clean], matrix[clean], bins, reject)
    for position in np.flatnonzero(~clean):
        values = matrix[position]
        index = where[position : position + 1]
        rows["nan"][index] = np.isnan(values).sum()
        rows["posinf"][index] = np.isposinf(values).sum()
        rows["neginf"][index] = np.isneginf(values).sum()
        _statistics(rows, index, values[None, finite[position]], bins, reject)
    rows["sampled"][where] = matrix.shape[1]


def _statistics(
    rows: NDArray[np.void], where: NDArray[np.int64], matrix: Floats, bins: int, reject: float
) -> None:
    """All columns that finite samples give, for rows of one length."""
    count, length = matrix.shape
    if count == 0:
        return
    if length == 0:
        for name in ("min", "max", "low", "high", "mean", "std", "zeros"):
            rows[name][where] = np.nan
        return
    # A power of two keeps sums and differences of values near the largest float64 finite, and exact.
    # Only of rows that have such, since others may be of numbers too small for it.
    large = np.abs(matrix).max(axis=1) > 1e250
    scale = np.where(large, 2.0**-100, 1.0)
    scaled = matrix * scale[:, None] if large.any() else matrix
    # Rounding may leave the range.
    mean = np.clip(scaled.mean(axis=1), scaled.min(axis=1), scaled.max(axis=1))
    rows["mean"][where] = mean / scale
    rows["min"][where], rows["max"][where] = matrix.min(axis=1), matrix.max(axis=1)
    rows["std"][where] = _std(scaled, mean) / scale
    rows["zeros"][where] = (matrix == 0).mean(axis=1)
    scaled = _keep(scaled, reject)
    low, high = scaled.min(axis=1), scaled.max(axis=1)
    # The smallest numbers don't survive the scaling.
    least, most = rows["min"][where], rows["max"][where]
    rows["low"][where] = np.clip(low / scale, least, most)
    rows["high"][where] = np.clip(high / scale, least, most)
    rows["counts"][where] = _count(scaled, low, high, bins)


def _keep(matrix: Floats, reject: float) -> Floats:
    """Each row without its `reject` share that lies farthest from the row's median."""
    length = matrix.shape[1]
    rejected = int(reject * length)
    if not rejected:
        return matrix
    distance = np.abs(matrix - _median(matrix))
    kept = np.argpartition(distance, length - rejected - 1, axis=1)[:, : length - rejected]
    return np.take_along_axis(matrix, kept, axis=1)


def _median(matrix: Floats) -> Floats:
    """The median of each row, [rows, 1]. Unlike np.median, it doesn't import masked arrays, which would take
    a MiB of every training."""
    half, odd = divmod(matrix.shape[1], 2)
    below = half if odd else half - 1
    ordered = np.partition(matrix, (below, half), axis=1)
    result: Floats = (ordered[:, [below]] + ordered[:, [half]]) / 2
    return result


def _std(matrix: Floats, mean: Floats) -> Floats:
    """Population standard deviation; deviations are scaled by their largest so that no square
    overflows or underflows."""
    deviation = np.abs(matrix - mean[:, None])
    largest = deviation.max(axis=1)
    unit = np.where(largest > 0, largest, 1.0)
    result: Floats = unit * np.sqrt(np.square(deviation / unit[:, None]).mean(axis=1))
    return np.where(largest > 0, result, 0.0)


def _count(matrix: Floats, low: Floats, high: Floats, bins: int) -> NDArray[np.int64]:
    width = high - low
    # A subnormal width has no finite reciprocal: divide, don't multiply.
    position = (matrix - low[:, None]) / np.where(width > 0, width, 1.0)[:, None]
    which = np.minimum((position * bins).astype(np.int64), bins - 1)
    which += (np.arange(len(matrix)) * bins)[:, None]
    return np.bincount(which.ravel(), minlength=len(matrix) * bins).reshape(len(matrix), bins)


def _whole(rows: NDArray[np.void], index: int, host: Sequence[NDArray[np.float32]], slot: Slot) -> None:
    """Overwrite sample statistics of row `index` by what is known of the whole tensor."""
    row = rows[index]
    row["min"], row["max"], counts = _range(host, slot)
    row["nan"], row["posinf"], row["neginf"] = counts
    if slot.moments >= 0 and not any(counts):
        mean, deviation, nonzero = _read(host[slot.device], slot.moments, 3, slot.wide_moments)
        row["mean"], row["std"] = mean, deviation / np.sqrt(slot.size)
        row["zeros"] = 1.0 - nonzero / slot.size


def _several(
    rows: NDArray[np.void],
    index: int,
    host: Sequence[NDArray[np.float32]],
    slots: Sequence[Slot],
    bins: int,
    reject: float,
) -> None:
    """Row `index` anew from several tensors: their samples together, extremes of all, counts added up."""
    rows[index] = np.zeros(1, rows.dtype)[0]
    values = np.concatenate([slot_values(host, slot) for slot in slots])
    _fill(rows, np.array([index]), values[None, :], bins, reject)
    row = rows[index]
    row["size"] = sum(slot.size for slot in slots)
    if any(slot.extremes >= 0 for slot in slots):
        lows, highs, counts = zip(*(_range(host, slot) for slot in slots), strict=True)
        row["min"], row["max"] = np.fmin.reduce(lows), np.fmax.reduce(highs)
        row["nan"], row["posinf"], row["neginf"] = np.sum(counts, axis=0)
        exact = all(slot.moments >= 0 or slot.samples == slot.size for slot in slots)
        if exact and not np.any(counts):
            sizes = np.array([slot.size for slot in slots], np.float64)
            means, deviations, nonzeros = np.array([_moments(host, slot) for slot in slots]).T
            row["mean"] = mean = np.average(means, weights=sizes)
            square = np.square(deviations) + sizes * np.square(means - mean)
            row["std"] = np.sqrt(square.sum() / sizes.sum())
            row["zeros"] = 1.0 - nonzeros.sum() / sizes.sum()


def _moments(host: Sequence[NDArray[np.float32]], slot: Slot) -> list[float]:
    """Mean, 2-norm of the deviations and number of non-zeros of a whole tensor, all of it sampled or these
    known."""
    if slot.moments >= 0:
        return _read(host[slot.device], slot.moments, 3, slot.wide_moments)
    values = slot_values(host, slot)
    mean = float(values.mean())
    return [mean, float(np.linalg.norm(values - mean)), float(np.count_nonzero(values))]


def _range(host: Sequence[NDArray[np.float32]], slot: Slot) -> tuple[float, float, tuple[int, int, int]]:
    """The extremes of the finite values of a whole tensor (NaN if it has none), and its counts of NaN,
    +Inf, -Inf."""
    if slot.extremes < 0:
        values = slot_values(host, slot)
        finite = values[np.isfinite(values)]
        found = int(np.isnan(values).sum()), int(np.isposinf(values).sum()), int(np.isneginf(values).sum())
        return (float(finite.min()), float(finite.max()), found) if finite.size else (np.nan, np.nan, found)
    if any(slot.nonfinite):
        return *slot.finite, slot.nonfinite
    packed = host[slot.device]
    low, high = _read(packed, slot.extremes, 2, slot.wide)
    if slot.counts < 0:
        return low, high, slot.nonfinite
    *seen, finite_low, finite_high = _read(packed, slot.counts, 5, slot.wide)
    counts = (int(seen[0]), int(seen[1]), int(seen[2]))
    if any(counts):
        low, high = (finite_low, finite_high) if finite_low <= finite_high else (np.nan, np.nan)
    return low, high, counts


def _add_zeros(
    rows: NDArray[np.void],
    index: int,
    host: Sequence[NDArray[np.float32]],
    slots: Sequence[Slot],
    reject: float,
) -> None:
    """Add to row `index`, made of the stored values of a sparse tensor, the zeros that it does not store.

    In the bins they count in proportion to the stored values that were sampled, as if the sample were one
    of the whole tensor; none of the values is rejected in their favour. The bins are stretched to hold 0.
    """
    row = rows[index]
    stored, zeros = sum(slot.size for slot in slots), sum(slot.implicit_zeros for slot in slots)
    sampled = sum(slot.samples for slot in slots)
    finite = stored - int(row["nan"]) - int(row["posinf"]) - int(row["neginf"])
    share = finite / (finite + zeros)
    if finite <= 0:
        share = 0.0
        for name in ("mean", "std", "zeros", "min", "max"):
            row[name] = 0.0
    mean = share * row["mean"]
    row["std"] = np.hypot(np.sqrt(share) * row["std"], np.sqrt(share * (1 - share)) * row["mean"])
    row["mean"] = mean
    row["zeros"] = share * row["zeros"] + (1 - share)
    row["min"], row["max"] = min(row["min"], 0.0), max(row["max"], 0.0)
    values = np.concatenate([slot_values(host, slot) for slot in slots])
    values = _keep(values[None, np.isfinite(values)], reject) if sampled else values[None]
    low, high = min(values.min(initial=0.0), 0.0), max(values.max(initial=0.0), 0.0)
    looked_at = zeros if not sampled else round(zeros * (sampled / stored))
    bins = row["counts"].shape[0]
    ends = np.array([low]), np.array([high])
    row["counts"] = _count(values, *ends, bins)[0] + looked_at * _count(np.zeros((1, 1)), *ends, bins)[0]
    row["low"], row["high"] = low, high
    row["size"] += zeros
    row["sampled"] = min(sampled + looked_at, np.iinfo(rows.dtype["sampled"]).max)


def _read(packed: NDArray[np.float32], offset: int, count: int, wide: int) -> list[float]:
    part = packed[offset : offset + (2 * count if wide else count)]
    values: list[float] = (part.view(np.float64) if wide else part).astype(np.float64).tolist()
    return values
