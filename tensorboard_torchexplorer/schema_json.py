"""Dataclasses of `schema` to JSON text, and JSON text from anywhere back to checked dataclasses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import chain
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tensorboard_torchexplorer import schema
from tensorboard_torchexplorer.columns import Lists, Table, in_columns, is_record

Parse = Callable[[Any], Any]
Parsed = TypeVar("Parsed")

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


def dumps_in_columns(value: Any, version: int) -> bytes:
    """As `dumps`, but the fields of type Sequence, which may hold ten thousand objects, are written as
    `columns.in_columns` has them, and the version is that of this form. `loads` takes both."""
    hints = get_type_hints(type(value))
    parts = {
        name: in_columns(get_args(hints[name])[0], part) if get_origin(hints[name]) is Sequence else part
        for name, part in vars(value).items()
    }
    return dumps(parts | {"version": version})


def loads(kind: type[Parsed], text: bytes, newest: int = schema.VERSION) -> Parsed:
    """The dataclass `kind` (with a field `version`, at most `newest`) from JSON. Raises NewerVersionError or
    ShapeError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"{kind.__name__}: no JSON: {error}") from None
    version = value.get("version") if isinstance(value, dict) else None
    if isinstance(version, int) and version > newest:
        raise NewerVersionError(newer_version(version, newest))
    whole: Any = kind
    try:
        parsed: Parsed = _parser(whole)(value)
    except ShapeError as error:
        raise ShapeError(f"{kind.__name__}{error}") from None
    return parsed


def newer_version(version: int, newest: int = schema.VERSION) -> str:
    """What to tell a user whose records were written by a later version."""
    return (
        f"written by a newer version of tensorboard-torchexplorer (format {version}, this one reads up to "
        f"{newest}): update the package where TensorBoard runs"
    )


def _fields(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return vars(value)
    return list(value) if isinstance(value, Sequence) else str(value)


def _finite(value: Any) -> Any:
    """A copy of `value` with None for NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _finite(vars(value))
    return value


# --- One by one. The place that is wrong is put together as the error passes up. ---


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
    if origin is Sequence:
        rows = _list_of(_parser(inner[0]))
        return _either_form(rows, _table_of(inner[0])) if is_record(inner[0]) else rows
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
        parsed = []
        try:
            for entry in value:
                parsed.append(item(entry))
        except ShapeError as error:
            raise ShapeError(f"[{len(parsed)}]{error}") from None
        return parsed

    return parse


def _dict_of(item: Parse) -> Parse:
    def parse(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise ShapeError(f": expected an object, got {_short(value)}")
        return _parsed(value, dict.fromkeys(value, item), "[{!r}]")

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
    required = _required(kind)

    def parse(value: Any) -> Any:
        _check_names(value, kind, parsers.keys(), required)
        return kind(**_parsed(value, parsers))

    return parse


def _required(kind: Any) -> set[str]:
    if not is_dataclass(kind):
        return set(kind._fields)
    return {
        field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
    }


def _check_names(value: Any, kind: Any, known: Set[str], required: Set[str]) -> None:
    if type(value) is not dict:
        raise ShapeError(f": expected an object, got {_short(value)}")
    odd = sorted(value.keys() - known) or sorted(required - value.keys())
    if odd:
        raise ShapeError(f": {kind.__name__} has fields {sorted(known)}, wrong or missing: {_short(odd)}")


# --- In columns, as `dumps_in_columns` writes them. ---


def _either_form(rows: Parse, columns: Parse) -> Parse:
    return lambda value: columns(value) if type(value) is dict else rows(value)


@cache
def _table_of(kind: Any) -> Parse:
    parsers = {name: _column_of(hint) for name, hint in get_type_hints(kind).items()}
    required = _required(kind)

    def parse(value: Any) -> Any:
        _check_names(value, kind, parsers.keys(), required)
        columns = _parsed(value, parsers)
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ShapeError(f": columns of different lengths {lengths}")
        return Table(kind, columns)

    return parse


def _column_of(kind: Any) -> Parse:
    if is_record(kind):
        return _table_of(kind)
    if get_origin(kind) is list and is_record(get_args(kind)[0]):
        return _lists_of(_table_of(get_args(kind)[0]))
    all_plain, one_by_one = _all_plain(kind), _list_of(_parser(kind))
    return lambda value: value if type(value) is list and all_plain(value) else one_by_one(value)


def _lists_of(table: Parse) -> Parse:
    parsers = {"counts": _column_of(int), "items": table}

    def parse(value: Any) -> Any:
        if type(value) is not dict or value.keys() != parsers.keys():
            raise ShapeError(f": expected counts and items, got {_short(value)}")
        parsed = _parsed(value, parsers)
        counts, items = parsed["counts"], parsed["items"]
        if min(counts, default=0) < 0 or sum(counts) != len(items):
            raise ShapeError(f": counts of {sum(counts)} items, of which there are {len(items)}")
        return Lists(counts, items)

    return parse


Check = Callable[[list[Any]], bool]


@cache
def _all_plain(kind: Any) -> Check:
    """Whether all of many values are of a type, several times as fast as parsing each. False as well where
    the type is not a plain one."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is int:
        return lambda values: _are(values, int) and _are_small(values)
    if kind in (str, bool):
        return lambda values: _are(values, kind)
    if origin is Literal:
        return lambda values: _are(values, str) and set(values) <= set(inner)
    if origin in (Union, UnionType) and NoneType in inner:
        (present,) = (_all_plain(item) for item in inner if item is not NoneType)
        return lambda values: present([value for value in values if value is not None])
    if origin is list:
        items = _all_plain(inner[0])
        return lambda values: _are(values, list) and items(list(chain.from_iterable(values)))
    return lambda values: False


def _are(values: list[Any], kind: type) -> bool:
    return set(map(type, values)) <= {kind}


def _are_small(values: list[int]) -> bool:
    return not values or (min(values) > -LARGEST and max(values) < LARGEST)


def _parsed(value: dict[str, Any], parsers: Mapping[str, Parse], place: str = ".{}") -> dict[str, Any]:
    """The entries of an object, each parsed by the parser of its name; an error says which it is about."""
    parsed = {}
    try:
        for name, entry in value.items():
            parsed[name] = parsers[name](entry)
    except ShapeError as error:
        raise ShapeError(f"{place.format(name)}{error}") from None
    return parsed


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, (list, dict)) or len(value) < 9 else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."
