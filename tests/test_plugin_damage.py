"""Records that are damaged, forged or of a newer version, and requests of any kind."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events
from tensorboard_torchexplorer.schema import Status
from tests.plugin_client import Loaded, parse_series
from tests.plugin_records import ROUTES, put
from tests.record_graphs import small
from tests.records import Run, stored_graph, write


@pytest.fixture(scope="module")
def loaded(recorded_runs):
    return Loaded(recorded_runs)


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
