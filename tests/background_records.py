"""What the tests of the background thread write, and what they find stored."""

from __future__ import annotations

import threading
import time

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from tensorboard_torchexplorer import events
from tests.record_graphs import small
from tests.records import Run

RECORD = Run(small()).record(0)


def values_at(step: int):
    return lambda: (events.step_values(RECORD), step)


def event_file(path) -> str:
    (found,) = path.glob("events.out.tfevents.*")
    return str(found)


def stored(path) -> list[tuple[int, list[str]]]:
    """Step and tags of each event, by the reader of TensorBoard that checks every CRC."""
    event_file(path)
    return all_stored(path)


def all_stored(path) -> list[tuple[int, list[str]]]:
    """The same of all event files, in the order they were made."""
    found = []
    for file in sorted(path.glob("events.out.tfevents.*"), key=lambda file: file.stat().st_mtime_ns):
        loaded = [Event.FromString(data) for data in RawEventFileLoader(str(file)).Load()]
        found += [
            (event.step, [value.tag for value in event.summary.value])
            for event in loaded
            if event.summary.value
        ]
    return found


class Held:
    """A task that waits to be let go."""

    def __init__(self):
        self.started, self.go = threading.Event(), threading.Event()

    def __call__(self):
        self.started.set()
        assert self.go.wait(60)


def wait_until(condition, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
