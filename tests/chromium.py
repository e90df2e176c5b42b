"""A page in a headless Chromium, for tests that need no more than a look at it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest

BINARY = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

needs_chromium = pytest.mark.skipif(BINARY is None, reason="there is no Chromium")


@dataclass
class Look:
    """What became of a page: its elements as text, and what it wrote to the console."""

    dom: str
    console: list[str]


def look_at(url: str, profile: os.PathLike[str], milliseconds: int = 15_000) -> Look:
    """The page after so much of its own time; `profile` is a directory for the browser."""
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1500,920"]
    switches += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    run = subprocess.run(
        [
            str(BINARY),
            *switches,
            f"--user-data-dir={os.fspath(profile)}",
            "--enable-logging=stderr",
            f"--virtual-time-budget={milliseconds}",
            "--dump-dom",
            url,
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    return Look(run.stdout, re.findall(r"CONSOLE[^\]]*\] (.*)", run.stderr))
