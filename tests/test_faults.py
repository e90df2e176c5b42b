"""What can go wrong around a training: full disks, deleted directories, killed processes, damaged files.

Each training runs in a process of its own. It logs a scalar of the user and a record of ours per step."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer.reader import read
from tests.plugin_client import Loaded
from tests.record_graphs import small
from tests.records import Run, write

TRAINING = """
import os, shutil, sys, time, warnings
from torch.utils.tensorboard import SummaryWriter
from tensorboard_torchexplorer import events
from tensorboard_torchexplorer.background import background_of
from tests.record_graphs import small, wide
from tests.records import Run

def train(logdir, steps, graph=None, pause=0.0, before_step=lambda step: None, errors=None):
    run = Run(graph or small())
    writer = SummaryWriter(logdir, max_queue=10)
    thread = background_of(writer)
    first = events.graph_values(run.graph)
    for step in range(steps):
        before_step(step)
        record = run.record(step)
        values = (first if step == 0 else []) + events.step_values(record)
        thread.submit(lambda values=values, step=step: (values, step), 10_000)
        try:
            writer.add_scalar("loss", step, step)
        except OSError as error:
            if errors is None:
                raise
            errors.append(error)
        time.sleep(pause)
    return writer, thread

def warned(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run()
    return result, [str(w.message) for w in caught if "torchexplorer" in str(w.message)]
"""


def run_training(code: str, **options) -> subprocess.CompletedProcess[str]:
    program = TRAINING + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, **options
    )


def scalars(run: Path) -> list[int]:
    """Steps of the user's scalars, by TensorBoard's own reader."""
    steps = []
    for path in sorted(run.glob("events.out.tfevents.*")):
        for data in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(data)
            steps += [event.step for value in event.summary.value if value.tag == "loss"]
    return steps


def records(logdir: Path, run: str = ".", model: str = "model") -> list[int]:
    return read(logdir)[run][model].history().steps.tolist()


class TestFullDisk:
    def test_the_users_own_calls_go_on_where_only_our_record_did_not_fit(self, tmp_path):
        """A limit on the file's size is a full disk without one: writes stop in the middle of a record.
        Our large record does not fit, the user's small ones do."""
        found = run_training(
            f"""
            import resource
            writer, thread = train({str(tmp_path)!r}, 3)
            thread.flush(); writer.flush()
            size = os.path.getsize(writer.file_writer.event_writer._file_name)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 3000, size + 3000))
            big = Run(wide(100, "big"))

            def rest():
                for step in range(3, 20):
                    values = events.graph_values(big.graph) + events.step_values(big.record(step))
                    thread.submit(lambda values=values, step=step: (values, step), 10_000)
                    writer.add_scalar("loss", step, step)
                thread.flush()
                writer.flush()

            _, messages = warned(rest)
            print(len(messages), messages[0], thread.submit(lambda: None, 1), sep="|")
            writer.close()
            """
        )

        assert found.returncode == 0, found.stderr
        count, message, accepted = found.stdout.strip().split("|")
        assert (count, accepted) == ("1", "False")
        assert "can't write records any more (OSError: [Errno 27] File too large)" in message
        assert "training goes on without them" in message
        assert scalars(tmp_path) == list(range(20))
        assert records(tmp_path) == [0, 1, 2]
        assert read(tmp_path)["."].problems == []

    def test_a_small_disk_that_fills_up(self, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False
        )
        if mount.returncode:
            pytest.skip("may not mount a tmpfs here; the test above has the same fault without one")
        try:
            found = run_training(
                f"""
                errors = []
                (writer, thread), messages = warned(
                    lambda: train({str(disk / "run")!r}, 60, wide(20), 0.01, errors=errors)
                )
                thread.flush()
                print(len(messages), len(errors), bool(thread.failed), sep="|")
                """
            )
            steps, problems = records(disk, "run"), read(disk)["run"].problems
            user = scalars(disk / "run")
        finally:
            subprocess.run(["umount", str(disk)], check=True)

        assert found.returncode == 0, found.stderr
        assert found.stdout.strip() == "1|0|True"
        assert steps == list(range(len(steps)))
        assert 5 < len(steps) < 60
        assert problems == []
        assert user == list(range(60))


class TestDeletedDirectory:
    def test_training_goes_on_as_far_as_it_would_without_us(self, tmp_path):
        """TensorBoard's writer opens the file anew for each record, so the user's scalars fail as well;
        that error is the user's, as without us. Ours is one warning."""
        found = run_training(
            f"""
            def before_step(step):
                if step == 5:
                    thread_of_run().flush()
                    shutil.rmtree({str(tmp_path / "run")!r})

            import gc
            def thread_of_run():
                from tensorboard_torchexplorer import background
                return next(iter(background._registry.values()))

            errors = []
            (writer, thread), messages = warned(
                lambda: train({str(tmp_path / "run")!r}, 30, None, 0.02, before_step, errors)
            )
            thread.flush()
            print(len(messages), bool(thread.failed), {{type(error).__name__ for error in errors}}, sep="|")
            """
        )

        assert found.returncode == 0, found.stderr
        assert found.stdout.strip() == "1|True|{'FileNotFoundError'}"

    def test_without_scalars_of_the_user_nothing_is_raised_at_all(self, tmp_path):
        found = run_training(
            f"""
            writer, thread = train({str(tmp_path / "run")!r}, 2)
            thread.flush(); writer.flush()
            shutil.rmtree({str(tmp_path / "run")!r})

            def rest():
                for step in range(2, 20):
                    thread.submit(lambda: (events.step_values(Run(small()).record(3)), 3), 1)
                thread.flush()

            _, messages = warned(rest)
            writer.flush()
            writer.close()
            print(len(messages), "FileNotFoundError" in messages[0])
            """
        )

        assert found.returncode == 0, found.stderr
        assert found.stdout.split() == ["1", "True"]


class TestUnwritable:
    def test_a_directory_that_cannot_be_made_is_the_users_error(self, tmp_path):
        (tmp_path / "file").write_text("in the way")

        with pytest.raises((NotADirectoryError, FileExistsError)):
            SummaryWriter(tmp_path / "file" / "run")


class TestEndings:
    @pytest.mark.parametrize(
        "ending", ["", "raise ValueError('of the user')", "del writer, thread; sys.exit(3)"]
    )
    def test_a_script_that_never_closes_its_writer_keeps_all_records(self, tmp_path, ending):
        run_training(
            f"""
            writer, thread = train({str(tmp_path)!r}, 25)
            {ending}
            """
        )

        assert records(tmp_path) == list(range(25))
        assert scalars(tmp_path) == list(range(25))

    def test_a_writer_that_is_dropped_at_the_very_end_keeps_all_records(self, tmp_path):
        """Its file's own thread has most of them still to write when the process ends."""
        run_training(
            f"""
            from tensorboard_torchexplorer.record_file import GuardedRecordWriter
            write = GuardedRecordWriter.write
            GuardedRecordWriter.write = lambda self, data: (time.sleep(0.02), write(self, data))
            writer, thread = train({str(tmp_path)!r}, 25)
            thread.flush()
            writer.add_scalar("loss", 25, 25)
            thread.submit(lambda: (events.step_values(Run(small()).record(25)), 25), 10_000)
            del writer, thread
            """
        )

        assert records(tmp_path) == list(range(26))
        assert scalars(tmp_path) == list(range(26))

    def test_nothing_that_was_flushed_is_lost_to_kill_9(self, tmp_path):
        for attempt in range(3):
            run = tmp_path / str(attempt)
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    TRAINING
                    + textwrap.dedent(
                        f"""
                        writer, thread = train({str(run)!r}, 10)
                        thread.flush()
                        print("flushed", flush=True)
                        big = Run(wide(200))
                        step = 10
                        while True:
                            values = events.step_values(big.record(step))
                            thread.submit(lambda values=values, step=step: (values, step), 1)
                            step += 1
                        """
                    ),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            with process:
                assert process.stdout.readline() == "flushed\n"
                time.sleep(random.Random(attempt).uniform(0.05, 0.4))
                process.send_signal(signal.SIGKILL)
            steps = records(tmp_path, str(attempt))

            assert steps == list(range(len(steps)))
            assert len(steps) >= 10

    def test_a_step_that_is_cut_off_does_not_hide_those_before(self, tmp_path):
        with SummaryWriter(tmp_path / "run") as writer:
            write(writer, Run(small()), range(5))
        (path,) = (tmp_path / "run").glob("*")
        whole = path.read_bytes()
        for length in random.Random(0).sample(range(len(whole) // 2, len(whole)), 25):
            path.write_bytes(whole[:length])
            loaded = Loaded(tmp_path)

            for run in loaded.json("runs")["runs"]:
                steps = loaded.json("steps", run="run", model="model")["train"]
                assert run["models"][0]["steps"] == len(steps)
                assert steps == list(range(len(steps)))
                assert loaded.get("series", run="run", model="model", node="0").status_code == 200

    def test_a_flipped_bit_hides_nothing_before_it(self, tmp_path):
        with SummaryWriter(tmp_path / "run") as writer:
            write(writer, Run(small()), range(5))
        (path,) = (tmp_path / "run").glob("*")
        whole = path.read_bytes()
        for at in random.Random(1).sample(range(len(whole)), 25):
            spoiled = bytearray(whole)
            spoiled[at] ^= 1 << at % 8
            path.write_bytes(spoiled)

            run = read(tmp_path).get("run")
            assert run is not None
            steps = run["model"].history().steps.tolist() if "model" in run else []
            assert "wrong checksum" in run.problems[0] or "ends within a record" in run.problems[0]
            assert steps == list(range(len(steps)))


class TestMemory:
    def test_it_is_flat_over_5000_records(self, tmp_path):
        found = run_training(
            f"""
            def resident():
                with open("/proc/self/statm") as file:
                    return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

            writer = SummaryWriter({str(tmp_path)!r})
            thread = background_of(writer)
            record = Run(small()).record(0)
            sizes = []
            for step in range(5000):
                thread.submit(lambda step=step: (events.step_values(record), step), 10_000)
                if step % 100 == 0:
                    thread.flush()
                if step in (1000, 4999):
                    sizes.append(resident())
            writer.close()
            print(sizes[1] - sizes[0])
            """
        )

        assert found.returncode == 0, found.stderr
        assert int(found.stdout) < 8 << 20


def test_c45_a_spawned_worker_does_not_need_the_thread(tmp_path):
    """A writer holds locks and can't be pickled; what a data loader is given must not reach one."""
    program = tmp_path / "program.py"
    program.write_text(
        TRAINING
        + textwrap.dedent(
            f"""
            import multiprocessing

            def work(number):
                from tensorboard_torchexplorer import background
                return number * 2, len(background._registry)

            if __name__ == "__main__":
                writer, thread = train({str(tmp_path / "run")!r}, 3)
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.map(work, [4]))
                thread.flush()
                writer.close()
            """
        )
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}

    found = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=120, env=environment
    )

    assert found.stdout.strip() == "[(8, 0)]", found.stderr
    assert records(tmp_path, "run") == [0, 1, 2]


def test_copies_of_a_run_directory_are_read_like_the_original(tmp_path):
    with SummaryWriter(tmp_path / "a") as writer:
        write(writer, Run(small()), range(3))
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    assert records(tmp_path, "b") == records(tmp_path, "a") == [0, 1, 2]
