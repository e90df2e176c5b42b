"""Random valid inputs for property tests of the records."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tensorboard_torchexplorer.rows import row_dtype
from tensorboard_torchexplorer.schema import ROW_FIELDS, STATUS

SINGLE = st.floats(width=32)
DOUBLE = st.floats()
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def rows(draw: st.DrawFn, number: st.SearchStrategy[float] = SINGLE) -> np.ndarray:
    """Rows of any shape that sampling could make: floats as given, low <= high, any whole numbers."""
    bins = draw(st.integers(1, 40))
    count = draw(st.integers(0, 90))
    table = np.zeros(count, row_dtype(bins))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    pool = np.array(draw(st.lists(number, min_size=1, max_size=20)))
    largest = draw(st.sampled_from([1, 255, 256, 65535, 65536, 2**32 - 1]))
    blank = draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))
    for name, code in ROW_FIELDS:
        if code[0] == "f":
            table[name] = random.choice(pool, count)
        elif name != "status":
            table[name] = random.integers(0, largest, count, endpoint=True)
    table["size"] *= np.uint64(draw(st.sampled_from([1, 2**31])))
    low, high = np.nan_to_num(table["low"]), np.nan_to_num(table["high"])
    table["low"], table["high"] = np.minimum(low, high), np.maximum(low, high)
    table["counts"] = random.integers(0, largest, (count, bins), endpoint=True)
    blanks = random.random(count) < blank
    table[blanks] = np.zeros((), table.dtype)
    table["status"][blanks] = random.integers(1, len(STATUS), blanks.sum())
    return table
