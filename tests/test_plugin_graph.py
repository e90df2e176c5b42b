"""The routes `graph` and `search`."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import schema_json
from tests.plugin_client import Loaded
from tests.plugin_records import write_records
from tests.record_graphs import GraphBuilder, port, small, vqvae
from tests.records import Run, write


@pytest.fixture(scope="module")
def loaded(recorded_runs):
    return Loaded(recorded_runs)


class TestGraph:
    def test_the_root_level_and_an_inner_one(self, loaded):
        root = loaded.json("graph", run="a", model="resnet18")
        inner = loaded.json("graph", run="a", model="resnet18", node="layer1/0")

        assert (root["node"]["id"], len(root["nodes"]), root["steps"]) == (".", 9, 20)
        assert [a[0] for a in inner["ancestors"]] == [".", "layer1"]
        assert all(node["ran"] == 20 for node in inner["nodes"])

    def test_c70_of_thousands_of_modules_only_the_visible_level_is_sent(self, tmp_path):
        builder = GraphBuilder("deep", "Deep")
        builder.ports(0, [port(4, 8)], [port(4, 8, name="")])
        for block in range(30):
            inner = builder.call(0, f"blocks.{block}", "Block", [port(4, 8)], [port(4, 8, name="")])
            for layer in range(100):
                builder.call(inner, f"layers.{layer}", "Linear", [port(4, 8)], [port(4, 8, name="")])
        run = Run(builder.graph())
        write_records(tmp_path, run, [run.record(0)])
        loaded = Loaded(tmp_path)

        root = loaded.json("graph", run=".", model="deep")
        block = loaded.json("graph", run=".", model="deep", node="blocks/7")

        assert len(run.graph.nodes) == 1 + 30 * 101
        assert [node["id"] for node in root["nodes"]] == [f"blocks/{block}" for block in range(30)]
        assert [node["id"] for node in block["nodes"]] == [f"blocks/7/layers/{at}" for at in range(100)]
        assert len(json.dumps(root)) < len(schema_json.dumps(run.graph)) / 20

    def test_the_whole_graph(self, loaded):
        found = loaded.json("graph", run="a", model="vqvae", whole=1)

        assert found == json.loads(schema_json.dumps(vqvae()))

    def test_nodes_count_the_steps_in_which_they_ran(self, tmp_path):
        run = Run(small())
        records = [
            replace(record, info=replace(record.info, ran=ran))
            for record, ran in zip(
                map(run.record, range(3)), ([[0, 4]], [[0, 2], [3, 1]], [[0, 1], [3, 99]]), strict=True
            )
        ]
        write_records(tmp_path, run, records)

        found = Loaded(tmp_path).json("graph", run=".", model="model")

        assert [found["node"]["ran"], *(node["ran"] for node in found["nodes"])] == [3, 2, 1, 3]

    def test_nodes_that_another_process_scattered_are_counted(self, tmp_path):
        builder = GraphBuilder("model", "Sequential")
        for name in ("0", "x", "2"):
            builder.call(0, name, "Linear", [], [])
        run, other = Run(small()), Run(builder.graph(), session="two")
        records = [replace(r, info=replace(r.info, ran=[[1, 3]])) for r in map(run.record, range(3))]
        write_records(tmp_path, run, records)
        time.sleep(1.1)
        write_records(tmp_path, other, [other.record(3)])

        nodes = Loaded(tmp_path).json("graph", run=".", model="model")["nodes"]

        assert [(node["id"], node["ran"]) for node in nodes] == [("0", 4), ("x", 1), ("2", 4), ("1", 3)]

    def test_the_graph_grows_while_the_run_lasts(self, tmp_path):
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small(layers=2)), range(3))
            write(writer, Run(small(layers=4)), range(3, 6))

        loaded = Loaded(tmp_path)
        found = loaded.json("graph", run=".", model="model")
        head, blocks = loaded.series(run=".", model="model", node="3")

        assert [node["id"] for node in found["nodes"]] == ["0", "1", "2", "3"]
        assert head["steps"] == [0, 1, 2, 3, 4, 5]
        assert (blocks["status"] == [1, 1, 1, 0, 0, 0]).all()


def test_search(loaded):
    found = loaded.json("search", run="a", model="resnet18", q="BATCHNORM")

    assert found["total"] == 17
    assert found["matches"][0]["id"] == "bn1"
