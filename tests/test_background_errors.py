"""Errors of the thread beside the training, a writer that is closed meanwhile, and forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events, read, recording, unwatch_model, watch_model
from tensorboard_torchexplorer.background import background_of
from tests.background_records import all_stored, stored, values_at


@pytest.fixture
def writer(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        yield writer


class TestErrors:
    def test_an_error_in_a_task_costs_that_record_only(self, writer, tmp_path):
        def bad():
            raise ZeroDivisionError("oops")

        thread = background_of(writer)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for task in (values_at(0), bad, bad, values_at(1)):
                thread.submit(task, 1)
            thread.flush()

        assert [step for step, _ in stored(tmp_path)] == [0, 1]
        assert [str(w.message) for w in caught] == [
            "tensorboard-torchexplorer: a record was lost: ZeroDivisionError: oops"
        ]
        assert thread.failed == ""
        assert thread.dropped == 2

    def test_a_graph_that_was_lost_comes_with_the_next_record(self, writer, tmp_path, monkeypatch):
        """Without it nothing of the model can be shown."""
        failed = []

        def fails_once(graph, phase):
            if not failed:
                failed.append(graph)
                raise ZeroDivisionError("oops")
            return events.graph_values(graph, phase)

        monkeypatch.setattr(recording, "graph_values", fails_once)
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            watch_model(writer, model, log_freq=1)
            for _ in range(3):
                model(torch.ones(2, 4)).sum().backward()
                background_of(writer).flush()
                optimizer.step()
        unwatch_model(writer)
        background_of(writer).flush()

        assert len(failed) == 1
        ((name, found),) = next(iter(read(str(tmp_path)).values())).items()
        assert name == "Linear"
        assert list(found.history("train").steps) == [0, 1, 2]

    def test_warnings_made_errors_do_not_end_the_thread(self, writer, tmp_path):
        thread = background_of(writer)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            thread.submit(lambda: 1 / 0, 1)
            thread.submit(values_at(1), 1)
            thread.flush()

        assert [step for step, _ in stored(tmp_path)] == [1]

    def test_a_writer_that_the_user_closed_is_not_opened_again(self, tmp_path, held):
        writer = SummaryWriter(tmp_path)
        thread = background_of(writer)
        thread.submit(held, 1)
        thread.submit(values_at(0), 1)
        writer.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            held.go.set()
            thread.flush()

        assert len(list(tmp_path.iterdir())) == 1
        assert "was closed before all records were written" in str(caught[0].message)

    @pytest.mark.parametrize("look", [1, 2])
    @pytest.mark.parametrize("half", [False, True], ids=["closed", "closing"])
    @pytest.mark.parametrize("writes", [True, False], ids=["writing", "flushing"])
    def test_a_writer_may_be_closed_while_its_file_is_looked_up(self, tmp_path, writes, half, look):
        """At any of the looks that the record thread takes at it, and whether the writer says already that it
        is closed or only its file does."""
        writer = ClosedAtALook(tmp_path, look, half)
        thread = background_of(writer)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if not writes:
                thread.submit(values_at(0), 1)
                thread.flush()
            writer.armed = True
            if writes:
                thread.submit(values_at(1), 1)
                thread.flush()
            else:
                assert thread._flush_file(only_if_idle=True)
            writer.armed = False
            thread.flush()

        assert len(list(tmp_path.iterdir())) == 1
        assert thread.failed == ""
        assert {str(w.message) for w in caught} <= {
            "tensorboard-torchexplorer: the SummaryWriter was closed before all records were written; the "
            "rest is lost. Use ExplorerWriter, or flush the watch before closing the writer"
        }
        if half:
            writer.file_writer = writer.all_writers = None
        writer.add_scalar("loss", 1, 1)  # opens a second file
        assert thread.submit(values_at(2), 1)
        assert thread.flush()
        writer.close()
        assert [step for step, _ in all_stored(tmp_path)][-2:] == [1, 2]

    def test_a_writer_that_is_used_again_after_close_gets_records_again(self, tmp_path):
        writer = SummaryWriter(tmp_path)
        writer.close()
        writer.add_scalar("loss", 1, 1)  # opens a second file
        thread = background_of(writer)
        thread.submit(values_at(0), 1)

        assert thread.flush()
        assert thread.failed == ""
        writer.close()

    def test_a_thread_that_cannot_be_started_is_not_the_trainings_trouble(self, writer, monkeypatch):
        def no_more(thread):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", no_more)
        with pytest.warns(RuntimeWarning, match="can't start new thread.*training goes on"):
            assert not background_of(writer).submit(values_at(0), 1)
        assert not background_of(writer).submit(values_at(1), 1)
        assert not background_of(writer).flush(1)


class ClosedAtALook(SummaryWriter):
    """Once armed, closes itself right after its file writer has been read for the `look`th time, as another
    thread would; `half`: so far only the file is closed."""

    armed = False

    def __init__(self, path, look, half):
        self.look, self.half = look, half
        super().__init__(path)

    @property
    def file_writer(self):
        found = self._file_writer
        if self.armed:
            self.look -= 1
            if self.look == 0:
                self.armed = False
                if self.half:
                    found.close()
                else:
                    SummaryWriter.close(self)
        return found

    @file_writer.setter
    def file_writer(self, value):
        self._file_writer = value


class TestFork:
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
    def test_c45_a_forked_child_writes_nothing_and_never_hangs(self, tmp_path):
        code = f"""if True:
            import os, threading, warnings
            from torch.utils.tensorboard import SummaryWriter
            from tensorboard_torchexplorer import background
            from tensorboard_torchexplorer.background import background_of
            from tests.background_records import values_at
            writer = SummaryWriter({str(tmp_path)!r})
            thread = background_of(writer)
            thread.submit(values_at(0), 1)
            thread._changed.acquire()  # the worst moment to fork
            background._registry_lock.acquire()
            warnings.simplefilter("ignore")
            pid = os.fork()
            if pid == 0:
                for step in range(100):
                    assert background_of(writer) is thread
                    assert not thread.submit(values_at(step), 1)
                assert not thread.flush() and not thread.close()
                own = SummaryWriter({str(tmp_path / "child")!r})
                background_of(own).submit(values_at(7), 1)
                assert background_of(own).flush()
                own.close()
                os._exit(17)
            thread._changed.release()
            background._registry_lock.release()
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 17
            thread.submit(values_at(1), 1)
            """
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

        assert [step for step, _ in stored(tmp_path)] == [0, 1]
        assert [step for step, _ in stored(tmp_path / "child")] == [7]
