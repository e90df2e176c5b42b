from __future__ import annotations

import shutil
import time
import zlib

import fsspec
import numpy as np
import pytest
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events, reader, schema_json
from tensorboard_torchexplorer.reader import read
from tensorboard_torchexplorer.schema import HEALTH, Status
from tests.plugin_client import Loaded
from tests.record_graphs import resnet, small, vqvae
from tests.records import ODD_NAMES, Run, stored_graph, write


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs")
    with SummaryWriter(path / "a") as writer:
        write(writer, Run(resnet()), range(6))
        write(writer, Run(resnet()), [0, 4], "eval", graph=False)
        write(writer, Run(vqvae(), time_of={step: step / 4 for step in range(6)}), range(6))
        writer.add_scalar("loss", 1.0, 0)
    return path


def event_file(run):
    (found,) = run.glob("events.out.tfevents.*")
    return found


class TestWhatWasWritten:
    def test_runs_models_and_graphs(self, logdir):
        runs = read(logdir)

        assert list(runs) == ["a"]
        assert list(runs["a"]) == ["resnet18", "vqvae"]
        graph = runs["a"]["resnet18"].graph
        assert graph == resnet()
        assert {type(part) for part in (graph.modules, graph.nodes, graph.edges, graph.series)} == {list}
        assert (runs["a"]["vqvae"].unit, runs["a"].problems) == ("epoch", [])

    @pytest.mark.parametrize(("phase", "steps"), [("train", list(range(6))), ("eval", [0, 4])])
    def test_every_row_of_every_step(self, logdir, phase, steps):
        history = read(logdir)["a"]["resnet18"].history(phase)

        table = history.table(range(len(resnet().series)))

        assert history.steps.tolist() == steps
        for column, step in enumerate(steps):
            record = Run(resnet()).record(step, phase)
            assert history.infos[column] == record.info
            expected = np.array([record.shards[s.shard][s.row] for s in resnet().series])
            assert table[:, column].tobytes() == expected.tobytes()
        assert history.rows(3).tobytes() == table[3].tobytes()

    def test_health(self, logdir):
        found = read(str(logdir))["a"]["resnet18"].history().health()

        assert found.shape == (6, len(resnet().nodes), len(HEALTH))
        np.testing.assert_allclose(found[2], Run(resnet()).record(2).health, rtol=2**-7)

    def test_c73_a_resumed_run(self, tmp_path):
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small()), range(101))
        time.sleep(1.1)
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small(), session="two", seed=4), range(50, 60))

        model = read(tmp_path)["."]["model"]

        assert model.history().steps.tolist() == list(range(60))
        assert model.restarts == [50]
        expected = Run(small(), session="two", seed=4).record(50).shards[0]["mean"][0]
        assert model.history().rows(0)["mean"][50] == expected

    def test_c75_odd_names(self, tmp_path):
        for name in ODD_NAMES:
            directory = tmp_path / (name if "/" not in name and name != ".." else "plain")
            with SummaryWriter(directory) as writer:
                write(writer, Run(small(name)), range(2))

        runs = read(tmp_path)

        assert sorted(name for run in runs.values() for name in run) == sorted(ODD_NAMES)

    def test_it_agrees_with_the_routes(self, logdir):
        head, blocks = Loaded(logdir).series(run="a", model="resnet18", node="conv1")
        model = read(logdir)["a"]["resnet18"]

        index = next(i for i, s in enumerate(model.graph.series) if s.node == 1)
        assert head["steps"] == model.history().steps.tolist()
        np.testing.assert_array_equal(blocks["max"][0], model.history().rows(index)["max"])

    def test_c73_a_run_that_a_later_version_of_the_package_resumed(self, tmp_path, monkeypatch):
        first, second = Run(small(layers=2)), Run(small(layers=3), session="two", seed=1)
        with monkeypatch.context() as earlier, SummaryWriter(tmp_path) as writer:
            earlier.setattr(events, "encode_graph", lambda graph: zlib.compress(schema_json.dumps(graph)))
            write(writer, first, range(5))
        time.sleep(1.1)
        with SummaryWriter(tmp_path) as writer:
            write(writer, second, range(3, 6))

        model = read(tmp_path)["."]["model"]

        assert (model.graph.nodes, model.graph.series) == (second.graph.nodes, second.graph.series)
        assert {*model.graph.edges} == {*first.graph.edges, *second.graph.edges}
        assert (model.history().steps.tolist(), model.restarts) == ([*range(6)], [3])
        place = model.graph.series.index(next(s for s in second.graph.series if s.node == 3))
        assert (model.history().rows(place)["status"] == 0).tolist() == [False] * 3 + [True] * 3
        shared = model.history().rows(0)
        for step in range(6):
            run = first if step < 3 else second
            assert shared["mean"][step] == run.record(step).shards[0]["mean"][0]


class TestErrors:
    def test_no_directory(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"logdir: there is no directory .*missing"):
            read(tmp_path / "missing")

    def test_an_empty_directory_has_no_runs(self, tmp_path):
        assert read(tmp_path) == {}

    def test_wrong_arguments_are_named(self, logdir):
        model = read(logdir)["a"]["resnet18"]

        with pytest.raises(ValueError, match=r"phase: expected one of .* got 'test'"):
            model.history("test")
        with pytest.raises(IndexError, match="series 9999 of"):
            model.history().rows(9999)

    def test_a_newer_version_is_named_and_others_are_read(self, tmp_path):
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small()), range(2))
            (value,) = events.graph_values(small("new"))
            value.tensor.tensor_content = stored_graph(small("new"), 9)
            value.tensor.tensor_shape.dim[0].size = len(value.tensor.tensor_content)
            writer._get_file_writer().add_summary(Summary(value=[value]), 0)

        run = read(tmp_path)["."]

        assert list(run) == ["model"]
        assert "written by a newer version" in run.problems[0]

    def test_a_damaged_step_is_named(self, tmp_path):
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small()), range(2))
            values = events.step_values(Run(small()).record(2))
            values[-1].tensor.tensor_content = b"damaged"
            writer._get_file_writer().add_summary(Summary(value=values), 2)

        run = read(tmp_path)["."]

        assert run["model"].history().steps.tolist() == [0, 1]
        assert "model 'model', train step 2: compressed data is damaged" in run.problems[0]

    @pytest.mark.parametrize(
        ("spoil", "named"),
        [
            (lambda data: data[:-1], "ends within a record"),
            (lambda data: data[:-2000], "ends within a record"),
            (lambda data: data + b"\x07", "ends within a record"),
            (lambda data: data[:-30] + b"\0" + data[-29:], "wrong checksum"),
            (lambda data: data + b"\xff" * 100, "wrong checksum of a length"),
            (lambda data: b"", ""),
            (lambda data: b"not an event file" * 9, "wrong checksum of a length"),
        ],
    )
    def test_damage_is_named_and_what_comes_before_is_read(self, logdir, tmp_path, spoil, named):
        (tmp_path / "good").mkdir()
        (tmp_path / "bad").mkdir()
        data = event_file(logdir / "a").read_bytes()
        (tmp_path / "good" / "events.out.tfevents.1").write_bytes(data)
        (tmp_path / "bad" / "events.out.tfevents.1").write_bytes(spoil(data))

        runs = read(tmp_path)

        assert runs["good"].problems == []
        assert list(runs["good"]) == ["resnet18", "vqvae"]
        if named:
            assert named in runs["bad"].problems[0]
            assert runs["bad"].problems[0].startswith("events.out.tfevents.1: ")

    def test_a_record_that_claims_to_be_huge_is_not_read(self, tmp_path):
        from tensorboard_torchexplorer.crc import masked_crc32c

        header = (1 << 62).to_bytes(8, "little")
        path = tmp_path / "events.out.tfevents.1"
        path.write_bytes(header + masked_crc32c(header).to_bytes(4, "little") + bytes(100))

        assert "ends within a record at byte 0" in read(tmp_path)["."].problems[0]

    def test_a_file_that_grows_while_it_is_read_is_no_problem(self, tmp_path):
        """What is there when the reading begins is read; what comes meanwhile may not be complete."""
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small()), range(3))
            writer.flush()
            path = event_file(tmp_path)
            events = reader._events(str(path))
            first = next(events)
            write(writer, Run(small()), range(3, 300), graph=False)
            writer.flush()

            assert [event.step for event in (first, *events)] == [0, 0, 1, 2]

    def test_a_directory_that_looks_like_an_event_file(self, logdir, tmp_path):
        shutil.copytree(logdir, tmp_path, dirs_exist_ok=True)
        (tmp_path / "a" / "events.out.tfevents.directory").mkdir()

        assert read(tmp_path)["a"].problems == []

    def test_tags_of_another_plugin_are_not_ours(self, tmp_path):
        """TensorBoard goes by the metadata of a tag's first value."""
        with SummaryWriter(tmp_path) as writer:
            for step, name in enumerate(["other", "torchexplorer"]):
                values = events.graph_values(small()) + events.step_values(Run(small()).record(step))
                for value in values:
                    value.metadata.plugin_data.plugin_name = name
                writer._get_file_writer().add_summary(Summary(value=values), step)

        steps = [model.history().steps.tolist() for run in read(tmp_path).values() for model in run.values()]

        assert steps == Loaded(tmp_path).json("runs")["runs"] == []

    def test_a_blank_row_says_why(self, logdir):
        history = read(logdir)["a"]["resnet18"].history()
        root_input_grad = next(i for i, s in enumerate(resnet().series) if (s.node, s.kind) == (0, "grad"))

        assert set(history.rows(root_input_grad)["status"]) == {Status.ROOT_INPUT}


def test_c77_an_fsspec_directory(logdir):
    memory = fsspec.filesystem("memory")
    memory.pipe("/records/a/events.out.tfevents.1", event_file(logdir / "a").read_bytes())

    runs = read("memory://records")

    assert list(runs["a"]) == ["resnet18", "vqvae"]
    assert runs["a"]["resnet18"].history().steps.tolist() == list(range(6))
