from __future__ import annotations

import copy
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, Summary

from tensorboard_torchexplorer import events, schema_json
from tensorboard_torchexplorer.events import DecodeError, NewerVersionError, Tag
from tensorboard_torchexplorer.graphs import GraphView
from tensorboard_torchexplorer.rows import decode_rows
from tensorboard_torchexplorer.schema import (
    HEALTH,
    PLUGIN_NAME,
    VERSION,
    Edge,
    End,
    Fault,
    Graph,
    Node,
    Series,
)
from tests.record_graphs import resnet, small, vqvae
from tests.records import ODD_NAMES, Run, stored_graph


def payloads(values) -> dict[str, bytes]:
    """Tag to bytes, after a trip through protocol buffers."""
    summary = Summary.FromString(Summary(value=values).SerializeToString())
    return {value.tag: value.tensor.tensor_content for value in summary.value}


class TestTags:
    @given(st.text(st.characters(codec="utf-8")), st.sampled_from(["train", "eval"]), st.integers(0, 10**6))
    def test_c75_any_model_name_survives(self, model, phase, shard):
        assert events.parse_tag(events.graph_tag(model)) == Tag("graph", None, 0, model)
        assert events.parse_tag(events.graph_tag(model, "eval")) == Tag("graph", None, 0, model)
        assert events.parse_tag(events.step_tag(model, phase, "index")) == Tag("index", phase, 0, model)
        assert events.parse_tag(events.step_tag(model, phase, "health")) == Tag("health", phase, 0, model)
        assert events.parse_tag(events.step_tag(model, phase, "rows", shard)) == Tag(
            "rows", phase, shard, model
        )

    @pytest.mark.parametrize(
        "tag",
        [
            "",
            "loss",
            "torchexplorer/graph",
            " torchexplorer/graph/m",
            "xtorchexplorer/graph/m",
            "torchexplorer/test/index/m",
            "torchexplorer/train/rows/m",
            "torchexplorer/train/rows.x/m",
            "torchexplorer/train/rows.01/m",
            "torchexplorer/train/rows.99999999/m",
        ],
    )
    def test_other_tags_are_not_ours(self, tag):
        assert events.parse_tag(tag) is None

    def test_a_name_that_is_no_unicode_is_refused(self):
        with pytest.raises(ValueError, match="not valid Unicode"):
            events.graph_tag("\ud800")


class TestValues:
    def test_a_step_comes_back(self):
        run = Run(resnet())
        record = run.record(4)

        found = payloads(events.step_values(record))

        assert events.decode_info(found.pop(events.step_tag("resnet18", "train", "index"))) == record.info
        health = events.decode_health(found.pop(events.step_tag("resnet18", "train", "health")))
        np.testing.assert_allclose(health, record.health, rtol=2**-8)
        for shard, rows in record.shards.items():
            payload = found.pop(events.step_tag("resnet18", "train", "rows", shard))
            assert decode_rows([payload], range(len(rows)), 30)[0][0].tobytes() == rows.tobytes()
        assert found == {}

    def test_the_index_comes_last(self):
        # Whoever sees a step in the index then finds the rest, also while the Python loader is reading.
        tags = [value.tag for value in events.step_values(Run(resnet()).record(0, "eval"))]

        assert tags[-1] == "torchexplorer/eval/index/resnet18"
        assert len(tags) == len(set(tags))

    def test_every_value_says_whose_and_what_it_is(self):
        values = events.graph_values(vqvae()) + events.step_values(Run(vqvae()).record(0))

        for value in values:
            assert value.metadata.plugin_data.plugin_name == PLUGIN_NAME
            assert value.metadata.data_class == DATA_CLASS_TENSOR
            assert events.stored_version(value.metadata.plugin_data.content) == VERSION

    def test_values_are_fresh_each_time(self):
        record = Run(small()).record(0)

        assert not set(map(id, events.step_values(record))) & set(map(id, events.step_values(record)))

    @pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"version":"1"}', b"\xff", b"null"])
    def test_content_that_is_not_ours_has_version_0(self, content):
        assert events.stored_version(content) == 0


def first_format(graph: Graph) -> bytes:
    """A stored graph as it was before its lists were written in columns."""
    return zlib.compress(schema_json.dumps(graph), 1)


PAYLOADS = [encode(small()) for encode in (events.encode_graph, first_format)]
WRONG: list[object] = [
    None,
    True,
    -1,
    0,
    1,
    5,
    1 << 40,
    1 << 70,
    0.5,
    "",
    "node",
    "x",
    [],
    {},
    [[0]],
    [["a", "b"]],
]


def keys(value: object) -> list[object]:
    return [*value] if isinstance(value, dict) else [*range(len(value))] if isinstance(value, list) else []


def places(value: object) -> Iterator[tuple[object, object]]:
    """Every (holder, key) in a JSON value."""
    for key in keys(value):
        yield value, key
        yield from places(value[key])


class TestGraph:
    @pytest.mark.parametrize(
        "graph", [resnet(), vqvae(), *map(small, ODD_NAMES)], ids=lambda graph: graph.model
    )
    def test_a_graph_comes_back(self, graph):
        (value,) = events.graph_values(graph)

        assert events.decode_graph(value.tensor.tensor_content) == graph

    @pytest.mark.parametrize("graph", [resnet(), *map(small, ODD_NAMES)], ids=lambda graph: graph.model)
    def test_a_graph_of_the_first_format_is_read(self, graph):
        assert events.decode_graph(first_format(graph)) == graph

    @pytest.mark.parametrize("encode", [events.encode_graph, lambda graph: first_format(graph)])
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda g: replace(g, nodes=[]), "0 nodes"),
            (lambda g: replace(g, nodes=g.nodes[1:]), "the first node is not the root"),
            (lambda g: replace(g, nodes=[*g.nodes, g.nodes[1]]), "the same id"),
            (
                lambda g: replace(g, nodes=[*g.nodes, Node("x", 99, 0, 0)]),
                "a node is of module 99, which is not from 0 to 4",
            ),
            (lambda g: replace(g, nodes=[*g.nodes, Node("x", 0, 9, 0)]), "a node has parent 9, "),
            (lambda g: replace(g, nodes=[*g.nodes, Node("x", 0, -1, 0)]), "a node has parent -1, "),
            (lambda g: replace(g, nodes=[*g.nodes, Node("x", 0, 6, 0)]), "its own ancestor"),
            (
                lambda g: replace(g, nodes=[*g.nodes, Node("x", 0, 7, 0), Node("y", 0, 6, 0)]),
                "its own ancestor",
            ),
            (
                lambda g: replace(g, edges=[Edge(9, End("input", 0), End("output", 0), "data")]),
                "level 9, which is not from 0 to 5",
            ),
            (
                lambda g: replace(g, edges=[Edge(0, End("node", 6), End("output", 0), "data")]),
                "ends at node 6, ",
            ),
            (
                lambda g: replace(g, edges=[Edge(0, End("input", -1), End("output", 0), "data")]),
                "ends at -1, ",
            ),
            (lambda g: replace(g, series=[Series(6, -1, "input", "value", 0, "x", 0, 0)]), "node 6"),
            (
                lambda g: replace(g, series=[Series(0, 0, "input", "value", 0, "x", 0, 0)]),
                "node 0 and module 0",
            ),
            (lambda g: replace(g, series=[Series(-1, -1, "input", "value", 0, "x", 0, 0)]), "node -1"),
            (lambda g: replace(g, series=[Series(0, -1, "input", "value", 0, "x", -1, 0)]), "shard -1"),
            (
                lambda g: replace(g, series=[Series(0, -1, "input", "value", 0, "x", 0, 1 << 40)]),
                "row 1099511627776",
            ),
            (lambda g: replace(g, bins=0), "0 bins"),
            (lambda g: replace(g, bins=10**9), "1000000000 bins"),
            (lambda g: replace(g, modules=[replace(g.modules[0], extra=[["a"]]), *g.modules[1:]]), "no pair"),
        ],
    )
    def test_an_index_that_leads_nowhere_is_found(self, change, message, encode):
        graph = change(vqvae())

        with pytest.raises(DecodeError, match=message):
            events.decode_graph(encode(graph))

    @settings(max_examples=300, deadline=None)
    @given(st.data())
    def test_whatever_stands_in_a_graph_is_refused_or_can_be_shown(self, data):
        value = json.loads(zlib.decompress(data.draw(st.sampled_from(PAYLOADS))))
        holder, key = data.draw(st.sampled_from([*places(value)]))
        others = [holder[other] for other in keys(holder)]
        holder[key] = copy.deepcopy(data.draw(st.sampled_from([*WRONG, *others])))
        try:
            graph = events.decode_graph(zlib.compress(json.dumps(value).encode()))
        except (DecodeError, NewerVersionError):
            return

        view = GraphView([(frozenset({"one"}), graph)])
        for node in range(len(graph.nodes)):
            schema_json.dumps(view.level(node, np.zeros(len(graph.nodes), np.int64), 1))
            assert all(graph.series[index].shard >= 0 for index in view.series_of(node))
        assert view.search("").total == len(graph.nodes)

    def test_a_child_may_be_listed_before_its_parent(self):
        graph = vqvae()
        nodes = [*graph.nodes, Node("a/b", 1, 7, 0), Node("a", 1, 0, 1)]

        assert events.decode_graph(events.encode_graph(replace(graph, nodes=nodes))).nodes == nodes

    def test_a_newer_graph_is_told_so(self):
        with pytest.raises(NewerVersionError, match="format 3, this one reads up to 2"):
            events.decode_graph(stored_graph(vqvae(), 3))

    def test_readers_of_the_first_format_are_told_that_this_one_is_newer(self):
        with pytest.raises(NewerVersionError, match="format 2, this one reads up to 1"):
            schema_json.loads(Graph, zlib.decompress(events.encode_graph(vqvae())), 1)

    def test_a_bomb_is_not_inflated(self, monkeypatch):
        monkeypatch.setattr(events, "MAX_GRAPH_BYTES", 1 << 20)

        with pytest.raises(DecodeError, match="larger than the 1048576 bytes"):
            events.decode_graph(zlib.compress(bytes(50 << 20)))


class TestInfo:
    @pytest.mark.parametrize(
        "ran", [[[0]], [[0, 1, 2]], [[-1, 2]], [[0, -1]], [[0, 1 << 40]], [[0, 0]], [[0, 2], [1, 1]]]
    )
    def test_ranges_that_cannot_be_are_refused(self, ran):
        info = replace(Run(small()).record(0).info, ran=ran)

        with pytest.raises(DecodeError, match="`ran` has a range"):
            events.decode_info(events.encode_info(info))

    def test_a_bomb_is_not_inflated(self):
        """Text that is nothing but one letter: a thousandth of it is stored."""
        info = replace(Run(small()).record(0).info, session=3_000_000 * "x")

        payload = zlib.compress(schema_json.dumps(info), 9)

        with pytest.raises(DecodeError, match=r"larger than the 1\d{6} bytes allowed"):
            events.decode_info(payload)

    def test_of_the_most_alike_that_a_watch_writes_all_is_read(self):
        same = [Fault(f"blocks.{at}.mlp", "output gradient", 500 * "x") for at in range(100)]
        info = replace(Run(small()).record(0).info, ran=[[2 * at, 1] for at in range(200_000)], faults=same)

        assert events.decode_info(events.encode_info(info)) == info


class TestHealth:
    @given(hnp.arrays(np.float32, st.tuples(st.integers(0, 40), st.just(len(HEALTH)))))
    def test_numbers_keep_eight_bits_and_their_kind(self, health):
        found = events.decode_health(events.encode_health(health))

        assert found.shape == health.shape
        assert (np.isnan(found) == np.isnan(health)).all()
        assert (np.isposinf(found) == np.isposinf(health)).all()
        assert (np.isneginf(found) == np.isneginf(health)).all()
        finite = np.isfinite(health)
        normal = np.abs(health[finite]) >= 2**-126
        error = np.abs(found[finite].astype(float) - health[finite])[normal]
        assert (error <= np.abs(health[finite])[normal] * 2**-7).all()

    def test_a_nan_whose_mark_is_in_the_lower_bits_stays_one(self):
        health = np.array([[0x7F800001, 0xFF80FFFF]], np.uint32).view(np.float32)

        assert np.isnan(events.decode_health(events.encode_health(health))).all()

    def test_rounding_is_to_the_nearest(self):
        health = np.array([[1 + 2**-8 + 2**-20, 1 + 2**-8 - 2**-20]], np.float32)

        assert events.decode_health(events.encode_health(health)).tolist() == [[1 + 2**-7, 1.0]]

    def test_forged_sizes_are_refused(self):
        good = events.encode_health(np.zeros((3, 7), np.float32))
        for payload in (
            b"",
            good[:5],
            good[:-3],
            good[:2] + b"\xff\xff\xff\xff" + good[6:],
            good[:2] + b"\4" + good[3:],
        ):
            with pytest.raises(DecodeError):
                events.decode_health(payload)

    @pytest.mark.parametrize(("statistics", "nodes"), [(255, 1 << 20), (17, 1 << 20), (7, (1 << 20) + 1)])
    def test_a_forged_record_cannot_ask_for_all_memory(self, statistics, nodes):
        payload = struct.pack("<BBI", 1, statistics, nodes) + zlib.compress(bytes(2 * statistics * nodes))

        with pytest.raises(
            DecodeError, match=f"no health record: .* {statistics} statistics of {nodes} nodes"
        ):
            events.decode_health(payload)

    def test_a_later_format_is_told_so(self):
        with pytest.raises(NewerVersionError):
            events.decode_health(b"\2" + events.encode_health(np.zeros((3, 7), np.float32))[1:])


@given(
    st.binary(max_size=200), st.sampled_from([events.decode_graph, events.decode_info, events.decode_health])
)
def test_any_bytes_give_an_error_that_says_so(payload, decode):
    for data in (payload, zlib.compress(payload)):
        with pytest.raises((DecodeError, NewerVersionError)):
            decode(data)
