"""What all routes share: parameters, methods, tags of answers, headers, the tab itself."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from tensorboard_torchexplorer import backend, events, plugin
from tests.plugin_client import Loaded
from tests.plugin_records import ROUTES


@pytest.fixture(scope="module")
def loaded(recorded_runs):
    return Loaded(recorded_runs)


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

    def test_an_unchanged_answer_is_not_made_again(self, recorded_runs, monkeypatch):
        loaded = Loaded(recorded_runs)
        first = loaded.get("series", run="a", model="resnet18", node="fc").data
        monkeypatch.setattr(backend.Backend, "series", None)

        assert loaded.get("series", run="a", model="resnet18", node="fc").data == first

    def test_long_queries_are_not_kept(self, recorded_runs):
        loaded = Loaded(recorded_runs)
        query = {"run": "a", "model": "resnet18"}
        loaded.json("steps", **query)
        before = loaded.plugin._answers.used
        for number in range(20):
            loaded.json("steps", **query, more=f"{number}{100_000 * 'x'}")

        assert loaded.plugin._answers.used > before
        assert sum(len(key) for key in loaded.plugin._answers._entries) < 21 * 100

    def test_what_is_asked_at_once_opens_a_model_once(self, recorded_runs, monkeypatch):
        """As the tab does when it opens."""
        loaded, decoded = Loaded(recorded_runs), []
        decode = events.decode_graph

        def slowly(payload):
            decoded.append(payload)
            time.sleep(0.2)
            return decode(payload)

        monkeypatch.setattr(events, "decode_graph", slowly)
        query = {"run": "a", "model": "vqvae", "stat": "zeros", "q": "conv"}
        with ThreadPoolExecutor() as pool:
            asked = [
                pool.submit(loaded.get, route, **query) for route in ("steps", "graph", "health", "search")
            ]

        assert [answer.result().status_code for answer in asked] == [200] * 4
        assert len(decoded) == 1

    def test_a_series_is_one_read(self, recorded_runs):
        loaded = Loaded(recorded_runs)
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
