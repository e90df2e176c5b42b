from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorboard_torchexplorer.graphs import MAX_MATCHES, MAX_PEERS, GraphView
from tensorboard_torchexplorer.schema import ROOT_ID, Edge, End, Module, Node, Parameter, Port, StepInfo
from tests.record_graphs import GraphBuilder, port, resnet, small, vqvae, wide
from tests.records import Run

ONE, TWO = frozenset({"one"}), frozenset({"two"})
"""Sessions."""


def view(graph=None) -> GraphView:
    return GraphView([(ONE, graph or resnet())])


def info(step: int, session: str) -> StepInfo:
    return Run(small(), session=session).record(step).info


def level(shown: GraphView, node: str):
    return shown.level(shown.index[node], np.full(len(shown.graph.nodes), 7), 9)


class TestLevel:
    def test_the_root_level(self):
        found = level(view(), ROOT_ID)

        names = [node.name for node in found.nodes]
        assert names == ["conv1", "bn1", "relu", "layer1", "layer2", "layer3", "layer4", "avgpool", "fc"]
        assert (found.node.id, found.node.class_name, found.ancestors) == (".", "ResNet", [])
        assert (found.steps, found.bins) == (9, 30)
        assert found.nodes[3].children == 2
        assert found.nodes[0].extra[2] == ["kernel_size", "(7, 7)"]

    def test_an_inner_level_knows_its_ancestors(self):
        found = level(view(), "layer2/1")

        assert found.ancestors == [[".", "", "ResNet"], ["layer2", "layer2", "Sequential"]]
        assert (found.nodes[0].name, found.nodes[0].path) == ("conv1", "layer2.1.conv1")

    def test_peers_are_the_calls_of_the_same_class_in_the_level(self):
        shown = view()

        def peers(node: str) -> list[str]:
            return [shown.graph.nodes[peer].id for peer in shown.peers(shown.index[node])]

        assert peers("layer1/0/relu") == peers("layer1/0/relu#1") == ["layer1/0/relu", "layer1/0/relu#1"]
        assert peers("layer3") == ["layer1", "layer2", "layer3", "layer4"]
        assert (peers("fc"), peers(ROOT_ID)) == (["fc"], [ROOT_ID])

    def test_of_very_many_peers_those_around_are_told(self):
        shown = view(small(layers=100))

        for index, first in ((1, 1), (50, 50 - MAX_PEERS // 2), (100, 101 - MAX_PEERS)):
            assert shown.peers(index) == [*range(first, first + MAX_PEERS)]

    def test_edges_are_those_of_the_level_and_lead_to_its_nodes(self):
        shown = view()

        found = level(shown, "layer1/0")

        inside = {node.index for node in found.nodes}
        ends = {end.index for edge in found.edges for end in (edge.source, edge.target) if end.kind == "node"}
        assert len(found.edges) == 8
        assert ends == inside

    def test_a_module_called_twice_is_two_nodes_that_know_it(self):
        found = level(view(), "layer1/0")

        relus = [node for node in found.nodes if node.class_name == "ReLU"]
        assert [(node.id, node.call, node.calls) for node in relus] == [
            ("layer1/0/relu", 0, 2),
            ("layer1/0/relu#1", 1, 2),
        ]

    def test_a_module_from_elsewhere_has_its_full_name(self):
        graph = small()
        nodes = [*graph.nodes, Node("0/^1", 2, 1, 0)]

        assert [node.name for node in level(view(replace(graph, nodes=nodes)), "0").nodes] == ["1"]

    def test_a_level_of_many_nodes_is_quick(self):
        builder = GraphBuilder("m", "Sequential")
        builder.modules.append(Module("a", "Linear"))
        builder.nodes += [Node(f"a#{call}", 1, 0, call) for call in range(20_000)]

        assert level(view(builder.graph()), ROOT_ID).nodes[-1].calls == 20_000


class TestSizes:
    def test_a_module_counts_its_own_and_all_below(self):
        sizes = {node.name: node.size for node in level(view(), ROOT_ID).nodes}

        assert sizes["conv1"] == 64 * 3 * 49
        assert sizes["fc"] == 5130
        assert level(view(), ROOT_ID).node.size == sum(sizes.values())

    @pytest.mark.parametrize("shared", ["embed.weight", "embed"])
    def test_a_shared_parameter_counts_once(self, shared):
        modules = [
            Module("", "GPT"),
            Module("embed", "Embedding", [], [Parameter("weight", [10, 4], "float32", True)]),
            Module("head", "Linear", [], [Parameter("weight", [10, 4], "float32", True, shared)]),
        ]
        nodes = [Node(".", 0, -1, 0), Node("embed", 1, 0, 0), Node("head", 2, 0, 0)]
        graph = replace(small(), modules=modules, nodes=nodes, edges=[], series=[])

        assert view(graph).sizes == [40, 40, 40]

    def test_a_parameter_of_no_dimensions_is_one_number(self):
        modules = [Module("", "Clip", [], [Parameter("logit_scale", [], "float32", True)])]
        graph = replace(small(), modules=modules, nodes=[Node(".", 0, -1, 0)], edges=[], series=[])

        assert view(graph).sizes == [1]

    def test_a_parameter_without_a_shape_counts_nothing(self):
        modules = [Module("", "Lazy", [], [Parameter("weight", None, "float32", True)])]
        graph = replace(small(), modules=modules, nodes=[Node(".", 0, -1, 0)], edges=[], series=[])

        assert view(graph).sizes == [0]


class TestSearch:
    @pytest.mark.parametrize(
        ("query", "total"),
        [
            ("CONV1", 9),
            ("layer3", 15),
            ("batchnorm", 17),
            ("512x4x4", 16),
            ("512, 4, 4", 16),
            ("nothing", 0),
            ("", 66),
        ],
    )
    def test_paths_classes_and_shapes_are_found(self, query, total):
        found = view().search(query)

        assert found.total == total == len(found.matches)

    def test_a_match_says_where_it_is_shown(self):
        found = view().search("layer2.1.conv2").matches

        assert [(m.id, m.level, m.path, m.class_name) for m in found] == [
            ("layer2/1/conv2", "layer2/1", "layer2.1.conv2", "Conv2d")
        ]
        assert found[0].shape == "32\u00d7128\u00d716\u00d716"

    def test_the_root_is_shown_by_itself(self):
        (found,) = view().search("resnet").matches

        assert (found.id, found.level) == (ROOT_ID, ROOT_ID)

    def test_a_varying_size_is_a_question_mark(self):
        graph = small()
        graph.nodes[1] = replace(graph.nodes[1], inputs=[Port("x", [None, 8], "float32", True)])

        assert view(graph).search("?x8").matches[0].shape == "?\u00d78"

    def test_only_the_first_are_sent(self):
        found = view(wide(400)).search("linear")

        assert (len(found.matches), found.total) == (MAX_MATCHES, 400)


def test_the_worst_of_a_node_is_over_all_below():
    shown = view()
    own = np.full(len(shown.graph.nodes), np.nan, np.float32)
    own[shown.index["layer2/1/conv1"]] = 5
    own[shown.index["layer2/0"]] = 7
    own[shown.index["fc"]] = -1

    worst = shown.worst(own)

    assert [worst[shown.index[name]] for name in (".", "layer2", "layer2/1", "fc")] == [7, 7, 5, -1]
    assert np.isnan(worst[shown.index["layer1"]])


class TestMerged:
    """A resumed run has one graph per process, which may number things differently."""

    def other(self):
        """The VQ-VAE as another process met it: evaluated first, quantiser skipped, one more decoder call."""
        builder = GraphBuilder("vqvae", "VQVAE")
        code = port(16, 32, 7, 7, name="")
        image = port(16, 1, 28, 28, name="image", requires_grad=False)
        builder.ports(0, [image], [code])
        decoder = None
        for _ in range(3):
            decoder = builder.call(
                0, "decoder", "ConvTranspose2d", [code], [code], "", {"weight": [32, 1, 4, 4]}
            )
        encoder = builder.call(0, "encoder", "Encoder", [image], [code])
        builder.edge(0, End("node", encoder), End("node", decoder))
        return builder.graph()

    def test_the_last_graph_keeps_its_numbers_and_older_nodes_follow(self):
        shown = GraphView([(ONE, vqvae()), (TWO, self.other())])

        ids = [node.id for node in shown.graph.nodes]
        assert ids[:5] == [".", "decoder", "decoder#1", "decoder#2", "encoder"]
        assert sorted(ids[5:]) == ["encoder/conv", "quantiser"]

    def test_moved_nodes_still_know_parent_and_module(self):
        shown = GraphView([(ONE, vqvae()), (TWO, self.other())])

        conv = shown.graph.nodes[shown.index["encoder/conv"]]
        assert shown.graph.nodes[conv.parent].id == "encoder"
        assert shown.graph.modules[conv.module].path == "encoder.conv"
        assert (
            shown.graph.modules[shown.graph.nodes[shown.index["quantiser"]].module].class_name == "Quantiser"
        )

    def test_edges_of_both_are_there_once(self):
        shown = GraphView([(ONE, vqvae()), (TWO, self.other())])
        index = shown.index

        edges = {(e.level, e.source, e.target) for e in shown.graph.edges}
        assert (0, End("node", index["encoder"]), End("node", index["quantiser"])) in edges
        assert (0, End("node", index["encoder"]), End("node", index["decoder#2"])) in edges
        assert (index["encoder"], End("input", 0), End("node", index["encoder/conv"])) in edges
        assert len(edges) == len(shown.graph.edges) == len(vqvae().edges) + 1

    def test_each_span_knows_where_its_rows_lie(self):
        old, new = vqvae(), self.other()
        shown = GraphView([(ONE, old), (TWO, new)])
        series = shown.series_of(shown.index["decoder#1"])

        for graph, session in ((old, "one"), (new, "two")):
            numbers = {node.id: index for index, node in enumerate(graph.nodes)}
            places = {
                (s.group, s.kind): (s.shard, s.row)
                for s in graph.series
                if s.node == numbers["decoder#1"]
                or (s.module >= 0 and graph.modules[s.module].path == "decoder")
            }
            entries = [shown.span_of(session).entry(index) for index in series]
            found = {(s.group, s.kind): (s.shard, s.row) for s in entries if s is not None}
            assert found == places

    def test_a_series_of_one_process_only_has_no_place_in_the_other(self):
        shown = GraphView([(ONE, vqvae()), (TWO, self.other())])
        (first, *_) = shown.series_of(shown.index["quantiser"])
        (third, *_) = shown.series_of(shown.index["decoder#2"])

        assert shown.spans[0].entry(first) is not None
        assert shown.spans[1].entry(first) is None
        assert shown.spans[0].entry(third) is None

    def test_equal_graphs_are_one(self):
        shown = GraphView([(ONE, vqvae()), (TWO, vqvae())])

        assert shown.graph == vqvae()
        assert shown.spans[0].entries == shown.spans[1].entries == vqvae().series

    def test_steps_go_by_the_process_that_wrote_them_wherever_they_lie(self):
        shown = GraphView([(ONE | {"three"}, vqvae()), (TWO, self.other())])
        infos = {step: info(step, session) for step, session in enumerate(["one", "two", "one", "three"])}

        assert shown.by_span(infos, [0, 1, 2, 3, 9]) == [(shown.spans[0], [0, 2, 3]), (shown.spans[1], [1])]


def test_edges_between_placeholders_are_kept():
    graph = replace(small(), edges=[Edge(0, End("input", 0), End("output", 0), "data")])

    assert level(view(graph), ROOT_ID).edges == graph.edges
