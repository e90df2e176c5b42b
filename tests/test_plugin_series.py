"""The routes `series` and `health`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events
from tensorboard_torchexplorer.schema import HEALTH, ROW_FIELDS, Status
from tests.plugin_client import Loaded
from tests.plugin_records import write_records
from tests.record_graphs import GraphBuilder, port, resnet, small
from tests.records import Run, write


@pytest.fixture(scope="module")
def loaded(recorded_runs):
    return Loaded(recorded_runs)


class TestSeries:
    def test_every_number_is_what_was_recorded(self, loaded):
        graph, run = resnet(), Run(resnet())
        index = [node.id for node in graph.nodes].index("layer2/0/conv2")

        head, blocks = loaded.series(run="a", model="resnet18", node="layer2/0/conv2")

        assert head["steps"] == list(range(0, 40, 2))
        assert (head["total"], head["bins"], head["node"]) == (20, 30, "layer2/0/conv2")
        assert (head["level"], head["peers"]) == ("layer2/0", ["layer2/0/conv1", "layer2/0/conv2"])
        heads = [(s["group"], s["kind"], s["phase"]) for s in head["series"]]
        assert heads == [
            (group, kind, "train") for group in ("input", "output", "param") for kind in ("value", "grad")
        ] + [("input", "value", "eval"), ("output", "value", "eval")]
        assert head["series"][2]["shape"] == [32, 128, 16, 16]
        assert head["series"][4]["shape"] == [128, 128, 3, 3]
        for position, series in enumerate(head["series"]):
            stored = next(
                s
                for s in graph.series
                if (s.node == index or s.module == graph.nodes[index].module)
                and (s.group, s.kind) == (series["group"], series["kind"])
            )
            for column, step in enumerate(head["steps"]):
                if series["phase"] == "eval" and step % 10:
                    assert blocks["status"][position, column] == Status.NOT_RUN
                    continue
                row = run.record(step, series["phase"]).shards[stored.shard][stored.row]
                for name in (*(name for name, _ in ROW_FIELDS), "counts"):
                    np.testing.assert_array_equal(blocks[name][position, column], row[name])

    def test_c36_a_series_that_is_always_blank_is_there_with_its_reason(self, loaded):
        head, blocks = loaded.series(run="a", model="resnet18", node=".")

        heads = [(series["group"], series["kind"], series["phase"]) for series in head["series"]]
        assert heads.count(("input", "grad", "train")) == 1
        assert ("input", "grad", "eval") not in heads
        assert set(blocks["status"][heads.index(("input", "grad", "train"))]) == {Status.ROOT_INPUT}

    def test_c73_a_resumed_run_shows_the_new_rows(self, loaded):
        head, blocks = loaded.series(run="b/c", model="model", node="1")

        expected = [Run(small()).record(step) for step in range(6)]
        expected += [Run(small(), session="two", seed=5).record(step) for step in range(6, 13)]
        place = next(s for s in small().series if s.node == 2)
        assert blocks["mean"][0].tolist() == [r.shards[place.shard]["mean"][place.row] for r in expected]
        assert head["restarts"] == [6]

    def test_limit_thins_evenly_with_first_and_last(self, loaded):
        head, blocks = loaded.series(run="a", model="resnet18", node="fc", limit=5)

        assert (head["steps"], head["total"]) == ([0, 10, 20, 28, 38], 20)
        assert blocks["counts"].shape == (10, 5, 30)

    def test_c71_an_answer_stays_bounded(self, loaded, monkeypatch):
        monkeypatch.setattr("tensorboard_torchexplorer.series.MAX_ANSWER_BYTES", 10_000)

        head, _ = loaded.series(run="a", model="resnet18", node="fc", limit=100_000)

        assert len(head["steps"]) == 2

    def test_an_invocation_without_series_has_none(self, tmp_path):
        graph = replace(small(), series=[])
        write_records(tmp_path, Run(graph), [Run(graph).record(0)])

        head, blocks = Loaded(tmp_path).series(run=".", model="model", node="0")

        assert (head["series"], blocks["counts"].shape) == ([], (0, 1, 30))

    def test_wide_numbers_and_large_counts_keep_their_value(self, tmp_path):
        run = Run(small())
        record = run.record(0)
        rows = record.shards[0].copy()
        rows["max"][0], rows["size"][0], rows["counts"][0, 0] = 1e300, 2**40, 70_000
        write_records(tmp_path, run, [replace(record, shards={0: rows}, wide=True)])

        _, blocks = Loaded(tmp_path).series(run=".", model="model", node=".")

        assert (blocks["max"][0, 0], blocks["size"][0, 0], blocks["counts"][0, 0, 0]) == (
            1e300,
            2**40,
            70_000,
        )

    def test_rows_of_another_event_at_the_same_step_are_not_taken(self, tmp_path):
        """A process that went on at step 1 wrote no shard 0 there: the old one must not stand in for it."""
        run = Run(small())
        record = run.record(1)
        with SummaryWriter(tmp_path) as writer:
            write(writer, run, range(3))
            values = events.step_values(replace(record, info=replace(record.info, session="two"), shards={}))
            writer._get_file_writer().add_summary(Summary(value=values), 1)

        _, blocks = Loaded(tmp_path).series(run=".", model="model", node="0")

        assert blocks["status"][0].tolist() == [Status.OK, Status.NOT_RUN]

    def test_a_process_that_numbered_its_rows_differently(self, tmp_path):
        builder = GraphBuilder("model", "Sequential", bins=12)
        builder.ports(0, [], [])
        builder.call(0, "1", "Linear", [port(4, 8, name="input")], [port(4, 8, name="")], "", {})
        other = Run(builder.graph(), session="two", seed=3)
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small()), range(3))
            write(writer, other, range(3, 5))

        loaded = Loaded(tmp_path)
        head, blocks = loaded.series(run=".", model="model", node="1")
        level = loaded.json("graph", run=".", model="model")

        old_place = next(s for s in small().series if s.node == 2)
        expected = [Run(small()).record(step).shards[0]["mean"][old_place.row] for step in range(3)]
        expected += [other.record(step).shards[0]["mean"][0] for step in (3, 4)]
        assert blocks["mean"][0].tolist() == expected
        assert head["bins"] == 12
        assert blocks["counts"][0].sum(1).tolist() == [90] * 5
        assert [(node["id"], node["ran"]) for node in level["nodes"]] == [("1", 5), ("0", 3), ("2", 3)]


class TestHealth:
    def test_the_last_step_and_the_nearest_before_one(self, loaded):
        last = loaded.json("health", run="a", model="resnet18", stat="gradient")
        earlier = loaded.json("health", run="a", model="resnet18", stat="gradient", step=11)

        assert (last["step"], earlier["step"]) == (38, 10)
        recorded = Run(resnet()).record(10).health[:, HEALTH.index("gradient")]
        np.testing.assert_allclose(earlier["own"], recorded, rtol=2**-7)
        assert earlier["nodes"] == list(range(len(recorded)))
        np.testing.assert_allclose(earlier["worst"][0], recorded.max(), rtol=2**-7)

    def test_the_legend_spans_all_steps(self, loaded):
        found = loaded.json("health", run="a", model="resnet18", stat="gradient", step=4)

        everything = np.stack([Run(resnet()).record(step).health[:, 0] for step in range(0, 40, 2)])
        np.testing.assert_allclose(
            [found["low"], found["high"]], [everything.min(), everything.max()], rtol=2**-7
        )

    def test_what_is_unknown_is_null(self, loaded):
        found = loaded.json("health", run="a", model="resnet18", stat="parameter")

        conv1, relu = 1, 3
        assert found["own"][relu] is None
        assert found["own"][conv1] > 0
        assert None not in found["worst"][:1]

    def test_before_the_first_step_there_is_nothing(self, tmp_path):
        write_records(tmp_path, Run(small()), [Run(small()).record(5)])

        response = Loaded(tmp_path).get("health", run=".", model="model", stat="zeros", step=4)

        assert (response.status_code, "up to 4" in response.text) == (404, True)
