"""The contract: what schema_ts makes of the schema, and that the tab's copy is that."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import types
from pathlib import Path

import pytest

from tensorboard_torchexplorer import schema, schema_ts


def module_from(source: str, tmp_path: Path) -> types.ModuleType:
    """A module with `source` in a real file, so that its text can be read back."""
    path = tmp_path / "small_schema.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("small_schema", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def test_the_committed_file_is_what_the_generator_makes():
    assert schema_ts.TARGET.read_text(encoding="utf-8") == schema_ts.generate()


def test_check_fails_on_a_stale_file(tmp_path, monkeypatch, capsys):
    stale = tmp_path / "schema.ts"
    stale.write_text(schema_ts.generate() + "export const EXTRA = 1\n", encoding="utf-8")
    monkeypatch.setattr(schema_ts, "TARGET", stale)

    assert schema_ts.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    assert schema_ts.main([]) == 0
    assert schema_ts.main(["--check"]) == 0


@pytest.mark.parametrize("cls", [value for value in vars(schema).values() if dataclasses.is_dataclass(value)])
def test_every_field_of_every_dataclass_is_declared(cls):
    text = schema_ts.generate()
    body = text.split(f"export interface {cls.__name__} {{")[1].split("}")[0]

    assert [line.split("readonly ")[1].split(":")[0] for line in body.strip().split("\n")] == [
        field.name for field in dataclasses.fields(cls)
    ]


def test_types_are_translated_with_their_names_and_words(tmp_path):
    small = module_from(
        '''\
from __future__ import annotations
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Phase = Literal["train", "eval"]
LIMIT = 3
"""How many."""
REASONS: tuple[str, ...] = (
    "",
    "it isn't there",  # the usual one
)
_HIDDEN = 1


class End(NamedTuple):
    """Two things."""

    phase: Phase
    index: int


@dataclass(frozen=True)
class Row:
    """A row.

    Ends with */ to be safe.
    """

    ends: list[End]
    shape: list[int | None] | None
    options: dict[str, Any]
    done: bool = False


class Codes:
    """Names."""

    OK = 0


def helper() -> None: ...
''',
        tmp_path,
    )

    assert (
        schema_ts.generate("Small.", [small]).split("\n\n", 1)[1]
        == """\
/**
 * Small.
 */

export type Phase = 'train' | 'eval'

/**
 * How many.
 */
export const LIMIT = 3

export const REASONS = [
  '',
  "it isn't there", // the usual one
] as const

/**
 * Two things.
 */
export type End = readonly [phase: Phase, index: number]

/**
 * A row.
 *
 * Ends with * / to be safe.
 */
export interface Row {
  readonly ends: readonly End[]
  readonly shape: readonly (number | null)[] | null
  readonly options: Readonly<Record<string, unknown>>
  readonly done: boolean
}

/**
 * Names.
 */
export const Codes = {
  OK: 0,
} as const
"""
    )


def test_an_annotation_without_translation_is_refused_by_name(tmp_path):
    small = module_from(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Row:\n    '''R.'''\n\n    raw: bytes\n",
        tmp_path,
    )

    with pytest.raises(TypeError, match="no TypeScript type for the annotation <class 'bytes'>"):
        schema_ts.generate("", [small])
