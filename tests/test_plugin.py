"""The routes, over real event files and TensorBoard's own multiplexer."""

from __future__ import annotations

import json
import time
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.base_plugin import TBContext
from torch.utils.tensorboard import SummaryWriter
from werkzeug.test import Client

from tensorboard_torchexplorer import backend, events, plugin, schema_json
from tensorboard_torchexplorer.schema import HEALTH, ROW_FIELDS, Fault, Status
from tests.plugin_client import Loaded, parse_series
from tests.records import GraphBuilder, Run, port, resnet, small, stored_graph, vqvae, write

ROUTES = ("runs", "steps", "graph", "series", "health", "search")


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """Run "a" with two models and evaluation, run "b/c" that was resumed, and one without records."""
    path = tmp_path_factory.mktemp("logs")
    with SummaryWriter(path / "a") as writer:
        write(writer, Run(resnet()), range(0, 40, 2))
        write(writer, Run(resnet()), range(0, 40, 10), "eval", graph=False)
        write(writer, Run(vqvae(), time_of={step: step / 4 for step in range(9)}), range(9))
    with SummaryWriter(path / "b" / "c") as writer:
        write(writer, Run(small()), range(10))
    time.sleep(1.1)
    with SummaryWriter(path / "b" / "c") as writer:
        write(writer, Run(small(), session="two", seed=5), range(6, 13))
    with SummaryWriter(path / "scalars only") as writer:
        writer.add_scalar("loss", 1, 1)
    return path


@pytest.fixture(scope="module")
def loaded(logdir):
    return Loaded(logdir)


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

    def test_polling_reads_only_what_changed(self, logdir):
        loaded = Loaded(logdir)
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


class TestGraph:
    def test_the_root_level_and_an_inner_one(self, loaded):
        root = loaded.json("graph", run="a", model="resnet18")
        inner = loaded.json("graph", run="a", model="resnet18", node="layer1/0")

        assert (root["node"]["id"], len(root["nodes"]), root["steps"]) == (".", 9, 20)
        assert [a[0] for a in inner["ancestors"]] == [".", "layer1"]
        assert all(node["ran"] == 20 for node in inner["nodes"])

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


def test_search(loaded):
    found = loaded.json("search", run="a", model="resnet18", q="BATCHNORM")

    assert found["total"] == 17
    assert found["matches"][0]["id"] == "bn1"


class TestRequests:
    @pytest.mark.parametrize("route", ROUTES[1:])
    def test_a_missing_parameter_is_named(self, loaded, route):
        response = loaded.get(route, model="resnet18")

        assert response.status_code == 400
        assert "run: this parameter is required" in response.text

    @pytest.mark.parametrize(
        ("route", "query", "named"),
        [
            ("graph", {"whole": "2"}, "whole"),
            ("series", {"node": "fc", "limit": "1"}, "limit"),
            ("series", {"node": "fc", "limit": "x"}, "limit"),
            ("series", {"node": "fc", "limit": ""}, "limit"),
            ("series", {"node": "fc", "limit": "100001"}, "limit"),
            ("series", {"node": "fc", "limit": "9" * 5000}, "limit"),
            ("series", {"node": "fc", "limit": "\u0663"}, "limit"),
            ("series", {}, "node"),
            ("health", {"stat": "beauty"}, "stat"),
            ("health", {"stat": "zeros", "step": "-1"}, "step"),
            ("health", {"stat": "zeros", "step": "1.5"}, "step"),
            ("search", {}, "q"),
            ("search", {"q": "x" * 1001}, "q"),
            ("steps", {"model": ["resnet18", "vqvae"]}, "model"),
        ],
    )
    def test_a_wrong_parameter_is_named(self, loaded, route, query, named):
        response = loaded.get(route, **({"run": "a", "model": "resnet18"} | query))

        assert response.status_code == 400
        assert f"{named}: " in response.text
        assert len(response.text) < 500

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ({"run": "z"}, "no run 'z'"),
            ({"run": "scalars only"}, "run 'scalars only' has no model 'resnet18'"),
            ({"model": "z"}, "run 'a' has no model 'z'"),
            ({"model": ""}, "run 'a' has no model ''"),
            ({"node": "layer9"}, "has no node 'layer9'"),
        ],
    )
    def test_what_is_not_there_is_named(self, loaded, query, message):
        response = loaded.get("series", **({"run": "a", "model": "resnet18", "node": "fc"} | query))

        assert response.status_code == 404
        assert message in response.text

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    def test_only_reading_is_allowed(self, loaded, method):
        for path in loaded.apps:
            response = loaded.open(path, method=method)

            assert response.status_code == 405
            assert response.headers["Allow"] == "GET, HEAD"

    def test_head_has_the_headers_and_no_body(self, loaded):
        response = loaded.get("runs", method="HEAD")

        assert (response.status_code, response.data) == (200, b"")
        assert response.headers["ETag"] == loaded.get("runs").headers["ETag"]

    @pytest.mark.parametrize("route", ROUTES)
    def test_an_unchanged_answer_is_not_sent_again(self, loaded, route):
        query = {"run": "a", "model": "resnet18", "node": "fc", "stat": "zeros", "q": "x"}
        tag = loaded.get(route, **query).headers["ETag"]

        response = loaded.get(route, headers={"If-None-Match": tag}, **query)

        assert (response.status_code, response.data) == (304, b"")
        assert loaded.get(route, headers={"If-None-Match": '"other"'}, **query).status_code == 200

    def test_an_etag_belongs_to_one_request(self, loaded):
        tag = loaded.get("series", run="a", model="resnet18", node="fc").headers["ETag"]

        response = loaded.get(
            "series", run="a", model="resnet18", node="conv1", headers={"If-None-Match": tag}
        )

        assert response.status_code == 200

    def test_an_unchanged_answer_is_not_made_again(self, logdir, monkeypatch):
        loaded = Loaded(logdir)
        first = loaded.get("series", run="a", model="resnet18", node="fc").data
        monkeypatch.setattr(backend.Backend, "series", None)

        assert loaded.get("series", run="a", model="resnet18", node="fc").data == first

    def test_a_series_is_one_read(self, logdir):
        loaded = Loaded(logdir)
        calls = []
        read = loaded.provider.read_tensors
        loaded.provider.read_tensors = lambda *args, **kwargs: calls.append(1) or read(*args, **kwargs)
        loaded.get("graph", run="a", model="resnet18")
        calls.clear()

        loaded.get("series", run="a", model="resnet18", node="fc")

        assert len(calls) == 1

    @pytest.mark.parametrize(
        "path", ["/../../etc/passwd", "/%2e%2e/x", "/static/index.js", "/index.js/../x", "/*"]
    )
    def test_no_path_leads_to_a_file(self, loaded, path):
        assert path not in loaded.apps

    def test_c81_the_tab_is_served_as_a_script(self, loaded):
        response = loaded.open("/index.js")

        assert response.status_code == 200
        assert response.headers["Content-Type"].startswith("text/javascript")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert b"render" in response.data

    def test_the_tab_finds_the_scripts_that_it_loads_later(self, monkeypatch, tmp_path):
        static = tmp_path / "static"
        static.mkdir()
        for name in ("index.js", "extras-a_B-1.js", "report.js", "THIRD_PARTY_LICENSES.md"):
            (static / name).write_text(f"// {name}")
        monkeypatch.setattr(plugin.resources, "files", lambda package: tmp_path)

        apps = plugin.TorchExplorerPlugin(TBContext()).get_plugin_apps()

        assert {path for path in apps if "." in path} == {"/index.js", "/extras-a_B-1.js"}
        assert Client(apps["/extras-a_B-1.js"]).get("/").data == b"// extras-a_B-1.js"

    def test_without_a_build_the_tab_says_so(self, monkeypatch, tmp_path):
        monkeypatch.setattr(plugin.resources, "files", lambda package: tmp_path)

        apps = plugin.TorchExplorerPlugin(TBContext()).get_plugin_apps()

        assert b"npm run build" in Client(apps["/index.js"]).get("/").data

    def test_answers_are_never_sniffed_nor_kept_unasked(self, loaded):
        for route in ROUTES:
            response = loaded.get(route, run="a", model="resnet18", node="fc", stat="zeros", q="x")

            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == "no-cache, must-revalidate"


class TestDamage:
    @pytest.fixture
    def damaged(self, tmp_path):
        """Good runs beside each kind of bad one."""
        with SummaryWriter(tmp_path / "good") as writer:
            write(writer, Run(small()), range(3))
        for name, graph, change in (
            ("graph", b"damaged", None),
            ("newer graph", stored_graph(small(), 9), None),
            ("index", None, lambda tag, payload: b"damaged" if "/index/" in tag else payload),
            ("rows", None, lambda tag, payload: payload[:-5] if "/rows." in tag else payload),
            ("health", None, lambda tag, payload: b"" if "/health/" in tag else payload),
        ):
            with SummaryWriter(tmp_path / name) as writer:
                values = events.graph_values(small())
                if graph:
                    put(values[0], graph)
                for step in range(3):
                    values += events.step_values(Run(small()).record(step))
                    for value in values:
                        if change and step == 1:
                            put(value, change(value.tag, value.tensor.tensor_content))
                    writer._get_file_writer().add_summary(Summary(value=values), step)
                    values = []
        with SummaryWriter(tmp_path / "newer") as writer:
            values = events.graph_values(small()) + events.step_values(Run(small()).record(0))
            for value in values:
                value.metadata.plugin_data.content = b'{"version": 7}'
            writer._get_file_writer().add_summary(Summary(value=values), 0)
        with SummaryWriter(tmp_path / "no graph") as writer:
            write(writer, Run(small()), range(3), graph=False)
        return Loaded(tmp_path)

    def test_each_run_says_what_is_wrong_with_it(self, damaged):
        for name in ("graph", "newer graph"):
            assert damaged.get("graph", run=name, model="model").status_code == 422

        problems = {run["name"]: run["models"][0]["problem"] for run in damaged.json("runs")["runs"]}

        assert problems["good"] == problems["rows"] == problems["health"] == ""
        assert "compressed data is damaged" in problems["graph"]
        assert "newer version" in problems["newer graph"]
        assert (
            "newer version of tensorboard-torchexplorer (format 7, this one reads up to 1)"
            in problems["newer"]
        )
        assert problems["no graph"] == "no graph was recorded"

    def test_a_newer_format_is_told_so_by_every_route(self, damaged):
        for route in ROUTES[1:]:
            response = damaged.get(route, run="newer", model="model", node="0", stat="zeros", q="x")

            assert response.status_code == 422
            assert "update the package where TensorBoard runs" in response.text

    def test_a_damaged_index_record_costs_its_step_only(self, damaged):
        found = damaged.json("steps", run="index", model="model")
        _, blocks = damaged.series(run="index", model="model", node="0")

        assert found["train"] == [0, 2]
        assert found["faults"][0]["place"] == "train step 1"
        assert (blocks["status"] == 0).all()

    def test_a_damaged_row_record_is_a_gap_with_a_reason(self, damaged):
        _, blocks = damaged.series(run="rows", model="model", node="0")

        assert (blocks["status"] == [Status.OK, Status.FAULT, Status.OK]).all()

    def test_a_damaged_health_record_is_unknown(self, damaged):
        found = damaged.json("health", run="health", model="model", stat="zeros", step=1)

        assert found["step"] == 1
        assert set(found["own"]) == {None}
        assert found["high"] > 0

    def test_good_runs_do_not_notice(self, damaged):
        for route in ROUTES[1:]:
            assert (
                damaged.get(route, run="good", model="model", node="0", stat="zeros", q="x").status_code
                == 200
            )

    def test_the_last_good_graph_is_taken(self, tmp_path):
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small()), range(3))
            values = events.graph_values(small())
            put(values[0], b"damaged")
            writer._get_file_writer().add_summary(Summary(value=values), 3)

        assert len(Loaded(tmp_path).json("graph", run=".", model="model")["nodes"]) == 3

    @pytest.mark.parametrize("part", ["graph", "index", "rows", "health"])
    def test_values_of_any_other_type_are_survived(self, tmp_path, part):
        """Hand-forged tensors under our tags: other types, shapes, no content."""
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.util.tensor_util import make_tensor_proto

        tensors = [
            make_tensor_proto(np.ones((2, 3), np.float32)),
            make_tensor_proto(np.array([b"x"], object)),
            TensorProto(
                dtype=14, tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]), half_val=[1]
            ),
            TensorProto(dtype=4, tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=9)])),
        ]
        with SummaryWriter(tmp_path / "good") as writer:
            write(writer, Run(small()), range(2))
        for number, tensor in enumerate(tensors):
            with SummaryWriter(tmp_path / str(number)) as writer:
                values = events.graph_values(small()) + events.step_values(Run(small()).record(0))
                for value in values:
                    if part in value.tag:
                        value.tensor.CopyFrom(tensor)
                writer._get_file_writer().add_summary(Summary(value=values), 0)
        loaded = Loaded(tmp_path)

        assert len(loaded.json("runs")["runs"]) == 5
        for number in range(4):
            for route in ROUTES[1:]:
                response = loaded.get(route, run=number, model="model", node="0", stat="zeros", q="x")
                assert response.status_code in (200, 404, 422), (route, number, response.text)
        assert loaded.get("graph", run="good", model="model").status_code == 200


class TestFuzz:
    words = st.sampled_from(
        ["a", "b/c", "resnet18", "vqvae", "model", "fc", ".", "gradient", "1", "0", "-1", "1e9"]
    )
    text = st.one_of(words, st.text(max_size=20))

    @settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.sampled_from(ROUTES),
        st.dictionaries(
            st.sampled_from(["run", "model", "node", "limit", "step", "stat", "whole", "q", "x"]),
            st.one_of(text, st.lists(text, min_size=2, max_size=2)),
        ),
        st.sampled_from(["GET", "HEAD", "POST"]),
    )
    def test_any_request_is_answered_with_2xx_or_4xx(self, loaded, route, query, method):
        response = loaded.get(route, method=method, **query)

        assert 200 <= response.status_code < 500, response.text

    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.sampled_from(ROUTES), st.binary(max_size=60))
    def test_any_query_string_is_answered_with_2xx_or_4xx(self, loaded, route, query):
        response = loaded.open(f"/{route}", environ_overrides={"QUERY_STRING": query.decode("latin-1")})

        assert 200 <= response.status_code < 500, response.text

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_stored_bytes_are_answered_with_2xx_or_4xx(self, tmp_path_factory, data):
        """Every tag of a run with arbitrary or bit-flipped contents."""
        path = tmp_path_factory.mktemp("fuzz")
        with SummaryWriter(path) as writer:
            for step in range(2):
                values = events.graph_values(small()) + events.step_values(Run(small()).record(step))
                for value in values:
                    put(value, data.draw(spoiled(value.tensor.tensor_content)))
                writer._get_file_writer().add_summary(Summary(value=values), step)
        loaded = Loaded(path)

        for route in ROUTES:
            response = loaded.get(route, run=".", model="model", node="0", stat="zeros", q="x")
            assert 200 <= response.status_code < 500, response.text
            if route == "series" and response.status_code == 200:
                parse_series(response.data)


def put(value, payload: bytes) -> None:
    """Replaces the bytes of a Summary.Value."""
    value.tensor.tensor_content = payload
    value.tensor.tensor_shape.dim[0].size = len(payload)


def spoiled(content: bytes) -> st.SearchStrategy[bytes]:
    """As it is, any bytes, cut off, a bit flipped, or valid compression of something else."""

    def flipped(at: int) -> bytes:
        changed = bytearray(content)
        changed[at // 8 % len(changed)] ^= 1 << at % 8
        return bytes(changed)

    return st.one_of(
        st.just(content),
        st.binary(max_size=50),
        st.integers(0, len(content)).map(lambda at: content[:at]),
        st.integers(0, 8 * len(content)).map(flipped),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=3), lambda x: st.dictionaries(st.text(), x)
        ).map(lambda value: zlib.compress(json.dumps(value).encode())),
    )


def write_records(path, run, records) -> None:
    """One event file with the graph of `run` and the given records."""
    with SummaryWriter(path) as writer:
        values = events.graph_values(run.graph)
        for record in records:
            values += events.step_values(record)
            writer._get_file_writer().add_summary(Summary(value=values), record.info.step)
            values = []
