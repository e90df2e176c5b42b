"""Keyword options of `watch` in, one validated frozen `WatchOptions` out."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import nn

from .arguments import as_int, is_whole

LOG = ("io", "io_grad", "params", "params_grad")
COMPILED = ("eager", "skip")
RANKS = ("first", "all")

Pattern = str | type | Callable[[str, nn.Module], bool]
Patterns = Pattern | Iterable[Pattern] | None
TimeLog = tuple[str, Callable[[nn.Module, int], float]]


@dataclass(frozen=True)
class WatchOptions:
    """What to record and when, see `ExplorerWriter.watch` for the meaning of each."""

    log: tuple[str, ...]
    log_freq: int
    max_records: int | None
    bins: int
    sample_n: int | None
    reject_outlier_proportion: float
    include: tuple[Pattern, ...]
    exclude: tuple[Pattern, ...]
    optimizer: torch.optim.Optimizer | None
    time_log: TimeLog | None
    eval_freq: int | None
    exact: bool
    root_input_grad: bool
    compiled: str
    start_step: int
    ranks: str

    def excluded(self, path: str, module: nn.Module) -> bool:
        """Whether a module is to be left out: not named by `include` (if there is any), or named by
        `exclude`. A pattern matches a path as a whole (`*` crosses dots); a class its instances."""
        if any(_matches(pattern, path, module) for pattern in self.exclude):
            return True
        return bool(self.include) and not any(_matches(pattern, path, module) for pattern in self.include)

    @property
    def selective(self) -> bool:
        return bool(self.include or self.exclude)

    def summary(self) -> dict[str, Any]:
        """The options that the tab shows, as plain JSON values."""
        return {
            "log": list(self.log),
            "log_freq": self.log_freq,
            "max_records": self.max_records,
            "sample_n": self.sample_n,
            "reject_outlier_proportion": self.reject_outlier_proportion,
            "exact": self.exact,
            "eval_freq": self.eval_freq,
            "root_input_grad": self.root_input_grad,
            "ranks": self.ranks,
            "unit": self.time_log[0] if self.time_log else "",
        }


def validated(
    *,
    log: Iterable[str] = LOG,
    log_freq: int = 100,
    max_records: int | None = None,
    bins: int = 30,
    sample_n: int | None = 100,
    reject_outlier_proportion: float = 0.1,
    include: Patterns = None,
    exclude: Patterns = None,
    optimizer: torch.optim.Optimizer | None = None,
    time_log: TimeLog | None = None,
    eval_freq: int | None = None,
    exact: bool = False,
    root_input_grad: bool = False,
    compiled: str = "eager",
    start_step: int = 0,
    ranks: str = "first",
) -> WatchOptions:
    """The options, or a ValueError that names the argument and its value."""
    log_freq, max_records, bins, sample_n = map(as_int, (log_freq, max_records, bins, sample_n))
    eval_freq, start_step = as_int(eval_freq), as_int(start_step)
    kinds = (log,) if isinstance(log, str) else tuple(log) if isinstance(log, Iterable) else ()
    unknown = [kind for kind in kinds if kind not in LOG]
    _check("log", log, not unknown and bool(kinds), f"some of {', '.join(LOG)}")
    from_one = "a whole number from 1 up, or None"
    _check("log_freq", log_freq, is_whole(log_freq, 1), "a whole number of steps, at least 1")
    _check("max_records", max_records, max_records is None or is_whole(max_records, 1), from_one)
    _check("bins", bins, is_whole(bins, 1, 1024), "a whole number from 1 to 1024")
    _check(
        "sample_n",
        sample_n,
        sample_n is None or is_whole(sample_n, 1),
        "a whole number from 1 up, or None for all",
    )
    _check(
        "reject_outlier_proportion",
        reject_outlier_proportion,
        isinstance(reject_outlier_proportion, Real) and 0 <= reject_outlier_proportion < 1,
        "a share from 0 (keep all) up to, not including, 1",
    )
    _check(
        "optimizer",
        optimizer,
        optimizer is None or isinstance(optimizer, torch.optim.Optimizer),
        "a torch.optim.Optimizer, or None to find it",
    )
    _check(
        "time_log",
        time_log,
        time_log is None or _is_time_log(time_log),
        'a pair like ("epoch", function(model, step))',
    )
    _check(
        "eval_freq",
        eval_freq,
        eval_freq is None or is_whole(eval_freq, 1),
        "a whole number from 1 up, or None",
    )
    _check("exact", exact, isinstance(exact, bool), "True or False")
    _check("root_input_grad", root_input_grad, isinstance(root_input_grad, bool), "True or False")
    _check("compiled", compiled, compiled in COMPILED, " or ".join(map(repr, COMPILED)))
    _check("start_step", start_step, is_whole(start_step, 0), "a whole number of steps, at least 0")
    _check("ranks", ranks, ranks in RANKS, " or ".join(map(repr, RANKS)))
    return WatchOptions(
        tuple(kind for kind in LOG if kind in kinds),
        log_freq,
        max_records,
        bins,
        sample_n,
        float(reject_outlier_proportion),
        _patterns("include", include),
        _patterns("exclude", exclude),
        optimizer,
        time_log,
        eval_freq,
        exact,
        root_input_grad,
        compiled,
        start_step,
        ranks,
    )


def _check(name: str, value: object, good: bool, wanted: str) -> None:
    if not good:
        raise ValueError(f"watch: {name}={value!r} is not {wanted}")


def _is_time_log(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and callable(value[1])


def _patterns(name: str, value: Patterns) -> tuple[Pattern, ...]:
    if value is None:
        return ()
    one = isinstance(value, (str, type)) or not isinstance(value, Iterable)
    patterns: tuple[Any, ...] = (value,) if one else tuple(value)  # type: ignore[arg-type]
    for pattern in patterns:
        good = isinstance(pattern, str) or (isinstance(pattern, type) and issubclass(pattern, nn.Module))
        good = good or (callable(pattern) and not isinstance(pattern, type))
        _check(
            name, pattern, good, "a glob on module paths, a module class, or a function(path, module) -> bool"
        )
    return patterns


def _matches(pattern: Pattern, path: str, module: nn.Module) -> bool:
    if isinstance(pattern, str):
        return fnmatch.fnmatchcase(path, pattern)
    if isinstance(pattern, type):
        return isinstance(module, pattern)
    return bool(pattern(path, module))
