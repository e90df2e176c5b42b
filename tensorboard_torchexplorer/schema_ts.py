"""The schema package in, TypeScript declarations out.

    python -m tensorboard_torchexplorer.schema_ts            # writes frontend/src/schema.ts
    python -m tensorboard_torchexplorer.schema_ts --check    # exit code 1 if that file is out of date

Values and types are read from the imported modules, so they can't disagree with them; the source text
gives only their order and the words around them (docstrings, comments at the end of a line). A
dataclass becomes an interface, a NamedTuple a labelled tuple, a `Literal` alias a union, a class of
plain constants (and every constant) an `as const` value. Functions are left out.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import io
import json
import sys
import tokenize
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tensorboard_torchexplorer import schema
from tensorboard_torchexplorer.schema import answers, graph, rows

PARTS = (graph, rows, answers)

TARGET = Path(__file__).parent.parent / "frontend" / "src" / "schema.ts"

HEADER = """\
// Generated from tensorboard_torchexplorer/schema by `python -m tensorboard_torchexplorer.schema_ts`.
// Don't edit: tests/test_schema.py compares this file with what the generator makes.
"""

_PRIMITIVES: dict[Any, str] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Any: "unknown",
}


def generate(doc: str = schema.__doc__ or "", parts: Iterable[types.ModuleType] = PARTS) -> str:
    """The TypeScript text for `parts`: every public constant, alias and class, in source order, below `doc`.

    Raises TypeError where an annotation or a value has no translation, naming it.
    """
    blocks = [HEADER.rstrip("\n"), _doc(inspect.cleandoc(doc))]
    blocks += chain.from_iterable(map(_declarations, parts))
    return "\n\n".join(blocks) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the file; the exit code."""
    parser = argparse.ArgumentParser(prog="schema_ts", description="Generate frontend/src/schema.ts.")
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 if they differ")
    check: bool = parser.parse_args(arguments).check
    text = generate()
    if not check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET} is out of date: run python -m tensorboard_torchexplorer.schema_ts", file=sys.stderr)
    return 1


# --- Statements ------------------------------------------------------------------------------------


def _declarations(module: types.ModuleType) -> Iterator[str]:
    source = inspect.getsource(module)
    statements = ast.parse(source).body
    comments = _end_comments(source)
    for statement, following in zip(statements, [*statements[1:], None], strict=True):
        if isinstance(statement, ast.ClassDef):
            yield _class(module, getattr(module, statement.name))
        elif (name := _assigned_name(statement)) is not None:
            doc = _doc(_string_of(following))
            declaration = _assignment(module, name, statement, comments)
            yield f"{doc}\n{declaration}" if doc else declaration


def _assigned_name(statement: ast.stmt) -> str | None:
    """The public name that a module-level statement binds, if it is a plain assignment."""
    if isinstance(statement, ast.AnnAssign):
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    else:
        return None
    return target.id if isinstance(target, ast.Name) and not target.id.startswith("_") else None


def _assignment(module: types.ModuleType, name: str, statement: ast.stmt, comments: dict[int, str]) -> str:
    value = getattr(module, name)
    if typing.get_origin(value) is typing.Literal:
        return f"export type {name} = {' | '.join(_literal(item) for item in typing.get_args(value))}"
    if not isinstance(value, tuple):
        return f"export const {name} = {_literal(value)}"
    written = getattr(statement, "value", None)
    lines = [element.end_lineno for element in written.elts] if isinstance(written, ast.Tuple) else []
    items = []
    for position, item in enumerate(value):
        line = lines[position] if position < len(lines) else None
        comment = comments.get(line or -1)
        items.append(f"  {_literal(item)},{f' // {comment}' if comment else ''}")
    return "\n".join([f"export const {name} = [", *items, "] as const"])


def _class(module: types.ModuleType, cls: type) -> str:
    doc = _doc(inspect.cleandoc(cls.__doc__ or ""))
    if dataclasses.is_dataclass(cls):
        hints = typing.get_type_hints(cls, vars(module))
        rows = [
            f"  readonly {field.name}: {_type(module, hints[field.name])}"
            for field in dataclasses.fields(cls)
        ]
        return "\n".join([doc, f"export interface {cls.__name__} {{", *rows, "}"])
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints = typing.get_type_hints(cls, vars(module))
        labels = ", ".join(f"{name}: {_type(module, hints[name])}" for name in cls._fields)
        return f"{doc}\nexport type {cls.__name__} = readonly [{labels}]"
    constants = {name: value for name, value in vars(cls).items() if not name.startswith("_")}
    rows = [f"  {name}: {_literal(value)}," for name, value in constants.items()]
    return "\n".join([doc, f"export const {cls.__name__} = {{", *rows, "} as const"])


# --- Types and values ------------------------------------------------------------------------------


def _type(module: types.ModuleType, hint: Any) -> str:
    """The TypeScript type of a resolved annotation; aliases and classes of the module keep their names."""
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    for name, value in vars(module).items():
        if value is hint and (inspect.isclass(hint) or typing.get_origin(hint) is typing.Literal):
            return name
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " | ".join(_type(module, argument) for argument in arguments)
    if origin in (list, Sequence):
        item = _type(module, arguments[0])
        return f"readonly ({item})[]" if " " in item else f"readonly {item}[]"
    if origin is dict:
        return f"Readonly<Record<{_type(module, arguments[0])}, {_type(module, arguments[1])}>>"
    raise TypeError(f"no TypeScript type for the annotation {hint!r}")


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return json.dumps(value, allow_nan=False)
    if isinstance(value, str):
        inner = json.dumps(value, ensure_ascii=False)
        return inner if "'" in inner else "'" + inner[1:-1].replace('\\"', '"') + "'"
    if isinstance(value, tuple):
        return f"[{', '.join(_literal(item) for item in value)}]"
    raise TypeError(f"no TypeScript literal for {value!r}")


# --- Words -----------------------------------------------------------------------------------------


def _string_of(statement: ast.stmt | None) -> str:
    """The text of a bare string statement, which documents the constant before it; else empty."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return inspect.cleandoc(value) if isinstance(value, str) else ""
    return ""


def _end_comments(source: str) -> dict[int, str]:
    """Line number -> the comment that ends that line (lines that are only a comment left out)."""
    return dict(_comment_tokens(source))


def _comment_tokens(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
            yield token.start[0], token.string.lstrip("# ")


def _doc(text: str) -> str:
    lines = text.strip().replace("*/", "* /").split("\n")
    if lines == [""]:
        return ""
    return "\n".join(["/**", *(f" * {line}".rstrip() for line in lines), " */"])


if __name__ == "__main__":
    raise SystemExit(main())
