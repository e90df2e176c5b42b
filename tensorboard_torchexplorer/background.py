"""Work off the training thread: tasks in, their values into the event file of a SummaryWriter.

One daemon thread per SummaryWriter, shared by all that watch with it. The queue is bounded in bytes: when
full, the oldest task is dropped and counted. Nothing here ever blocks, stops or changes the training: errors
become one warning and the end of the explorer's records for that writer.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tensorboard_torchexplorer.record_file import (
    ClosedError,
    WriteError,
    flush_file,
    flush_open,
    write_values,
)

MAX_BYTES = 64 << 20
FLUSH_SECONDS = 3.0
EXIT_SECONDS = 30.0

_log = logging.getLogger(__name__)

Task = Callable[[], "tuple[Sequence[Any], int] | None"]
"""Runs on the thread. Returns Summary.Values and the step of their event, or None to write nothing."""


def background_of(writer: Any) -> Background:
    """The thread of `writer` (a SummaryWriter), started at the first task."""
    with _registry_lock:
        found = _registry.get(writer)
        if found is None:
            found = _registry[writer] = Background(writer)
        return found


class Listener(NamedTuple):
    """Who is told of each record once it is written: on the thread, with the SummaryWriter, the
    Summary.Values and the step."""

    name: str
    hear: Callable[[Any, Sequence[Any], int], None]


class _Queued(NamedTuple):
    task: Task
    nbytes: int
    writer: Any  # keeps the SummaryWriter alive until the record is written


class Background:
    """Runs tasks one after another and writes what they return.

    `dropped` counts tasks that were given up because the queue was full or that raised, `failed` tells why
    nothing is written any more ("" while all is well). A listener that raises hears nothing more."""

    def __init__(self, writer: Any, max_bytes: int = MAX_BYTES) -> None:
        self.dropped = 0
        self.failed = ""
        self.listeners: list[Listener] = []
        self._writer = weakref.ref(writer)
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[_Queued] = deque()
        self._bytes = 0
        self._busy = False
        self._closed = False
        self._warned: set[str] = set()
        self._thread: threading.Thread | None = None
        self._unflushed = False
        self._file: Any = None

    def submit(self, task: Task, nbytes: int) -> bool:
        """Queues a task that keeps `nbytes` of memory alive. Returns at once; False if it won't be run."""
        writer = self._writer()
        # The first check needs no lock: in a forked child the lock may be held for ever.
        if os.getpid() != self._pid or writer is None:
            return False
        with self._changed:
            if self._closed:
                self._warn("records after close() are not written")
            if self._closed or self.failed:
                return False
            while self._queue and self._bytes + nbytes > self._max_bytes:
                self._bytes -= self._queue.popleft().nbytes
                self.dropped += 1
            self._queue.append(_Queued(task, nbytes, writer))
            self._bytes += nbytes
            if self._thread is None:
                try:
                    self._start()
                except RuntimeError as error:  # no more threads, or the interpreter is going down
                    self._thread = None
                    self._fail(error)
                    return False
            self._changed.notify_all()
        return True

    def flush(self, seconds: float | None = None) -> bool:
        """Waits until all tasks are done and their records are in the file; False after `seconds`."""
        if os.getpid() != self._pid:
            return False
        with self._changed:
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._queue and not self._busy, seconds):
                return False
        return self._flush_file()

    def close(self, seconds: float | None = None) -> bool:
        """Flushes and ends the thread; later tasks are refused. Leaves the SummaryWriter open."""
        done = self.flush(seconds)
        if os.getpid() == self._pid:
            with self._changed:
                self._closed = True
                thread = self._thread
                self._changed.notify_all()
            if thread is not None and thread is not threading.current_thread():
                thread.join(1)
        return done

    def tell(self, name: str, told: Callable[[], None]) -> bool:
        """Calls it for the listener `name`; an error becomes a warning, and False."""
        try:
            told()
        except Exception as error:
            self._warn(f"nothing more is logged to {name}: {_described(error)}", error)
            return False
        return True

    # --- On the thread ---

    def _start(self) -> None:
        # Neither a bound method nor an object: they would keep the writer alive through the registry.
        arguments = (weakref.ref(self), self._changed)
        self._thread = threading.Thread(target=_run, args=arguments, name="torchexplorer", daemon=True)
        writer = self._writer()
        if writer is not None:
            weakref.finalize(writer, _wake, self._changed).atexit = False
        self._thread.start()
        _threads.add(self._thread)

    def _take(self) -> _Queued | None:
        """The next task. Called with the lock held."""
        if not self._queue:
            return None
        self._busy = True
        return self._queue.popleft()

    def _perform(self, queued: _Queued) -> None:
        try:
            result = None if self.failed else queued.task()
            if result is not None:
                values, step = result
                write_values(queued.writer, values, step, self._fail)
                self._unflushed = True
                self._file = getattr(queued.writer, "file_writer", None)
                for listener in list(self.listeners):
                    told = partial(listener.hear, queued.writer, values, step)
                    if not self.tell(listener.name, told):
                        self.listeners.remove(listener)
        except ClosedError:
            self._warn(
                "the SummaryWriter was closed before all records were written; the rest is lost. "
                "Use ExplorerWriter, or flush the watch before closing the writer"
            )
        except WriteError as error:
            self._fail(error.__cause__ or error)
        except Exception as error:
            self.dropped += 1  # it may have held the graph, which then comes again
            self._warn(f"a record was lost: {_described(error)}", error)

    def _done(self, queued: _Queued) -> None:
        with self._changed:
            self._bytes -= queued.nbytes
            self._busy = False
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Ends the explorer's records. Called on this thread or on that of the SummaryWriter."""
        with self._changed:
            if self.failed:
                return
            self.failed = _described(error)
            self._bytes -= sum(queued.nbytes for queued in self._queue)
            self._queue.clear()
            self._changed.notify_all()
        self._warn(f"can't write records any more ({self.failed}); training goes on without them", error)

    def _warn(self, text: str, error: BaseException | None = None) -> None:
        kind = type(error).__name__ if error else text
        if kind in self._warned:
            return
        self._warned.add(kind)
        try:
            warnings.warn(f"tensorboard-torchexplorer: {text}", RuntimeWarning, stacklevel=2)
        except RuntimeWarning:
            # The user made warnings errors. Here nobody could catch one; the log has it at least.
            _log.warning(text)

    def _flush_file(self, *, only_if_idle: bool = False) -> bool:
        writer = self._writer()
        try:
            if writer is not None and not flush_file(writer, only_if_idle=only_if_idle):
                return False
        except Exception as error:
            # The user meets the same error at the next call of the writer, as without us.
            self._fail(error)
        self._unflushed = False
        self._file = None
        return not self.failed

    def _end(self) -> None:
        """The writer is gone, without having been closed. What its file's own thread still has to write would
        be lost if the process ended now: wait for it."""
        if self._unflushed and not self.failed:
            try:
                flush_open(self._file)
            except Exception as error:
                self._fail(error)
        self._file = None


def _run(reference: weakref.ref[Background], changed: threading.Condition) -> None:
    """The loop of the thread. It ends soon after the writer is gone, which it must not keep alive."""
    flushed_at = time.monotonic()
    while True:
        with changed:
            background = reference()
            if background is None:
                return
            queued = background._take()
            if queued is None:
                if background._closed:
                    background._thread = None
                    return
                if background._writer() is None:
                    break
                changed.wait(FLUSH_SECONDS if background._unflushed else None)
        if queued is not None:
            background._perform(queued)
            background._done(queued)
        # TensorFlow's files are buffered, and two minutes are long for someone who watches a run begin.
        if (
            background._unflushed
            and time.monotonic() - flushed_at >= FLUSH_SECONDS
            and background._flush_file(only_if_idle=True)
        ):
            flushed_at = time.monotonic()
    background._end()


def _wake(changed: threading.Condition) -> None:
    with changed:
        changed.notify_all()


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# --- All of them ---

_registry: weakref.WeakKeyDictionary[Any, Background] = weakref.WeakKeyDictionary()
_registry_lock = threading.Lock()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def _at_exit() -> None:
    """A script that never closes its writer keeps its last records all the same."""
    deadline = time.monotonic() + EXIT_SECONDS
    for background in list(_registry.values()):
        background.close(max(0.1, deadline - time.monotonic()))
    for thread in list(_threads):  # also those whose writers are gone: they end by themselves
        thread.join(max(0.1, deadline - time.monotonic()))


def _after_fork() -> None:
    """In the child: the parent's threads are gone and its locks may be held for ever."""
    global _registry_lock
    _registry_lock = threading.Lock()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
