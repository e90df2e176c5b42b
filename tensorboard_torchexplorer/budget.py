"""How often to log in a run whose length nobody knows: a step number in, whether to record it out.

An event file can only be appended to, so old records can't be thinned there. Instead the interval grows with
the run: about `max_records` records at `log_freq`, then half as many each time the number of steps doubles. A
run a thousand times as long holds six times the records, and they still cover it evenly on a log axis.
"""

from __future__ import annotations


def interval(step: int, log_freq: int, max_records: int | None) -> int:
    """Steps from one record to the next, at `step`: `log_freq` times a power of two.

    Depends on nothing but its arguments, so a resumed run goes on as if it had never stopped, and every
    step that a longer interval logs is one that a shorter interval would have logged as well."""
    if max_records is None:
        return log_freq
    doublings = max(0, (step // (log_freq * max_records)).bit_length())
    return log_freq << doublings


def is_due(step: int, log_freq: int, max_records: int | None) -> bool:
    """Whether to record `step`. Step 0 always is."""
    return step % interval(step, log_freq, max_records) == 0
