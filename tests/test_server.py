"""Against a real `tensorboard` process, under its data server ("true") and its Python loader ("false")."""

from __future__ import annotations

import shutil
import textwrap
import time

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events
from tensorboard_torchexplorer.schema import Status
from tests.chromium import look_at, needs_chromium
from tests.plugin_client import parse_series
from tests.record_graphs import resnet, small, vqvae
from tests.records import ODD_NAMES, Run, write
from tests.tensorboard_server import PLUGIN, tensorboard_server

DIRECTORY_NAMES = [name for name in ODD_NAMES if "/" not in name and name != ".."]

both_loaders = pytest.mark.parametrize("load_fast", ["true", "false"])


def series(server, run: str, node: str, model: str = "model", **query):
    answer = server.get(PLUGIN + "series", run=run, model=model, node=node, **query)
    assert answer.status == 200, answer.body
    return parse_series(answer.body)


def later_file() -> None:
    """TensorBoard reads the files of a directory by name, which begins with the second they were made in."""
    time.sleep(1.1)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """What most tests read: written once, served once under each loader."""
    path = tmp_path_factory.mktemp("logs")
    with SummaryWriter(path / "many steps", max_queue=500) as writer:
        write(writer, Run(small()), range(700))
        for step in range(700):
            writer.add_scalar("loss", step, step)
    with SummaryWriter(path / "resumed") as writer:
        write(writer, Run(resnet("model")), range(101))
        write(writer, Run(resnet("model")), range(0, 101, 10), "eval", graph=False)
        for step in range(101):
            writer.add_scalar("loss", step, step)
    with SummaryWriter(path / "purged") as writer:
        write(writer, Run(small()), range(101))
    with SummaryWriter(path / "several" / "deep") as writer:
        write(writer, Run(small("enc")), range(3))
        write(writer, Run(vqvae("dec")), range(5))
    for name in DIRECTORY_NAMES:
        with SummaryWriter(path / "names" / name) as writer:
            write(writer, Run(small(name)), range(2))
    later_file()
    with SummaryWriter(path / "resumed") as writer:
        write(writer, Run(resnet("model"), session="two", seed=9), range(50, 60))
    with SummaryWriter(path / "purged", purge_step=50) as writer:
        write(writer, Run(small(), session="two", seed=9), range(50, 60))
    return path


@pytest.fixture(scope="module", params=["true", "false"])
def server(request, logdir):
    with tensorboard_server(logdir, request.param) as found:
        found.wait_for_steps("resumed", "model", 59)
        found.wait_for_steps("purged", "model", 59)
        found.wait_for_steps("many steps", "model", 699)
        found.wait_for(lambda: len(found.plugin("runs")["runs"]) == 4 + len(DIRECTORY_NAMES))
        yield found


class TestBothLoaders:
    def test_c71_every_record_is_kept(self, server):
        head, blocks = series(server, "many steps", "1")

        assert head["steps"] == list(range(700))
        place = next(s for s in small().series if s.node == 2)
        for step in (0, 1, 350, 699):
            row = Run(small()).record(step).shards[place.shard][place.row]
            np.testing.assert_array_equal(blocks["counts"][0, step], row["counts"])
            assert blocks["mean"][0, step] == row["mean"]

    def test_c71_display_is_thinned_evenly(self, server):
        head, _ = series(server, "many steps", "1", limit=8)

        assert head["steps"] == [0, 100, 200, 300, 399, 499, 599, 699]
        assert head["total"] == 700

    def test_c73_a_run_that_went_back_is_one_history(self, server):
        for run in ("resumed", "purged"):
            steps = server.plugin("steps", run=run, model="model")
            assert steps["train"] == list(range(60))
            assert steps["restarts"] == [50]
        resumed = server.plugin("steps", run="resumed", model="model")
        assert resumed["eval"] == [0, 10, 20, 30, 40]

        _, blocks = series(server, "resumed", "fc")
        place = next(s for s in resnet().series if s.node == resnet_node("fc"))
        expected = [Run(resnet()).record(step).shards[place.shard]["mean"][place.row] for step in (48, 49)]
        second = Run(resnet(), session="two", seed=9)
        expected += [second.record(step).shards[place.shard]["mean"][place.row] for step in (50, 51)]
        assert blocks["mean"][0, 48:52].tolist() == expected

    def test_c73_the_users_scalars_are_never_purged_by_us(self, server):
        for run, last in (("many steps", 699), ("resumed", 100)):
            found = server.get_json("data/plugin/scalars/scalars", run=run, tag="loss")
            assert found[-1][1:] == [last, last]

    def test_c40_several_models_in_a_nested_run(self, server):
        found = next(r for r in server.plugin("runs")["runs"] if r["name"] == "several/deep")

        assert [(m["name"], m["steps"]) for m in found["models"]] == [("dec", 5), ("enc", 3)]
        assert len(server.plugin("graph", run="several/deep", model="dec")["nodes"]) == 4

    @pytest.mark.parametrize("name", DIRECTORY_NAMES)
    def test_c75_odd_names_of_runs_and_models(self, server, name):
        run = f"names/{name}"

        assert server.plugin("steps", run=run, model=name)["train"] == [0, 1]
        assert server.plugin("graph", run=run, model=name)["model"] == name
        assert series(server, run, "0", model=name)[0]["steps"] == [0, 1]

    def test_c36_a_blank_row_says_why(self, server):
        _, blocks = series(server, "resumed", ".")

        assert set(blocks["status"][1]) == {Status.ROOT_INPUT}

    def test_c48_c50_nonfinite_values_are_counted(self, server):
        _, blocks = series(server, "resumed", "layer3/1/conv2")

        assert blocks["nan"][0, 29:35].tolist() == [0, 33, 34, 35, 36, 0]
        assert np.isfinite(blocks["high"][0]).all()

    def test_health_and_search(self, server):
        health = server.plugin("health", run="resumed", model="model", stat="update", step=55)
        found = server.plugin("search", run="resumed", model="model", q="layer4")

        assert (health["step"], health["own"][resnet_node("avgpool")]) == (55, None)
        assert found["total"] == 15

    def test_c83_the_tab_is_there_and_active(self, server):
        listing = server.get_json("data/plugins_listing")["torchexplorer"]

        assert listing["enabled"] is True
        assert listing["tab_name"] == "TorchExplorer"
        page = server.get("data/plugin_entry.html", name="torchexplorer").body.decode()
        assert 'import("./index.js")' in page
        assert b"render" in server.get(PLUGIN + "index.js").body

    @needs_chromium
    def test_c81_the_tab_breaks_no_rule_of_tensorboards_policy(self, server, tmp_path):
        entry = "data/plugin_entry.html?name=torchexplorer"
        policy = server.get(entry).headers["Content-Security-Policy"]
        assert "script-src 'self'" in policy

        look = look_at(server.url + entry, tmp_path)

        assert "Linear" in look.dom
        assert [line for line in look.console if "Security Policy" in line or "Refused" in line] == []

    def test_errors_keep_their_status(self, server):
        assert server.get(PLUGIN + "steps", run="resumed").status == 400
        assert server.get(PLUGIN + "steps", run="x", model="model").status == 404
        assert server.get(PLUGIN + "runs", method="POST").status == 405
        assert server.get(PLUGIN + "../../environment").status in (200, 404)  # TensorBoard's own, not ours
        assert server.get(PLUGIN + "%2e%2e/%2e%2e/etc/passwd").status == 404

    def test_an_unchanged_answer_is_not_sent_again(self, server):
        first = server.get(PLUGIN + "series", run="resumed", model="model", node="fc")

        again = server.get(
            PLUGIN + "series",
            {"If-None-Match": first.headers["ETag"]},
            run="resumed",
            model="model",
            node="fc",
        )

        assert (again.status, again.body) == (304, b"")

    def test_nothing_went_wrong_on_the_way(self, server):
        assert "Traceback" not in server.output()
        assert "will become an error" not in server.output()


def resnet_node(name: str) -> int:
    return [node.id for node in resnet().nodes].index(name)


@both_loaders
class TestWhileServing:
    def test_c83_c77_runs_come_grow_go_and_come_back(self, tmp_path, load_fast):
        """The log directory does not exist yet when TensorBoard starts."""
        logdir = tmp_path / "later"
        with tensorboard_server(logdir, load_fast) as server:
            assert server.plugin("runs")["runs"] == []
            assert server.get_json("data/plugins_listing")["torchexplorer"]["enabled"] is False

            with SummaryWriter(logdir / "run") as writer:
                write(writer, Run(small()), range(3))
                before = server.wait_for_steps("run", "model", 2)
                write(writer, Run(small()), range(3, 6), graph=False)
                after = server.wait_for_steps("run", "model", 5)
            assert after["token"] != before["token"]
            assert server.get_json("data/plugins_listing")["torchexplorer"]["enabled"] is True
            assert series(server, "run", "0")[0]["steps"] == [0, 1, 2, 3, 4, 5]

            shutil.rmtree(logdir / "run")
            server.wait_for(lambda: server.plugin("runs")["runs"] == [])
            assert server.get(PLUGIN + "steps", run="run", model="model").status == 404

            with SummaryWriter(logdir / "run") as writer:
                write(writer, Run(small(layers=2), seed=4), range(2))
            server.wait_for_steps("run", "model", 1)
            assert len(server.plugin("graph", run="run", model="model")["nodes"]) == 2
            assert series(server, "run", "0")[0]["steps"] == [0, 1]

            shutil.rmtree(logdir)
            server.wait_for(lambda: server.plugin("runs")["runs"] == [])
            assert "Traceback" not in server.output()

    def test_a_damaged_run_does_not_harm_others(self, tmp_path, load_fast):
        for name in ("good", "cut", "flipped"):
            with SummaryWriter(tmp_path / name) as writer:
                write(writer, Run(small()), range(20))
        (cut,), (flipped,) = ((tmp_path / name).glob("*") for name in ("cut", "flipped"))
        cut.write_bytes(cut.read_bytes()[:-700])
        data = bytearray(flipped.read_bytes())
        rows = events.step_values(Run(small()).record(10))[0].tensor.tensor_content
        data[data.index(rows) + len(rows) // 2] ^= 16
        flipped.write_bytes(data)

        with tensorboard_server(tmp_path, load_fast) as server:
            server.wait_for_steps("good", "model", 19)
            server.wait_for(lambda: len(server.plugin("runs")["runs"]) == 3)

            assert server.plugin("steps", run="good", model="model")["train"] == list(range(20))
            assert server.plugin("steps", run="cut", model="model")["train"] == list(range(19))
            # The Python loader stops at the flipped bit. The data server does not look at the checksum of
            # a record that parses, so there ours must find it.
            head, blocks = series(server, "flipped", ".")
            place = next(s for s in small().series if s.node == 0)
            for column, step in enumerate(head["steps"]):
                row = Run(small()).record(step).shards[place.shard][place.row]
                if blocks["status"][0, column] == 0:
                    assert blocks["mean"][0, column] == row["mean"]
                    assert blocks["counts"][0, column].tolist() == row["counts"].tolist()
            assert 5 < (blocks["status"][0] == 0).sum() < 20

    def test_the_users_number_of_samples_wins(self, tmp_path, load_fast):
        with SummaryWriter(tmp_path, max_queue=300) as writer:
            write(writer, Run(small()), range(200))
        with tensorboard_server(tmp_path, load_fast, ["--samples_per_plugin=torchexplorer=33"]) as server:
            server.wait_for_steps(".", "model", 199)

            found = server.plugin("steps", run=".", model="model")
            head, blocks = series(server, ".", "0")

        assert len(found["train"]) == 33
        assert head["steps"] == found["train"]
        assert (blocks["status"] == 0).all()

    def test_a_negative_number_of_samples_is_not_followed(self, tmp_path, load_fast):
        """The data server refuses to start with one, and the Python loader dies of it."""
        with SummaryWriter(tmp_path) as writer:
            write(writer, Run(small()), range(20))
        with tensorboard_server(tmp_path, load_fast, ["--samples_per_plugin=torchexplorer=-5"]) as server:
            server.wait_for_steps(".", "model", 19)

            assert "--samples_per_plugin=torchexplorer=-5" in server.log.read_text()

    def test_c79_c87_below_a_path_prefix_and_beside_another_server(self, tmp_path, load_fast):
        for name in ("one", "two"):
            with SummaryWriter(tmp_path / name / "run") as writer:
                write(writer, Run(small(name)), range(2))
        with (
            tensorboard_server(tmp_path / "one", load_fast, ["--path_prefix=/foo/bar"]) as one,
            tensorboard_server(tmp_path / "two", load_fast) as two,
        ):
            assert one.url.endswith("/foo/bar/")
            one.wait_for_steps("run", "one", 1)
            two.wait_for_steps("run", "two", 1)

            assert one.get(PLUGIN + "steps", run="run", model="two").status == 404
            assert one.get(PLUGIN + "index.js").status == 200


def test_logdir_spec_names_runs(tmp_path):
    """TensorBoard takes its Python loader for this flag."""
    for name in ("a", "b"):
        with SummaryWriter(tmp_path / name) as writer:
            write(writer, Run(small()), range(2))
    spec = f"--logdir_spec=first:{tmp_path / 'a'},second:{tmp_path / 'b'}"

    with tensorboard_server(None, "auto", [spec]) as server:
        server.wait_for_steps("second/.", "model", 1)

        assert [run["name"] for run in server.plugin("runs")["runs"]] == ["first/.", "second/."]
        assert series(server, "first/.", "0")[0]["steps"] == [0, 1]


def test_c77_object_storage_through_fsspec(tmp_path):
    """A `memory://` directory exists in one process only, so the server's process is made to fill it."""
    with SummaryWriter(tmp_path) as writer:
        write(writer, Run(small()), range(3))
    (file,) = tmp_path.glob("*")
    main = textwrap.dedent(
        f"""
        import fsspec
        data = open({str(file)!r}, "rb").read()
        memory = fsspec.filesystem("memory")
        memory.pipe("/logs/run/events.out.tfevents.1.host", data)
        memory.pipe("/logs/other/events.out.tfevents.1.host", data)
        import threading
        threading.Timer(6, lambda: memory.rm("/logs/other", recursive=True)).start()
        from tensorboard.main import run_main
        run_main()
        """
    )
    with tensorboard_server("memory://logs", "auto", main=main) as server:
        server.wait_for_steps("run", "model", 2)
        assert series(server, "run", "0")[0]["steps"] == [0, 1, 2]

        # Its files deleted while serving, the other run goes and this one stays.
        server.wait_for(lambda: [r["name"] for r in server.plugin("runs")["runs"]] == ["run"])
        assert series(server, "run", "0")[0]["steps"] == [0, 1, 2]


@both_loaders
def test_c83_a_logdir_without_records_leaves_the_tab_inactive(tmp_path, load_fast):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 1, 1)
    with tensorboard_server(tmp_path, load_fast) as server:
        server.wait_for(lambda: server.get_json("data/plugin/scalars/tags"))

        assert server.plugin("runs")["runs"] == []
        assert server.get_json("data/plugins_listing")["torchexplorer"]["enabled"] is False
        assert server.get(PLUGIN + "index.js").status == 200
