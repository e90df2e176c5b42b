"""Where the samples of each tensor lie in the packed buffers of one record: a table of plain numbers.

A logged step samples thousands of tensors. One object for each would set off Python's cycle collector dozens
of times per step, which cost more than the sampling; rows of an `array` are invisible to it.
"""

from __future__ import annotations

import math
from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Taken = int
"""The number of a slot; below 0 there is none, and it is minus the `Status` that says why."""


class Slot(NamedTuple):
    """Where the values of one tensor lie in the packed buffer, in units of float32.

    `samples` values from `offset` (float64 pairs if `wide`); `size` elements of the tensor in all; `extremes`
    the offset of [min, max] of the whole tensor, -1 where the values are all there is; `counts` that of
    [NaN, +Inf, -Inf, finite min, finite max] where the device holds them, else -1; `moments` that of
    [mean, 2-norm of the deviations, number of non-zeros] over the whole tensor (float64 pairs if
    `wide_moments`), -1 if not exact; `start` the first index of the walk; `nan`, `posinf` and `neginf` the
    exact counts, known here only where they are not zero, with `finite` the extremes of the finite values
    then; `implicit_zeros` the zeros that a sparse tensor has beside the `size` elements that it stores;
    `device` the number of the buffer.
    """

    offset: int
    samples: int
    size: int
    wide: int
    extremes: int = -1
    counts: int = -1
    moments: int = -1
    wide_moments: int = 0
    start: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    implicit_zeros: int = 0
    device: int = 0
    finite: tuple[float, float] = (math.nan, math.nan)

    @property
    def nonfinite(self) -> tuple[int, int, int]:
        """Counts of NaN, +Inf, -Inf."""
        return self.nan, self.posinf, self.neginf


COLUMNS = {name: position for position, name in enumerate(Slot._fields[:-1])}
"""The columns of `Slots.table`: all fields of a slot but `finite`."""

_WIDTH = len(COLUMNS)


class Slots:
    """The slots of one record, by number."""

    __slots__ = ("_finite", "_numbers", "count")

    def __init__(self) -> None:
        self.count = 0
        self._numbers = array("q")
        self._finite: dict[int, tuple[float, float]] = {}

    def __len__(self) -> int:
        return self.count

    def add(
        self,
        offset: int,
        samples: int,
        size: int,
        wide: int,
        extremes: int = -1,
        counts: int = -1,
        moments: int = -1,
        wide_moments: int = 0,
        start: int = 0,
        nan: int = 0,
        posinf: int = 0,
        neginf: int = 0,
        implicit_zeros: int = 0,
        device: int = 0,
        finite: tuple[float, float] | None = None,
    ) -> Taken:
        """A new slot, see `Slot`; its number."""
        row = (offset, samples, size, wide, extremes, counts, moments, wide_moments, start)
        self._numbers.extend((*row, nan, posinf, neginf, implicit_zeros, device))
        number = self.count
        self.count = number + 1
        if finite is not None:
            self._finite[number] = finite
        return number

    def __getitem__(self, number: int) -> Slot:
        if not 0 <= number < self.count:
            raise IndexError(f"slot {number} of {self.count}")
        numbers = self._numbers[number * _WIDTH : (number + 1) * _WIDTH]
        return Slot._make([*numbers, self._finite.get(number, (math.nan, math.nan))])

    def copy(self) -> Slots:
        """The same slots, to which more may be added."""
        other = Slots()
        other.count, other._numbers, other._finite = self.count, self._numbers[:], dict(self._finite)
        return other

    def change(self, number: int, column: str, value: int) -> None:
        """Write one column of a slot."""
        self._numbers[number * _WIDTH + COLUMNS[column]] = value

    def table(self) -> NDArray[np.int64]:
        """int64 [slots, columns], a copy; see `COLUMNS`."""
        return np.array(self._numbers, np.int64).reshape(-1, _WIDTH)
