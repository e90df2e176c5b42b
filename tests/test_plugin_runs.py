"""The routes `runs` and `steps`."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer.schema import Fault
from tests.plugin_client import Loaded
from tests.plugin_records import write_records
from tests.record_graphs import small
from tests.records import Run, write


@pytest.fixture(scope="module")
def loaded(recorded_runs):
    return Loaded(recorded_runs)


class TestRuns:
    def test_runs_and_models_with_their_steps(self, loaded):
        found = loaded.json("runs")

        assert [(run["name"], [m["name"] for m in run["models"]]) for run in found["runs"]] == [
            ("a", ["resnet18", "vqvae"]),
            ("b/c", ["model"]),
        ]
        model = found["runs"][1]["models"][0]
        assert (model["steps"], model["first"], model["last"], model["problem"]) == (13, 0, 12, "")

    def test_the_token_changes_with_new_records_only(self, tmp_path):
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small()), range(3))
            writer.flush()
            loaded = Loaded(tmp_path)
            token, again = (loaded.json("runs")["runs"][0]["models"][0]["token"] for _ in range(2))
            write(writer, Run(small()), [3], graph=False)
            writer.flush()
            loaded.reload()
            later = loaded.json("runs")["runs"][0]["models"][0]

        assert token == again != later["token"]
        assert later["last"] == 3

    def test_a_run_that_appears_later_is_found(self, tmp_path):
        loaded = Loaded(tmp_path)
        assert loaded.json("runs")["runs"] == []
        with SummaryWriter(tmp_path / "new") as writer:
            write(writer, Run(small()), range(2))
        loaded.reload()

        assert [run["name"] for run in loaded.json("runs")["runs"]] == ["new"]

    def test_polling_reads_only_what_changed(self, recorded_runs):
        loaded = Loaded(recorded_runs)
        loaded.json("runs")
        calls = []
        loaded.provider.read_tensors = lambda *args, **kwargs: calls.append(kwargs)

        loaded.json("runs")

        assert calls == []

    def test_many_runs_are_polled_quickly(self, tmp_path):
        for number in range(60):
            with SummaryWriter(tmp_path / str(number)) as writer:
                write(writer, Run(small()), range(2))
        loaded = Loaded(tmp_path)
        loaded.json("runs")

        start = time.perf_counter()
        found = loaded.json("runs")

        assert len(found["runs"]) == 60
        assert time.perf_counter() - start < 0.5


class TestSteps:
    def test_phases_times_and_restarts(self, loaded):
        found = loaded.json("steps", run="a", model="resnet18")
        resumed = loaded.json("steps", run="b/c", model="model")

        assert found["train"] == list(range(0, 40, 2))
        assert found["eval"] == [0, 10, 20, 30]
        assert len(found["wall"]) == len(found["time"]) == 20
        assert (found["restarts"], found["unit"], found["faults"]) == ([], "", [])
        assert (resumed["train"], resumed["restarts"]) == (list(range(13)), [6])

    def test_the_users_time_axis(self, loaded):
        found = loaded.json("steps", run="a", model="vqvae")

        assert found["unit"] == "epoch"
        assert found["time"] == [step / 4 for step in range(9)]

    def test_faults_skipped_steps_and_losses_are_told(self, tmp_path):
        run = Run(small(), faults=[Fault("1", "output", "ValueError: x")])
        records = [run.record(0), run.record(1, skipped=True)]
        records[1] = replace(records[1], info=replace(records[1].info, dropped=4))
        write_records(tmp_path, run, records)

        found = Loaded(tmp_path).json("steps", run=".", model="model")

        assert found["faults"] == [{"path": "1", "place": "output", "error": "ValueError: x"}]
        assert (found["skipped"], found["dropped"]) == ([1], 4)
