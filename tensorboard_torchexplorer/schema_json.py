"""Dataclasses of `schema` to JSON text, and JSON text from anywhere back to checked dataclasses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tensorboard_torchexplorer import schema

Parse = Callable[[Any], Any]
Parsed = TypeVar("Parsed")

_LARGE = 10_000  # bytes of JSON, from which on columns are worth their fixed cost

LARGEST = 1 << 63
"""Whole numbers in stored JSON are smaller in size than this."""


class ShapeError(ValueError):
    """JSON that does not have the form of the dataclass it should be."""


class NewerVersionError(ValueError):
    """JSON of a later version of the schema."""


def dumps(value: Any) -> bytes:
    """A dataclass of `schema`, or a list or dict of such, as compact UTF-8 JSON.

    NaN and infinities, which JSON does not have, become null; lone surrogates stay escaped."""
    try:
        text = json.dumps(value, separators=(",", ":"), default=_fields, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), separators=(",", ":"), default=_fields, allow_nan=False)
    return text.encode()


def loads(kind: type[Parsed], text: bytes) -> Parsed:
    """The dataclass `kind` (with a field `version`) from JSON. Raises NewerVersionError or ShapeError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"{kind.__name__}: no JSON: {error}") from None
    version = value.get("version") if isinstance(value, dict) else None
    if isinstance(version, int) and version > schema.VERSION:
        raise NewerVersionError(newer_version(version))
    whole: Any = kind
    try:
        together = _together(whole)([value]) if len(text) > _LARGE else None
        parsed: Parsed = together[0] if together else _parser(whole)(value)
    except ShapeError as error:
        raise ShapeError(f"{kind.__name__}{error}") from None
    return parsed


def newer_version(version: int) -> str:
    """What to tell a user whose records were written by a later version."""
    return (
        f"written by a newer version of tensorboard-torchexplorer (format {version}, this one reads up to "
        f"{schema.VERSION}): update the package where TensorBoard runs"
    )


def _fields(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return vars(value)
    return str(value)


def _finite(value: Any) -> Any:
    """A copy of `value` with None for NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _finite(vars(value))
    return value


# --- All values of one type together: a graph has tens of thousands of fields, and a column of them is looked
# at several times as fast as each by itself. None stands for anything out of the ordinary. ---

Together = Callable[[list[Any]], "list[Any] | None"]


@cache
def _together(kind: Any) -> Together:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is int:
        return lambda values: values if _are(values, int) and _are_small(values) else None
    if kind in (str, bool):
        return lambda values: values if _are(values, kind) else None
    if origin is Literal:
        allowed = set(inner)
        return lambda values: values if _are(values, str) and set(values) <= allowed else None
    if origin in (Union, UnionType) and NoneType in inner:
        (item,) = (item for item in inner if item is not NoneType)
        return _optionals_together(_together(item))
    if origin is list:
        return _lists_together(_together(inner[0]))
    if isinstance(kind, type) and issubclass(kind, tuple):
        parts = [_together(hint) for hint in get_type_hints(kind).values()]
        return lambda values: _tuples_together(values, kind, parts)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        columns = {field.name: _together(hints[field.name]) for field in fields(kind)}
        return lambda values: _dataclasses_together(values, kind, columns)
    return _each(_parser(kind))


def _are(values: list[Any], kind: type) -> bool:
    return set(map(type, values)) <= {kind}


def _are_small(values: list[int]) -> bool:
    return not values or (min(values) > -LARGEST and max(values) < LARGEST)


def _each(parse: Parse) -> Together:
    def together(values: list[Any]) -> list[Any] | None:
        try:
            return [parse(value) for value in values]
        except ShapeError:
            return None

    return together


def _lists_together(item: Together) -> Together:
    def together(values: list[Any]) -> list[Any] | None:
        if not _are(values, list):
            return None
        found = item(list(chain.from_iterable(values)))
        if found is None:
            return None
        rest = iter(found)
        return [list(islice(rest, len(value))) for value in values]

    return together


def _optionals_together(item: Together) -> Together:
    def together(values: list[Any]) -> list[Any] | None:
        present = [value for value in values if value is not None]
        found = item(present)
        if found is None or len(present) == len(values):
            return found
        rest = iter(found)
        return [None if value is None else next(rest) for value in values]

    return together


def _tuples_together(values: list[Any], kind: Any, parts: list[Together]) -> list[Any] | None:
    if not _are(values, list) or not set(map(len, values)) <= {len(parts)}:
        return None
    return _built(kind, values, dict(enumerate(parts)))


def _dataclasses_together(values: list[Any], kind: Any, columns: dict[str, Together]) -> list[Any] | None:
    # Fields in another order than ours are right as well, but are left to the slow way.
    if not _are(values, dict) or not set(map(tuple, values)) <= {tuple(columns)}:
        return None
    return _built(kind, values, columns)


def _built(kind: Any, values: list[Any], parts: Mapping[Any, Together]) -> list[Any] | None:
    """Objects of a kind, whose parts lie in `values` at the keys of `parts`."""
    parsed = []
    for key, together in parts.items():
        found = together(list(map(itemgetter(key), values)))
        if found is None:
            return None
        parsed.append(found)
    return list(map(kind, *parsed))


# --- One by one, which finds the place that is wrong: a path is put together as the error passes up. ---


@cache
def _parser(kind: Any) -> Parse:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if kind is int:
        return _whole
    if kind is float:
        return _number
    if kind in (str, bool, NoneType):
        return _exactly(kind)
    if origin is Literal:
        return _one_of(inner)
    if origin in (Union, UnionType):
        return _either([_parser(item) for item in inner if item is not NoneType], NoneType in inner)
    if origin is list:
        return _list_of(_parser(inner[0]))
    if origin is dict:
        return _dict_of(_parser(inner[1]))
    if isinstance(kind, type) and issubclass(kind, tuple):
        hints = get_type_hints(kind)
        return _tuple_of(kind, [_parser(hint) for hint in hints.values()])
    if is_dataclass(kind):
        return _dataclass_of(kind)
    raise TypeError(f"no parser for {kind!r}")


def _whole(value: Any) -> int:
    if type(value) is not int or not -LARGEST < value < LARGEST:
        raise ShapeError(f": expected a whole number, got {_short(value)}")
    return value


def _number(value: Any) -> float:
    if type(value) is int and -LARGEST < value < LARGEST:
        return float(value)
    if type(value) is not float:
        raise ShapeError(f": expected a number, got {_short(value)}")
    return value


def _exactly(kind: type) -> Parse:
    def parse(value: Any) -> Any:
        if type(value) is not kind:
            raise ShapeError(f": expected {kind.__name__}, got {_short(value)}")
        return value

    return parse


def _one_of(allowed: tuple[Any, ...]) -> Parse:
    def parse(value: Any) -> Any:
        if value not in allowed:
            raise ShapeError(f": expected one of {allowed}, got {_short(value)}")
        return value

    return parse


def _either(parsers: list[Parse], nothing: bool) -> Parse:
    (parser,) = parsers  # the schema has no other unions than `X | None`

    def parse(value: Any) -> Any:
        return None if value is None and nothing else parser(value)

    return parse


def _list_of(item: Parse) -> Parse:
    def parse(value: Any) -> list[Any]:
        if type(value) is not list:
            raise ShapeError(f": expected a list, got {_short(value)}")
        return [_located(f"[{index}]", item, entry) for index, entry in enumerate(value)]

    return parse


def _dict_of(item: Parse) -> Parse:
    def parse(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise ShapeError(f": expected an object, got {_short(value)}")
        return {key: _located(f"[{key!r}]", item, entry) for key, entry in value.items()}

    return parse


def _tuple_of(kind: type, items: list[Parse]) -> Parse:
    def parse(value: Any) -> Any:
        if type(value) is not list or len(value) != len(items):
            raise ShapeError(f": expected {len(items)} items, got {_short(value)}")
        return kind(*(item(entry) for item, entry in zip(items, value, strict=True)))

    return parse


def _dataclass_of(kind: Any) -> Parse:
    hints = get_type_hints(kind)
    parsers = {field.name: _parser(hints[field.name]) for field in fields(kind)}
    required = {
        field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
    }

    def parse(value: Any) -> Any:
        if type(value) is not dict:
            raise ShapeError(f": expected an object, got {_short(value)}")
        if value.keys() - parsers.keys() or required - value.keys():
            odd = sorted(value.keys() - parsers.keys()) or sorted(required - value.keys())
            raise ShapeError(
                f": {kind.__name__} has fields {sorted(parsers)}, wrong or missing: {_short(odd)}"
            )
        return kind(**{name: _located(f".{name}", parsers[name], entry) for name, entry in value.items()})

    return parse


def _located(place: str, parse: Parse, value: Any) -> Any:
    try:
        return parse(value)
    except ShapeError as error:
        raise ShapeError(f"{place}{error}") from None


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, (list, dict)) or len(value) < 9 else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."
