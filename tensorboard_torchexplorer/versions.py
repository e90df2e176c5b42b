"""What must be installed, for a clear text instead of a strange error far from its cause.

Where pip installs, it sees to it (setup.py names the same versions, a test keeps them equal). It is not asked
where a package is pinned by force, or comes with an image.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

NEEDED = {"torch": "2.6", "tensorboard": "2.17"}
"""The oldest versions that `make matrix` tests."""


def check() -> None:
    """Raise ImportError where a package is older than `NEEDED`. One that says no version passes."""
    for package, oldest in NEEDED.items():
        try:
            found = version(package)
        except PackageNotFoundError:  # under another name, as nightly builds have
            continue
        if len(_numbers(found)) > 0 and _numbers(found) < _numbers(oldest):
            raise ImportError(
                f"tensorboard-torchexplorer needs {package} {oldest} or newer, and this is {found}: "
                f'pip install "{package}>={oldest}"'
            )


def _numbers(text: str) -> tuple[int, ...]:
    """The release that a version begins with: (2, 6, 1) for 2.6.1+cu121."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()
