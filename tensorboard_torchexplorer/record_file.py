"""Summary values into the event file of a `SummaryWriter`, without ever making the user's own calls worse.

A `SummaryWriter` writes on a thread of its own. When a write fails there, the thread dies, and the error is
raised in the training loop at the user's next `add_scalar`. So the record writer of that thread is replaced
by one that writes the same bytes but swallows the errors of *our* records, takes back what a full disk left
of them, and computes checksums faster. It reaches for private attributes of TensorBoard's writer; where
they are missing, `add_summary` is called as anyone would.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from tensorboard_torchexplorer.crc import framed

BACKLOG_SECONDS = 60.0


class ClosedError(Exception):
    """The user closed the SummaryWriter; a write would open a second event file."""


class WriteError(Exception):
    """The SummaryWriter refused an event; the cause says why."""


def write_values(
    writer: Any, values: Sequence[Any], step: int, on_error: Callable[[BaseException], None]
) -> None:
    """Queues one event with `values` in the file of `writer`, waiting while the writer's queue is long.

    Raises ClosedError or WriteError. What goes wrong later, on the writer's own thread, is told to
    `on_error`."""
    file_writer = _open_file(writer)
    if file_writer is None:
        raise ClosedError
    try:
        _write(file_writer, values, step, on_error)
    except Exception as error:
        raise (ClosedError if _is_closed(file_writer) else WriteError) from error


def flush_file(writer: Any, *, only_if_idle: bool = False) -> bool:
    """Waits until the event file holds all that was queued; True if it does. With `only_if_idle` nothing is
    waited for, since that would hold up the user's calls as well. Raises what the writer raises."""
    # Not `writer.flush()`, which ExplorerWriter extends to call us.
    return flush_open(_open_file(writer), only_if_idle=only_if_idle)


def flush_open(file_writer: Any, *, only_if_idle: bool = False) -> bool:
    """The same by the file writer of a SummaryWriter, which outlives it."""
    if file_writer is None:
        return True
    queue = getattr(getattr(file_writer, "event_writer", None), "_async_writer", None)
    backlog = getattr(queue, "_byte_queue", None)
    if only_if_idle and backlog is not None and not backlog.empty():
        return False
    try:
        file_writer.flush()
    except Exception:
        if not _is_closed(file_writer):
            raise
    return True


def _open_file(writer: Any) -> Any:
    """The file writer of a SummaryWriter, None if the user has closed it, or is about to in another thread.
    Looked at once: asked in between, `_get_file_writer` would open a new file."""
    try:
        found = writer.file_writer
    except AttributeError:
        found = writer._get_file_writer()
    return None if found is None or _is_closed(found) else found


def _is_closed(file_writer: Any) -> bool:
    events = getattr(file_writer, "event_writer", None)  # which says it itself in tensorboardX
    queue = getattr(events, "_async_writer", None)
    return getattr(events, "_closed", False) is True or getattr(queue, "_closed", False) is True


def _write(
    file_writer: Any, values: Sequence[Any], step: int, on_error: Callable[[BaseException], None]
) -> None:
    if type(file_writer).__module__.startswith("tensorboardX"):
        file_writer.add_summary(_of_tensorboardx(values), step)
        return
    queue = _guarded_queue(file_writer)
    if queue is None:
        file_writer.add_summary(Summary(value=values), step)
        return
    event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
    _wait_for_room(queue)
    queue.write(_Record(event.SerializeToString(), on_error))


class _Record(bytes):
    """The bytes of an event of ours, which the record writer tells from the user's."""

    on_error: Callable[[BaseException], None]

    def __new__(cls, data: bytes, on_error: Callable[[BaseException], None]) -> _Record:
        record = super().__new__(cls, data)
        record.on_error = on_error
        return record


class GuardedRecordWriter(RecordWriter):  # type: ignore[misc]  # TensorBoard is untyped
    """TensorBoard's RecordWriter on the same open file."""

    def write(self, data: bytes) -> None:
        """Appends one record. Raises only for records of the user."""
        if not isinstance(data, _Record):
            self._writer.write(framed(data))
            return
        path = _local_path(self._writer)
        before = _size(path)
        try:
            self._writer.write(framed(data))
        except Exception as error:
            # A record that is cut off in the middle of a file hides everything after it from all readers.
            _take_back(path, before)
            data.on_error(error)


def _guarded_queue(file_writer: Any) -> Any:
    """The queue of a torch FileWriter, its record writer replaced; None where TensorBoard has changed."""
    try:
        queue = file_writer.event_writer._async_writer
        current, worker = queue._writer, queue._worker
        if isinstance(current, GuardedRecordWriter):
            return queue
        if type(current) is not RecordWriter or worker._record_writer is not current:
            return None
        guarded = GuardedRecordWriter(current._writer)
        queue._writer = worker._record_writer = guarded
    except AttributeError:
        return None
    return queue


def _wait_for_room(queue: Any) -> None:
    # `write` waits for room while holding the lock that the user's add_scalar needs. Better wait here.
    backlog = getattr(queue, "_byte_queue", None)
    limit = getattr(backlog, "maxsize", 0)
    if backlog is None or limit <= 0:
        return
    deadline = time.monotonic() + BACKLOG_SECONDS
    while backlog.qsize() > limit // 2 and time.monotonic() < deadline:
        time.sleep(0.002)


def _local_path(file: Any) -> str | None:
    """The path of TensorBoard's own GFile on a local disk, which opens and closes it for every record. For
    TensorFlow's, which buffers, and for remote ones there is nothing that could be taken back."""
    name, system = getattr(file, "filename", None), getattr(file, "fs", None)
    if type(system).__name__ != "LocalFileSystem" or not isinstance(name, (str, bytes)):
        return None
    return os.fsdecode(name)


def _size(path: str | None) -> int | None:
    try:
        return os.path.getsize(path) if path else None
    except OSError:
        return None


def _take_back(path: str | None, size: int | None) -> None:
    try:
        if path and size is not None and os.path.getsize(path) > size:
            os.truncate(path, size)
    except OSError:
        return


def _of_tensorboardx(values: Sequence[Any]) -> Any:
    """tensorboardX has protocol buffer classes of its own for the same messages."""
    theirs = sys.modules["tensorboardX.proto.summary_pb2"].Summary
    return theirs.FromString(Summary(value=values).SerializeToString())
