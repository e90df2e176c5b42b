"""TensorBoard's data provider to stored points: the only module that asks it.

Covers what the two loaders do differently or badly: errors of the Python loader while it is still loading,
answers larger than a gRPC message may be, and values of a type that can't be converted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from tensorboard.data.provider import RunTagFilter
from tensorboard.errors import PublicError

from tensorboard_torchexplorer.history import Point
from tensorboard_torchexplorer.schema import PLUGIN_NAME

ALL = 1 << 30
"""As `downsample`: every point. The provider's own thinning is random, so the backend thins by itself."""

_PAUSES = (0.02, 0.1, 0.3)
_FEWER = (ALL, 4096, 1024, 256, 64, 16, 1)

Result = TypeVar("Result")


class BusyError(PublicError):  # type: ignore[misc]  # TensorBoard is untyped
    """The loader was in the middle of something at every attempt; worth asking again."""

    http_code = 503


class Listed(NamedTuple):
    """A tag without its points. `token` changes with every new point."""

    token: str
    content: bytes


class Source(Protocol):
    """Where stored points come from: TensorBoard, or event files (`reader.FileSource`)."""

    experiment: str

    def runs(self) -> list[str]:
        """Names of all runs, ours or not."""

    def listing(
        self, runs: Sequence[str] | None = None, tags: Sequence[str] | None = None
    ) -> dict[str, dict[str, Listed]]:
        """The tags of each run, all or only those given."""

    def read(self, runs: Sequence[str], tags: Sequence[str]) -> dict[str, dict[str, list[Point]]]:
        """All points of the given tags, by run and tag, in the order they were written. A value that is
        no vector of bytes comes empty."""


class ProviderSource:
    """What a data provider holds of our plugin, for one request."""

    def __init__(self, provider: Any, context: Any, experiment: str) -> None:
        self._provider = provider
        self._context = context
        self.experiment = experiment

    def runs(self) -> list[str]:
        found = _retried(lambda: self._provider.list_runs(self._context, experiment_id=self.experiment))
        return [run.run_name for run in found]

    def listing(
        self, runs: Sequence[str] | None = None, tags: Sequence[str] | None = None
    ) -> dict[str, dict[str, Listed]]:
        found = _retried(
            lambda: self._provider.list_tensors(
                self._context,
                experiment_id=self.experiment,
                plugin_name=PLUGIN_NAME,
                run_tag_filter=RunTagFilter(runs, tags),
            )
        )
        return {
            run: {
                tag: Listed(f"{series.max_step}@{series.max_wall_time!r}", series.plugin_content or b"")
                for tag, series in series_of_tag.items()
            }
            for run, series_of_tag in found.items()
        }

    def read(self, runs: Sequence[str], tags: Sequence[str]) -> dict[str, dict[str, list[Point]]]:
        """In one call if possible. A tag too large for one answer comes thinned."""
        try:
            return self._read(runs, tags, ALL)
        except PublicError:
            raise
        except Exception as error:
            if len(runs) * len(tags) <= 1:
                return self._read_alone(runs, tags, error)
        # Something among many failed: too much at once, or one tag that can't be converted.
        found: dict[str, dict[str, list[Point]]] = {}
        if len(runs) > 1:
            half = len(runs) // 2
            for part in (runs[:half], runs[half:]):
                found.update(self.read(part, tags))
        else:
            half = len(tags) // 2
            for part in (tags[:half], tags[half:]):
                for run, points in self.read(runs, part).items():
                    found.setdefault(run, {}).update(points)
        return found

    def _read_alone(
        self, runs: Sequence[str], tags: Sequence[str], error: Exception
    ) -> dict[str, dict[str, list[Point]]]:
        if not runs or not tags:
            return {}
        if not _is_too_large(error):
            # A stored value that TensorBoard can't turn into an array; say so as a point that can't be read.
            return {runs[0]: {tags[0]: [Point(0, 0.0, b"")]}}
        for downsample in _FEWER[1:]:
            try:
                return self._read(runs, tags, downsample)
            except Exception as again:
                if not _is_too_large(again):
                    raise
        raise error

    def _read(
        self, runs: Sequence[str], tags: Sequence[str], downsample: int
    ) -> dict[str, dict[str, list[Point]]]:
        found = _retried(
            lambda: self._provider.read_tensors(
                self._context,
                experiment_id=self.experiment,
                plugin_name=PLUGIN_NAME,
                downsample=downsample,
                run_tag_filter=RunTagFilter(runs, tags),
            )
        )
        return {
            run: {tag: [_point(datum) for datum in data] for tag, data in data_of_tag.items()}
            for run, data_of_tag in found.items()
        }


def combined(listed: Mapping[str, Listed], tags: Iterable[str]) -> str:
    """A token that changes when any of the tags does."""
    return "|".join(listed[tag].token if tag in listed else "" for tag in tags)


def _point(datum: Any) -> Point:
    value = datum.numpy
    is_bytes = isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1
    return Point(datum.step, datum.wall_time, value.tobytes() if is_bytes else b"")


def _retried(call: Callable[[], Result]) -> Result:
    for pause in (*_PAUSES, None):
        try:
            return call()
        except PublicError:  # which is a RuntimeError
            raise
        # The Python loader fills its dictionaries while we read them: a tag may be there before its points
        # (KeyError), or a dictionary may grow while it is walked (RuntimeError).
        except (KeyError, RuntimeError) as error:
            if pause is None:
                raise BusyError(f"TensorBoard is still loading ({error!r}), please try again") from error
            time.sleep(pause)
    raise AssertionError("unreachable")


def _is_too_large(error: Exception) -> bool:
    # grpc.RpcError, without importing grpc: custom builds may have none.
    code = getattr(error, "code", None)
    return callable(code) and getattr(code(), "name", "") == "RESOURCE_EXHAUSTED"
