"""Errors of our own hooks in, one log line and one entry of the tab per place out."""

from __future__ import annotations

import logging
from contextlib import suppress

from .schema import Fault

_LOG = logging.getLogger("tensorboard_torchexplorer")
_MOST = 100


class Faults:
    """Collects errors while training goes on. A place of a module is reported once.

    Uses a logger and not `warnings`: a filter that turns warnings into errors would stop the training.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Fault] = {}

    def report(self, path: str, place: str, error: Exception) -> None:
        """Note that recording `place` of the module `path` failed."""
        key = (path, place)
        if key in self._found or len(self._found) >= _MOST:
            return
        fault = Fault(path, place, _text(error)[:500])
        self._found[key] = fault
        # A handler of the user's may raise. The tab has the fault all the same.
        with suppress(Exception):
            _LOG.warning(
                "torchexplorer could not record %s of module %r (training goes on): %s",
                place,
                path or "(model)",
                fault.error,
                exc_info=error if _LOG.isEnabledFor(logging.DEBUG) else None,
            )

    def list(self) -> list[Fault]:
        """What was found so far."""
        return list(self._found.values())

    def __len__(self) -> int:
        return len(self._found)


def _text(error: Exception) -> str:
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception:  # of the user's own class
        return kind
