from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tensorboard.data.provider import TensorDatum, TensorTimeSeries
from tensorboard.errors import InvalidArgumentError

from tensorboard_torchexplorer import source
from tensorboard_torchexplorer.history import Point
from tensorboard_torchexplorer.source import BusyError, ProviderSource


class TooLarge(Exception):
    """What gRPC raises for an answer of more than 256 MiB."""

    def code(self):
        return SimpleNamespace(name="RESOURCE_EXHAUSTED")


class Provider:
    """Holds `points` tensors of `size` bytes per tag, answers of at most `limit` bytes, and fails as told."""

    def __init__(self, tags, *, points=10, size=1, limit=10**9, failures=(), odd=()):
        self.tags, self.points, self.size, self.limit = tags, points, size, limit
        self.failures, self.odd = list(failures), odd
        self.calls = 0

    def list_runs(self, ctx, *, experiment_id):
        self._fail()
        return [SimpleNamespace(run_name=run) for run in self.tags]

    def list_tensors(self, ctx, *, experiment_id, plugin_name, run_tag_filter):
        self._fail()
        series = TensorTimeSeries(
            max_step=3, max_wall_time=0.1, plugin_content=b"x", description="", display_name=""
        )
        return {run: dict.fromkeys(tags, series) for run, tags in self.tags.items()}

    def read_tensors(self, ctx, *, experiment_id, plugin_name, downsample, run_tag_filter):
        self.calls += 1
        self._fail()
        points = [TensorDatum(step, 1.0, np.zeros(self.size, np.uint8)) for step in range(self.points)]
        found = {
            run: {tag: points[-downsample:] for tag in self.tags[run] if tag in run_tag_filter.tags}
            for run in self.tags
            if run in run_tag_filter.runs
        }
        if any(tag in self.odd for tags in found.values() for tag in tags):
            raise TypeError("Cannot interpret '0' as a data type")
        if sum(self.size * len(points) for tags in found.values() for points in tags.values()) > self.limit:
            raise TooLarge
        return found

    def _fail(self):
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(source, "_PAUSES", (0, 0, 0))


def over(provider) -> ProviderSource:
    return ProviderSource(provider, None, "")


@pytest.mark.parametrize("error", [KeyError("tag"), RuntimeError("dictionary changed size during iteration")])
def test_what_the_python_loader_raises_while_loading_is_tried_again(error):
    provider = Provider({"run": ["a"]}, failures=[error, error])

    assert over(provider).listing() == {"run": {"a": ("3@0.1", b"x")}}
    provider.failures = [error]
    assert len(over(provider).read(["run"], ["a"])["run"]["a"]) == 10
    provider.failures = [error]
    assert over(provider).runs() == ["run"]


def test_a_loader_that_stays_busy_is_said_to_be():
    with pytest.raises(BusyError, match="please try again") as caught:
        over(Provider({"run": ["a"]}, failures=[KeyError()] * 9)).listing()
    assert caught.value.http_code == 503


def test_a_read_is_one_call():
    provider = Provider({"run": ["a", "b"]})

    found = over(provider).read(["run"], ["a", "b"])

    assert provider.calls == 1
    assert found["run"]["b"][9] == Point(9, 1.0, b"\0")


def test_an_answer_that_is_too_large_comes_in_parts():
    provider = Provider({"one": ["a", "b"], "two": ["a", "c"]}, size=10, limit=150)

    found = over(provider).read(["one", "two"], ["a", "b", "c"])

    assert {run: {tag: len(points) for tag, points in tags.items()} for run, tags in found.items()} == {
        "one": {"a": 10, "b": 10},
        "two": {"a": 10, "c": 10},
    }


def test_a_tag_that_is_too_large_by_itself_is_thinned():
    provider = Provider({"run": ["a"]}, points=2000, size=10, limit=6000)

    steps = [point.step for point in over(provider).read(["run"], ["a"])["run"]["a"]]

    assert (len(steps), steps[-1]) == (256, 1999)


def test_a_value_that_cannot_be_converted_does_not_hide_the_others():
    provider = Provider({"run": ["a", "b", "c"]}, odd=["b"])

    found = over(provider).read(["run"], ["a", "b", "c"])

    assert [len(found["run"][tag]) for tag in "abc"] == [10, 1, 10]
    assert found["run"]["b"][0].payload == b""


def test_a_value_that_is_no_vector_of_bytes_is_empty():
    for value in (np.zeros(3, np.float32), np.zeros((2, 2), np.uint8), np.array(b"x", object)):
        provider = Provider({"run": ["a"]})
        provider.read_tensors = lambda *args, value=value, **kwargs: {
            "run": {"a": [TensorDatum(1, 2.0, value)]}
        }

        assert over(provider).read(["run"], ["a"]) == {"run": {"a": [Point(1, 2.0, b"")]}}


def test_errors_for_the_user_pass():
    with pytest.raises(InvalidArgumentError):
        over(Provider({"run": ["a"]}, failures=[InvalidArgumentError("no")] * 9)).read(["run"], ["a"])


def test_nothing_to_read_reads_nothing():
    assert over(Provider({}, failures=[TypeError()])).read([], []) == {}
