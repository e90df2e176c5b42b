"""The thread beside the training, and its place in the user's event file."""

from __future__ import annotations

import gc
import threading
import time
import warnings
import weakref

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import background, events, record_file
from tensorboard_torchexplorer.background import Background, background_of
from tests.background_records import RECORD, event_file, stored, values_at, wait_until


@pytest.fixture
def writer(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        yield writer


class TestWriting:
    def test_records_are_in_the_users_file_in_order_and_one_event_each(self, writer, tmp_path):
        thread = background_of(writer)
        for step in range(30):
            assert thread.submit(values_at(step), 100)
            writer.add_scalar("loss", step, step)

        assert thread.flush()

        found = stored(tmp_path)
        ours = [(step, tags) for step, tags in found if tags != ["loss"]]
        assert [step for step, _ in ours] == list(range(30))
        assert all(tags == [value.tag for value in events.step_values(RECORD)] for _, tags in ours)
        writer.flush()
        assert len(stored(tmp_path)) == 60

    def test_a_task_may_write_nothing(self, writer, tmp_path):
        thread = background_of(writer)
        thread.submit(lambda: None, 1)

        assert thread.flush()
        assert stored(tmp_path) == []

    def test_all_watches_of_a_writer_share_one_thread(self, writer, tmp_path):
        with SummaryWriter(tmp_path / "other") as other:
            assert background_of(writer) is background_of(writer)
            assert background_of(writer) is not background_of(other)

    def test_nothing_of_ours_is_on_the_writer(self, writer):
        before = set(vars(writer))

        background_of(writer).submit(values_at(0), 1)
        background_of(writer).flush()

        assert set(vars(writer)) == before

    def test_large_records_of_many_threads_have_right_checksums(self, writer, tmp_path):
        thread = background_of(writer)

        def scalars(name):
            for step in range(50):
                writer.add_scalar(name, step, step)

        users = [threading.Thread(target=scalars, args=(f"user {number}",)) for number in range(4)]
        for user in users:
            user.start()
        for step in range(20):
            thread.submit(values_at(step), 1)
        for user in users:
            user.join()
        thread.flush()
        writer.flush()

        assert len(stored(tmp_path)) == 220

    def test_scalars_read_back_as_ever(self, writer, tmp_path):
        background_of(writer).submit(values_at(0), 1)
        background_of(writer).flush()
        writer.add_scalar("loss", 0.25, 3)
        writer.flush()

        loaded = [
            v
            for e in EventFileLoader(event_file(tmp_path)).Load()
            for v in e.summary.value
            if v.tag == "loss"
        ]
        assert [value.tensor.float_val[0] for value in loaded] == [0.25]


class TestQueue:
    def test_it_never_blocks(self, writer, held):
        thread = background_of(writer)
        thread.submit(held, 1)
        held.started.wait()

        start = time.perf_counter()
        for step in range(1000):
            thread.submit(values_at(step), 1 << 20)

        assert time.perf_counter() - start < 1

    def test_when_full_the_oldest_are_dropped_and_counted(self, tmp_path, held):
        with SummaryWriter(tmp_path) as writer:
            thread = Background(writer, max_bytes=1000)
            thread.submit(held, 100)
            held.started.wait()
            for step in range(10):
                thread.submit(values_at(step), 300)
            held.go.set()
            thread.flush()

            assert thread.dropped == 7
            assert [step for step, _ in stored(tmp_path)] == [7, 8, 9]

    def test_a_record_larger_than_the_queue_is_still_written(self, tmp_path):
        with SummaryWriter(tmp_path) as writer:
            thread = Background(writer, max_bytes=10)
            thread.submit(values_at(0), 1000)
            thread.flush()

            assert [step for step, _ in stored(tmp_path)] == [0]

    def test_memory_of_a_task_is_free_once_it_is_done(self, writer):
        class Large:
            def __call__(self):
                return None

        task = Large()
        reference = weakref.ref(task)
        thread = background_of(writer)
        thread.submit(task, 1)
        del task
        thread.flush()

        assert wait_until(lambda: gc.collect() is not None and reference() is None)

    def test_a_long_queue_of_the_writer_does_not_hold_up_the_user(self, tmp_path, monkeypatch):
        """The SummaryWriter waits for room while it holds the lock that add_scalar needs; we must not."""
        with SummaryWriter(tmp_path, max_queue=4) as writer:
            thread = background_of(writer)
            thread.submit(values_at(0), 1)
            thread.flush()
            slow = record_file.framed
            monkeypatch.setattr(record_file, "framed", lambda data: time.sleep(0.05) or slow(data))
            for step in range(40):
                thread.submit(values_at(step), 1)
            time.sleep(0.2)

            start = time.perf_counter()
            writer.add_scalar("loss", 1, 1)

            assert time.perf_counter() - start < 0.04


class TestLife:
    def test_the_thread_ends_when_the_writer_is_gone(self, tmp_path):
        writer = SummaryWriter(tmp_path)
        background_of(writer).submit(values_at(0), 1)
        background_of(writer).flush()
        thread = background_of(writer)._thread
        reference = weakref.ref(writer)
        writer.close()
        del writer

        assert wait_until(lambda: gc.collect() is not None and reference() is None and not thread.is_alive())

    def test_a_queued_record_keeps_the_writer_until_it_is_written(self, tmp_path, held):
        writer = SummaryWriter(tmp_path)
        background_of(writer).submit(held, 1)
        background_of(writer).submit(values_at(5), 1)
        thread = background_of(writer)
        del writer
        gc.collect()
        held.go.set()

        assert thread.flush()
        assert wait_until(lambda: [step for step, _ in stored(tmp_path)] == [5])

    def test_after_close_nothing_is_taken_and_it_is_said_once(self, writer, tmp_path):
        thread = background_of(writer)
        thread.submit(values_at(0), 1)
        assert thread.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert not thread.submit(values_at(1), 1)
            assert not thread.submit(values_at(2), 1)

        assert [str(warning.message) for warning in caught] == [
            "tensorboard-torchexplorer: records after close() are not written"
        ]
        assert [step for step, _ in stored(tmp_path)] == [0]
        assert wait_until(lambda: thread._thread is None)

    def test_flush_gives_up_when_told(self, writer, held):
        background_of(writer).submit(held, 1)

        assert not background_of(writer).flush(0.05)

    def test_a_flush_in_a_subclass_that_calls_us_does_not_go_in_circles(self, tmp_path):
        class Explorer(SummaryWriter):
            def flush(self):
                background_of(self).flush()
                super().flush()

        with Explorer(tmp_path) as writer:
            background_of(writer).submit(values_at(0), 1)
            writer.flush()

            assert [step for step, _ in stored(tmp_path)] == [0]

    def test_what_is_written_is_flushed_within_seconds(self, writer, monkeypatch):
        """TensorFlow's files are buffered: a record is only visible once somebody flushes."""
        monkeypatch.setattr(background, "FLUSH_SECONDS", 0.1)
        flushed = threading.Event()
        file_writer = writer._get_file_writer()
        flush = file_writer.flush
        monkeypatch.setattr(file_writer, "flush", lambda: (flush(), flushed.set()))
        background_of(writer).submit(values_at(0), 1)

        assert flushed.wait(60)


class TestWithoutPrivateNames:
    """Should TensorBoard change, records go the public way."""

    @pytest.mark.parametrize("attribute", ["_writer", "_worker"])
    def test_the_public_way_works(self, tmp_path, monkeypatch, attribute):
        with SummaryWriter(tmp_path) as writer:
            queue = writer._get_file_writer().event_writer._async_writer
            proxy = Without(queue, attribute)
            monkeypatch.setattr(writer._get_file_writer().event_writer, "_async_writer", proxy)
            background_of(writer).submit(values_at(3), 1)
            background_of(writer).flush()

        assert [step for step, _ in stored(tmp_path)] == [3]
        assert type(queue._writer) is RecordWriter

    def test_the_fast_way_is_taken_otherwise(self, writer):
        background_of(writer).submit(values_at(3), 1)
        background_of(writer).flush()

        queue = writer._get_file_writer().event_writer._async_writer
        assert type(queue._writer) is type(queue._worker._record_writer) is record_file.GuardedRecordWriter


class Without:
    """An object that lacks an attribute."""

    def __init__(self, inner, attribute):
        self._inner, self._missing = inner, attribute

    def __getattr__(self, name):
        if name == self._missing:
            raise AttributeError(name)
        return getattr(self._inner, name)


def test_tensorboardx_gets_its_own_kind_of_messages(tmp_path):
    tensorboardX = pytest.importorskip("tensorboardX")
    with tensorboardX.SummaryWriter(str(tmp_path)) as writer:
        background_of(writer).submit(values_at(2), 1)

        assert background_of(writer).flush()
        assert background_of(writer).failed == ""

    assert [step for step, _ in stored(tmp_path)] == [2]
