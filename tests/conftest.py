"""Golden files: `pytest --update-golden` writes them anew, and their diff is the review."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ anew instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, Any], None]:
    """`golden(name, value)` asserts that a JSON value is the one in tests/golden/<name>.json."""

    def check(name: str, value: Any) -> None:
        path = GOLDEN / f"{name}.json"
        text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path.name} does not exist: run pytest --update-golden and read what it wrote"
        assert json.loads(text) == json.loads(path.read_text(encoding="utf-8"))

    return check
