from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorboard_torchexplorer.schema import (
    VERSION,
    Edge,
    End,
    Fault,
    Graph,
    Module,
    Node,
    Parameter,
    Port,
    Series,
    StepInfo,
)
from tensorboard_torchexplorer.schema_json import (
    NewerVersionError,
    ShapeError,
    dumps,
    dumps_in_columns,
    loads,
)
from tests.record_graphs import resnet, vqvae

TEXT = st.text(st.characters(codec="utf-8"))
INFO = StepInfo(3, 1.5, None, 2, [[0, 4]], 65536.0, False, 1, "a", [Fault("x", "y", "z")])


NEXT = VERSION + 1


def natural(graph: Graph) -> bytes:
    return dumps(graph)


def columns(graph: Graph) -> bytes:
    return dumps_in_columns(graph, NEXT)


FORMS = pytest.mark.parametrize("form", [natural, columns])


@FORMS
@pytest.mark.parametrize("graph", [resnet(), vqvae()], ids=lambda graph: graph.model)
def test_a_graph_comes_back_equal(graph, form):
    again = loads(Graph, form(graph), NEXT)

    assert replace(again, version=graph.version) == graph
    assert replace(graph, version=again.version) == again


def test_a_graph_of_columns_is_written_as_any_other():
    """For the answer that sends a whole one."""
    graph = resnet()

    assert dumps(replace(loads(Graph, columns(graph), NEXT), version=VERSION)) == dumps(graph)
    assert columns(loads(Graph, columns(graph), NEXT)) == columns(graph)


@given(
    st.builds(
        StepInfo,
        st.integers(0, 2**62),
        st.floats(0, 1e12),
        st.none() | st.floats(-1e9, 1e9),
        st.integers(0, 9),
        st.just([[0, 2]]),
        st.none(),
        st.booleans(),
        st.integers(0, 9),
        TEXT,
        st.lists(st.builds(Fault, TEXT, TEXT, TEXT), max_size=2),
    )
)
def test_a_step_comes_back_equal(info):
    assert loads(StepInfo, dumps(info)) == info


@given(
    st.builds(
        Module,
        TEXT,
        TEXT,
        st.lists(st.lists(TEXT, min_size=2, max_size=2)),
        st.lists(st.builds(Parameter, TEXT, st.none() | st.lists(st.integers(0, 9)), TEXT, st.booleans())),
    )
)
def test_any_name_comes_back_equal(module):
    graph = Graph(
        "m",
        [module],
        [Node(".", 0, -1, 0, [Port("x", [None, 3], "float32", True)])],
        [Edge(0, End("input", 0), End("output", 0), "data")],
        [Series(0, -1, "input", "value", 0, "x", 0, 0)],
        30,
    )

    assert loads(Graph, dumps(graph)) == graph
    assert replace(loads(Graph, columns(graph), NEXT), version=VERSION) == graph


def test_numbers_that_json_lacks_become_null():
    text = dumps(replace(INFO, time=float("nan"), wall=float("inf")))

    assert json.loads(text)["time"] is None
    assert json.loads(text)["wall"] is None


def test_an_option_that_is_no_json_is_stored_as_its_text():
    graph = replace(vqvae(), options={"optimizer": object, "unit": "epoch"})

    assert loads(Graph, dumps(graph)).options == {"optimizer": "<class 'object'>", "unit": "epoch"}


def test_a_newer_version_is_told_apart_from_damage():
    value = json.loads(dumps(INFO)) | {"version": VERSION + 1, "new field": 1}

    with pytest.raises(NewerVersionError, match="update the package where TensorBoard runs"):
        loads(StepInfo, json.dumps(value).encode())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"step": "3"}, "StepInfo.step: expected a whole number, got '3'"),
        ({"step": True}, "StepInfo.step: expected a whole number, got True"),
        ({"step": 2**63}, "expected a whole number"),
        ({"wall": None}, "StepInfo.wall: expected a number, got None"),
        ({"ran": [[0, "x"]]}, r"StepInfo.ran\[0\]\[1\]: expected a whole number"),
        ({"faults": [{"path": "a"}]}, r"StepInfo.faults\[0\]: Fault has fields .* wrong or missing"),
        ({"skipped": 1}, "StepInfo.skipped: expected bool, got 1"),
        ({"extra": 1}, "StepInfo: StepInfo has fields"),
    ],
)
def test_a_wrong_field_is_named(changed, message):
    text = json.dumps(json.loads(dumps(INFO)) | changed).encode()

    with pytest.raises(ShapeError, match=message):
        loads(StepInfo, text)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"1", b"\xff", b"[" * 100_000, b'{"version":"1"}', b"9" * 5000, b'{"a":1' * 10_000],
)
def test_text_that_is_no_such_object_is_refused(text):
    with pytest.raises(ShapeError):
        loads(StepInfo, text)


def test_an_edge_end_must_have_a_known_kind_and_two_parts():
    for end in (["door", 0], ["node"], ["node", 0, 0], {"kind": "node", "index": 0}):
        value = json.loads(dumps(vqvae()))
        value["edges"][0]["source"] = end

        with pytest.raises(ShapeError, match=r"Graph.edges\[0\].source"):
            loads(Graph, json.dumps(value).encode())


@pytest.mark.parametrize(
    ("path", "wrong", "message"),
    [
        (["series"], [1], r"Graph.series\[0\]: expected an object, got 1"),
        (["series"], 1, "Graph.series: expected a list, got 1"),
        (["series", "row"], {}, "Graph.series.row: expected a list"),
        (["series", "row", 2], "2", r"Graph.series.row\[2\]: expected a whole number, got '2'"),
        (["series", "row", 2], True, r"Graph.series.row\[2\]: expected a whole number, got True"),
        (["series", "row", 2], 2**63, r"Graph.series.row\[2\]: expected a whole number"),
        (["series", "group", 1], "door", r"Graph.series.group\[1\]: expected one of"),
        (["series", "name", 1], None, r"Graph.series.name\[1\]: expected str, got None"),
        (["series", "other"], [], "Graph.series: Series has fields .* wrong or missing: \\['other'\\]"),
        (["series", "row"], None, "Graph.series.row: expected a list"),
        (["edges", "source"], [["node", 0]], "Graph.edges.source: expected an object"),
        (["edges", "source", "kind", 0], "door", r"Graph.edges.source.kind\[0\]: expected one of"),
        (["edges", "implicit", 0], 1, r"Graph.edges.implicit\[0\]: expected bool, got 1"),
        (["edges", "level"], [0], "Graph.edges: columns of different lengths"),
        (["nodes", "inputs"], [], "Graph.nodes.inputs: expected counts and items"),
        (["nodes", "inputs", "counts", 0], -1, "Graph.nodes.inputs: counts of .* items"),
        (["nodes", "inputs", "counts", 0], 7, "Graph.nodes.inputs: counts of .* items"),
        (["nodes", "inputs", "counts", 0], 0.5, r"Graph.nodes.inputs.counts\[0\]: expected a whole number"),
        (["nodes", "inputs", "items", "shape", 0], ["x"], r"Graph.nodes.inputs.items.shape\[0\]\[0\]"),
        (["modules", "parameters", "items", "shape", 0], [None], r"items.shape\[0\]\[0\]: expected a whole"),
    ],
)
def test_a_wrong_place_in_a_column_is_named(path, wrong, message):
    value = json.loads(columns(vqvae()))
    place = value
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = wrong

    with pytest.raises(ShapeError, match=message):
        loads(Graph, json.dumps(value).encode(), NEXT)


def test_a_column_that_must_be_there_is_missed_and_one_with_a_default_is_not():
    value = json.loads(columns(vqvae()))
    del value["edges"]["implicit"]

    assert [edge.implicit for edge in loads(Graph, json.dumps(value).encode(), NEXT).edges] == [
        False for _ in vqvae().edges
    ]
    del value["edges"]["level"]
    with pytest.raises(ShapeError, match=r"Edge has fields .* wrong or missing: \['level'\]"):
        loads(Graph, json.dumps(value).encode(), NEXT)


def test_counts_that_take_items_back_are_refused():
    value = json.loads(columns(vqvae()))
    counts = value["nodes"]["inputs"]["counts"]
    counts[:2] = [-1, counts[0] + counts[1] + 1]

    with pytest.raises(ShapeError, match=r"Graph.nodes.inputs: counts of .* items"):
        loads(Graph, json.dumps(value).encode(), NEXT)
