"""Arguments of public functions in; what is wrong with one, by its name and value, out."""

from __future__ import annotations

import operator
import os
from numbers import Integral
from typing import Any


def is_whole(value: object, least: int, most: int | None = None) -> bool:
    """Whether it is a whole number from `least` to `most` (None: without end), of Python's or numpy's. True
    and False are none."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return False
    return operator.index(value) >= least and (most is None or operator.index(value) <= most)


def as_int(value: Any) -> Any:
    """Whole numbers as Python's own, anything else as it is."""
    return operator.index(value) if is_whole(value, -(2**63)) else value


def require_whole(call: str, name: str, value: object, least: int, most: int | None = None) -> None:
    """Raises ValueError unless `is_whole`."""
    if not is_whole(value, least, most):
        end = "on" if most is None else f"to {most}"
        raise ValueError(f"{call}: {name}={value!r} is not a whole number from {least} {end}")


def path_of(call: str, name: str, value: object) -> str:
    """The path that a text or `os.PathLike` stands for. Raises ValueError for what is none, or empty."""
    try:
        path = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        path = None
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(f"{call}: {name}={value!r} is not a path")
    return path


def require_name(call: str, name: object) -> None:
    """Raises ValueError for what can't be the name of a model; None is left to the caller to find one."""
    if name is None:
        return
    if not isinstance(name, str) or not name:
        raise ValueError(f"{call}: name={name!r} is not a non-empty string")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{call}: name={name!r} is not valid Unicode") from None


def require_writer(call: str, writer: object) -> None:
    """Raises ValueError for what is no SummaryWriter, neither torch's nor that of tensorboardX."""
    if not callable(getattr(writer, "_get_file_writer", None)):
        raise ValueError(f"{call}: writer={writer!r} is not a SummaryWriter")
