"""Runs that went on in the same directory, as a real `tensorboard` shows them under each loader: row C73 of
the public faults, and C77 for files that go away meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events
from tests.plugin_client import parse_series
from tests.record_graphs import small
from tests.records import Run, write
from tests.tensorboard_server import PLUGIN, Server, tensorboard_server

BOTH = pytest.mark.parametrize("load_fast", ["true", "false"], ids=["data server", "Python loader"])


class Session:
    """One process's part of a run, of a model with so many layers."""

    def __init__(self, name: str, steps: Iterable[int], evaluated: Iterable[int] = (), layers: int = 3):
        self.steps, self.evaluated = list(steps), list(evaluated)
        self.run = Run(small(layers=layers), session=name, seed=len(name))

    def write(self, where: Path, purge: bool) -> None:
        # Who resumes purges; who evaluates does not.
        with SummaryWriter(where, purge_step=self.steps[0] if purge and self.steps else None) as writer:
            for step in self.steps:
                write(writer, self.run, [step], graph=step == self.steps[0])
                writer.add_scalar("loss", step, step)
                if step in self.evaluated:
                    write(writer, self.run, [step], "eval", graph=False)
            for step in () if self.steps else self.evaluated:
                values = events.graph_values(self.run.graph, "eval")
                values += events.step_values(self.run.record(step, "eval"))
                writer._get_file_writer().add_summary(Summary(value=values), step)


RUNS = {
    "twice back": [Session("1", range(21)), Session("22", range(10, 16)), Session("333", range(5, 9))],
    "back and on": [Session("1", range(21)), Session("22", range(10, 16)), Session("333", range(16, 20))],
    "on after a gap": [Session("1", range(10)), Session("22", range(20, 25))],
    "from the last step": [Session("1", range(11)), Session("22", range(10, 13))],
    "from the beginning": [Session("1", range(21)), Session("22", range(4))],
    "another model": [Session("1", range(10), layers=2), Session("22", range(5, 8), layers=4)],
    "evaluation": [Session("1", range(21), [0, 10, 20]), Session("22", range(12, 19), [15])],
    "cut off": [Session("1", range(10)), Session("22", range(5, 8))],
    "an old step evaluated": [Session("1", range(10), [0, 4, 8]), Session("22", [], [4], layers=2)],
    "evaluated anew": [Session("1", range(10)), Session("22", [], [0], layers=4)],
}
EXPECTED = {
    "twice back": (range(9), [5]),
    "back and on": (range(20), [10, 16]),
    "on after a gap": ([*range(10), *range(20, 25)], [20]),
    "from the last step": (range(13), [10]),
    "from the beginning": (range(4), []),
    "another model": (range(8), [5]),
    "evaluation": (range(19), [12]),
    "cut off": (range(8), [5]),
    "an old step evaluated": (range(10), []),
    "evaluated anew": (range(10), []),
}
EVALUATED = {"evaluation": [0, 10, 15], "an old step evaluated": [0, 4], "evaluated anew": [0]}


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """Each run twice: the later processes with `purge_step` and without."""
    path = tmp_path_factory.mktemp("resumed")
    for turn in range(3):
        for name, sessions in RUNS.items():
            for session in sessions[turn : turn + 1]:
                for purge in (False, True):
                    where = path / f"{name} {purge}"
                    session.write(where, purge and turn > 0)
                    if name == "cut off" and turn == 0:
                        (file,) = where.iterdir()
                        file.write_bytes(file.read_bytes()[:-300])
        time.sleep(1.1)  # the names of event files begin with the second they were made in
    return path


@pytest.fixture(scope="module", params=["true", "false"], ids=["data server", "Python loader"])
def server(request, logdir):
    with tensorboard_server(logdir, request.param) as found:
        for name, (steps, _) in EXPECTED.items():
            for purge in (False, True):
                found.wait_for_steps(f"{name} {purge}", "model", steps[-1])
        yield found
        assert "Traceback" not in found.output()


def written_last(name: str, step: int) -> Run:
    """The run of the process whose record of the step counts."""
    return next(session.run for session in RUNS[name][::-1] if session.steps and step >= session.steps[0])


def series(server: Server, run: str, node: str):
    answer = server.get(PLUGIN + "series", run=run, model="model", node=node)
    assert answer.status == 200, answer.body
    return parse_series(answer.body)


@pytest.mark.parametrize("purge", [False, True], ids=["without purge_step", "with purge_step"])
@pytest.mark.parametrize("name", RUNS)
class TestResumed:
    def test_c73_it_is_one_history_with_its_restarts(self, server, name, purge):
        steps, restarts = EXPECTED[name]

        found = server.plugin("steps", run=f"{name} {purge}", model="model")

        assert found["train"] == list(steps)
        assert found["restarts"] == restarts
        assert found["eval"] == EVALUATED.get(name, [])
        assert found["faults"] == []
        entries = {run["name"]: run["models"] for run in server.plugin("runs")["runs"]}
        (entry,) = entries[f"{name} {purge}"]
        assert (entry["steps"], entry["first"], entry["last"]) == (len(steps), 0, steps[-1])

    def test_c73_each_step_has_the_row_that_was_written_last(self, server, name, purge):
        head, blocks = series(server, f"{name} {purge}", "0")

        assert head["steps"] == list(EXPECTED[name][0])
        for column, step in enumerate(head["steps"]):
            run = written_last(name, step)
            place = next(s for s in run.graph.series if s.node == 1)
            assert blocks["mean"][0, column] == run.record(step).shards[place.shard]["mean"][place.row]

    def test_c73_the_statistics_are_of_the_same_records(self, server, name, purge):
        last = EXPECTED[name][0][-1]

        found = server.plugin("health", run=f"{name} {purge}", model="model", stat="zeros", step=last)

        own = written_last(name, last).record(last).health[0]
        assert found["own"][0] == pytest.approx(own[2], rel=2**-7)


def test_c73_nodes_of_both_models_are_there_with_the_steps_they_ran_in(server):
    for purge in (False, True):
        level = server.plugin("graph", run=f"another model {purge}", model="model")

        assert {node["id"]: node["ran"] for node in level["nodes"]} == {"0": 8, "1": 8, "2": 3, "3": 3}
        head, blocks = series(server, f"another model {purge}", "3")
        assert head["steps"] == list(range(8))
        assert (blocks["status"][0] == 0).tolist() == [False] * 5 + [True] * 3


@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize(("name", "step"), [("an old step evaluated", 4), ("evaluated anew", 0)])
def test_c73_a_process_that_only_evaluates_has_a_graph_of_its_own(server, name, step, purge):
    """Its rows lie where its own graph says, those of the training where that one's does."""
    head, blocks = series(server, f"{name} {purge}", "1")
    trained, evaluated = (session.run for session in RUNS[name])

    for index, (one, phase) in enumerate([(trained, "train"), (evaluated, "eval")]):
        position = next(at for at, found in enumerate(head["series"]) if found["phase"] == phase)
        place = next(s for s in one.graph.series if s.node == 2)
        stored = one.record(step, phase).shards[place.shard]["mean"][place.row]
        assert blocks["mean"][position, head["steps"].index(step)] == stored, index


def test_c73_of_the_users_scalars_tensorboard_alone_decides(server):
    """What is purged of them is what the writer's own `purge_step` asks for."""
    found = server.get_json("data/plugin/scalars/scalars", run="on after a gap False", tag="loss")

    assert [step for _, step, _ in found] == [*range(10), *range(20, 25)]


@BOTH
class TestFilesThatGo:
    def test_c77_a_file_that_is_deleted_takes_nothing_else_along(self, tmp_path, load_fast):
        for name in ("stays", "goes"):
            with SummaryWriter(tmp_path / name) as writer:
                write(writer, Run(small()), range(5))
        with tensorboard_server(tmp_path, load_fast) as server:
            for name in ("stays", "goes"):
                server.wait_for_steps(name, "model", 4)
            (file,) = (tmp_path / "goes").iterdir()

            file.unlink()
            if load_fast == "true":
                server.wait_for(lambda: [run["name"] for run in server.plugin("runs")["runs"]] == ["stays"])
            time.sleep(1.1)
            with SummaryWriter(tmp_path / "stays") as writer:
                write(writer, Run(small(), session="two"), range(5, 8))

            server.wait_for_steps("stays", "model", 7)
            # The Python loader keeps what it has read for as long as the directory is there.
            gone = server.get(PLUGIN + "steps", run="goes", model="model")
            assert gone.status == 404 if load_fast == "true" else gone.json["train"] == list(range(5))

    def test_c77_of_two_files_one_is_deleted(self, tmp_path, load_fast):
        with SummaryWriter(tmp_path / "run") as writer:
            write(writer, Run(small()), range(5))
        time.sleep(1.1)
        with SummaryWriter(tmp_path / "run") as writer:
            write(writer, Run(small(), session="two"), range(5, 8))
        with tensorboard_server(tmp_path, load_fast) as server:
            server.wait_for_steps("run", "model", 7)

            sorted((tmp_path / "run").iterdir())[0].unlink()
            time.sleep(3)  # a few reloads

            answer = server.get(PLUGIN + "steps", run="run", model="model")
            assert answer.status == 200
            assert answer.json["train"][-3:] == [5, 6, 7]
            assert series(server, "run", "0")[0]["steps"][-3:] == [5, 6, 7]
            assert server.process.poll() is None
