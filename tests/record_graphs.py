"""Graphs without any model, of the shapes that real ones have."""

from __future__ import annotations

import re

from tensorboard_torchexplorer.schema import Edge, End, Graph, Module, Node, Parameter, Port, Series

ROWS_PER_SHARD = 128


class GraphBuilder:
    """Adds invocations in the order in which their calls would begin."""

    def __init__(self, model: str, root_class: str, bins: int = 30, **options: object) -> None:
        self.model, self.bins, self.options = model, bins, options
        self.modules = [Module("", root_class)]
        self.nodes = [Node(".", 0, -1, 0)]
        self.edges: list[Edge] = []
        self.series: list[Series] = []
        self._rows = 0

    def ports(self, node: int, inputs: list[Port], outputs: list[Port]) -> None:
        old = self.nodes[node]
        self.nodes[node] = Node(old.id, old.module, old.parent, old.call, inputs, outputs)
        for group, ports in (("input", inputs), ("output", outputs)):
            for index, port in enumerate(ports):
                for kind in ("value", "grad"):
                    self._add(node, -1, group, kind, index, port.name)

    def call(
        self,
        parent: int,
        name: str,
        class_name: str,
        inputs: list[Port],
        outputs: list[Port],
        extra: str = "",
        parameters: dict[str, list[int]] | None = None,
    ) -> int:
        """The index of a new invocation of the submodule `name` of the module that `parent` calls."""
        above = self.modules[self.nodes[parent].module].path
        path = f"{above}.{name}" if above else name
        module = next(
            (index for index, module in enumerate(self.modules) if module.path == path), len(self.modules)
        )
        call = sum(node.parent == parent and node.module == module for node in self.nodes)
        if module == len(self.modules):
            parts = [part for part in re.split(r", (?![^(]*\))", extra) if part]
            pairs = [part.split("=", 1) if "=" in part else ["", part] for part in parts]
            found = [Parameter(key, shape, "float32", True) for key, shape in (parameters or {}).items()]
            self.modules.append(Module(path, class_name, pairs, found))
            for index, parameter in enumerate(found):
                for kind in ("value", "grad"):
                    self._add(-1, module, "param", kind, index, parameter.name)
        own = (
            name.replace("%", "%25")
            .replace("/", "%2F")
            .replace("#", "%23")
            .replace("^", "%5E")
            .replace(".", "/")
        )
        prefix = "" if parent == 0 else self.nodes[parent].id + "/"
        self.nodes.append(Node(prefix + own + (f"#{call}" if call else ""), module, parent, call))
        self.ports(len(self.nodes) - 1, inputs, outputs)
        return len(self.nodes) - 1

    def edge(self, level: int, source: End, target: End, kind: str = "gradient") -> None:
        self.edges.append(Edge(level, source, target, kind))

    def graph(self) -> Graph:
        return Graph(
            self.model,
            list(self.modules),
            list(self.nodes),
            list(self.edges),
            list(self.series),
            self.bins,
            dict(self.options),
        )

    def _add(self, node: int, module: int, group: str, kind: str, index: int, name: str) -> None:
        shard, row = divmod(self._rows, ROWS_PER_SHARD)
        self.series.append(Series(node, module, group, kind, index, name, shard, row))
        self._rows += 1


def port(*shape: int | None, name: str = "x", requires_grad: bool = True) -> Port:
    return Port(name, list(shape), "float32", requires_grad)


def resnet(model: str = "resnet18", batch: int = 32, **options: object) -> Graph:
    """The levels of a ResNet-18: stem, four layers of two blocks each, head."""
    builder = GraphBuilder(model, "ResNet", **options)
    image = port(batch, 3, 64, 64, name="x", requires_grad=False)
    builder.ports(0, [image], [port(batch, 10, name="")])

    def conv(level: int, name: str, source: Port, width: int, size: int, kernel: int) -> tuple[int, Port]:
        out = port(batch, width, size, size, name="")
        assert source.shape is not None
        fan_in = source.shape[1] or 0
        extra = f"{fan_in}, {width}, kernel_size=({kernel}, {kernel}), stride=(1, 1), bias=False"
        weight = {"weight": [width, fan_in, kernel, kernel]}
        return builder.call(
            level, name, "Conv2d", [port(*source.shape, name="input")], [out], extra, weight
        ), out

    def simple(level: int, name: str, class_name: str, source: Port, **shapes: list[int]) -> tuple[int, Port]:
        assert source.shape is not None
        out = port(*source.shape, name="")
        extra = "inplace=True" if class_name == "ReLU" else f"{source.shape[1]}, eps=1e-05, momentum=0.1"
        return builder.call(
            level, name, class_name, [port(*source.shape, name="input")], [out], extra, shapes
        ), out

    def chain(level: int, nodes: list[int], first: End) -> End:
        for node in nodes:
            builder.edge(level, first, End("node", node))
            first = End("node", node)
        return first

    stem, x = conv(0, "conv1", image, 64, 32, 7)
    norm, x = simple(0, "bn1", "BatchNorm2d", x, weight=[64], bias=[64])
    relu, x = simple(0, "relu", "ReLU", x)
    end = chain(0, [stem, norm, relu], End("input", 0))
    width, size = 64, 32
    for number in range(1, 5):
        width, size = 64 * 2 ** (number - 1), 32 // 2 ** (number - 1)
        wide = port(batch, width, size, size, name="")
        layer = builder.call(0, f"layer{number}", "Sequential", [port(*x.shape, name="input")], [wide])
        end = chain(0, [layer], end)
        inner = End("input", 0)
        for position in range(2):
            block = builder.call(layer, str(position), "BasicBlock", [port(*x.shape, name="x")], [wide])
            inner = chain(layer, [block], inner)
            one, y = conv(block, "conv1", x, width, size, 3)
            two, y = simple(block, "bn1", "BatchNorm2d", y, weight=[width], bias=[width])
            three, y = simple(block, "relu", "ReLU", y)
            four, y = conv(block, "conv2", y, width, size, 3)
            five, y = simple(block, "bn2", "BatchNorm2d", y, weight=[width], bias=[width])
            six, y = simple(block, "relu", "ReLU", y)
            chain(block, [one, two, three, four, five, six], End("input", 0))
            builder.edge(block, End("input", 0), End("node", six))
            builder.edge(block, End("node", six), End("output", 0))
            x = wide
        builder.edge(layer, inner, End("output", 0))
    pooled = port(batch, width, 1, 1, name="")
    pool = builder.call(
        0, "avgpool", "AdaptiveAvgPool2d", [port(*x.shape, name="input")], [pooled], "output_size=(1, 1)"
    )
    head = builder.call(
        0,
        "fc",
        "Linear",
        [port(batch, width, name="input")],
        [port(batch, 10, name="")],
        f"in_features={width}, out_features=10, bias=True",
        {"weight": [10, width], "bias": [10]},
    )
    builder.edge(0, chain(0, [pool, head], end), End("output", 0))
    return builder.graph()


def vqvae(model: str = "vqvae") -> Graph:
    """Encoder, a quantiser that no gradient passes (a data edge), decoder called twice."""
    builder = GraphBuilder(model, "VQVAE", unit="epoch")
    image, code = port(16, 1, 28, 28, name="image", requires_grad=False), port(16, 32, 7, 7, name="")
    builder.ports(0, [image], [port(16, 1, 28, 28, name="reconstruction"), port(16, 1, 28, 28, name="mean")])
    encoder = builder.call(0, "encoder", "Encoder", [image], [code])
    hidden = builder.call(
        encoder, "conv", "Conv2d", [image], [code], "1, 32, kernel_size=(4, 4)", {"weight": [32, 1, 4, 4]}
    )
    quantiser = builder.call(
        0, "quantiser", "Quantiser", [code], [code], "512 codes", {"codebook": [512, 32]}
    )
    builder.edge(encoder, End("input", 0), End("node", hidden))
    builder.edge(encoder, End("node", hidden), End("output", 0))
    builder.edge(0, End("input", 0), End("node", encoder))
    builder.edge(0, End("node", encoder), End("node", quantiser), "data")
    for index in range(2):
        decoder = builder.call(
            0,
            "decoder",
            "ConvTranspose2d",
            [code],
            [port(16, 1, 28, 28, name="")],
            "32, 1",
            {"weight": [32, 1, 4, 4]},
        )
        builder.edge(0, End("node", quantiser if index == 0 else encoder), End("node", decoder))
        builder.edge(0, End("node", decoder), End("output", index))
    return builder.graph()


def small(model: str = "model", bins: int = 30, layers: int = 3, **options: object) -> Graph:
    """A chain of linear layers at one level."""
    builder = GraphBuilder(model, "Sequential", bins, **options)
    builder.ports(0, [port(4, 8, name="input", requires_grad=False)], [port(4, 8, name="")])
    end = End("input", 0)
    for index in range(layers):
        extra, shapes = "in_features=8, out_features=8, bias=True", {"weight": [8, 8], "bias": [8]}
        node = builder.call(
            0, str(index), "Linear", [port(4, 8, name="input")], [port(4, 8, name="")], extra, shapes
        )
        builder.edge(0, end, End("node", node))
        end = End("node", node)
    builder.edge(0, end, End("output", 0))
    return builder.graph()


def wide(invocations: int, model: str = "model", bins: int = 30) -> Graph:
    """`invocations` linear layers in groups of 20, about 8 series each: the size to measure with."""
    builder = GraphBuilder(model, "Wide", bins)
    builder.ports(0, [port(4, 8, requires_grad=False)], [port(4, 8, name="")])
    group = 0
    end = End("input", 0)
    for index in range(invocations):
        if index % 20 == 0:
            group = builder.call(0, f"group{index // 20}", "Group", [port(4, 8)], [port(4, 8, name="")])
            builder.edge(0, end, End("node", group))
            end = End("node", group)
            inner = End("input", 0)
        shapes = {"weight": [8, 8], "bias": [8]}
        node = builder.call(
            group, f"layer{index % 20}", "Linear", [port(4, 8)], [port(4, 8, name="")], "8, 8", shapes
        )
        builder.edge(group, inner, End("node", node))
        inner = End("node", node)
    builder.edge(0, end, End("output", 0))
    return builder.graph()
