"""Train something under a real `ExplorerWriter` and read the records back from the event file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tensorboard_torchexplorer.reader import read
from tensorboard_torchexplorer.schema import Graph, Status
from tensorboard_torchexplorer.writer import ExplorerWriter


class Key(NamedTuple):
    """A series by words: node id (module path for parameters), group, kind, port or parameter name."""

    node: str
    group: str
    kind: str
    name: str


class Recorded(NamedTuple):
    """The graph and the rows of each series, one per logged step (structured arrays)."""

    graph: Graph
    steps: list[int]
    series: dict[Key, np.ndarray]
    history: Any

    def row(self, node: str, group: str, kind: str, name: str, at: int = -1):
        return self.series[Key(node, group, kind, name)][at]

    def status(self, node: str, group: str, kind: str, name: str, at: int = -1) -> int:
        return int(self.row(node, group, kind, name, at)["status"])

    def node(self, node_id: str):
        return next(node for node in self.graph.nodes if node.id == node_id)

    def ids(self) -> list[str]:
        return [node.id for node in self.graph.nodes]


def record(
    train: Callable[[Any], Any],
    *,
    model_name: str | None = None,
    phase: str = "train",
    logdir: str | None = None,
) -> Recorded:
    """Call `train(writer)` and read back the (only, or named) model that it watched."""
    with tempfile.TemporaryDirectory() as folder:
        where = logdir or str(Path(folder) / "run")
        with ExplorerWriter(where) as writer:
            train(writer)
        return read_back(where, model_name, phase)


def read_back(logdir: str, model_name: str | None = None, phase: str = "train") -> Recorded:
    (run,) = read(logdir).values()
    model = run[model_name] if model_name else next(iter(run.values()))
    graph = model.graph
    history = model.history(phase)
    series = {}
    for index, entry in enumerate(graph.series):
        owner = graph.nodes[entry.node].id if entry.node >= 0 else graph.modules[entry.module].path
        series[Key(owner, entry.group, entry.kind, entry.name)] = history.rows(index)
    return Recorded(graph, list(history.steps), series, history)


def numbers(tensor: Tensor) -> np.ndarray:
    """What is meant by the values of a tensor."""
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = tensor.resolve_conj().abs()
    return tensor.detach().to(torch.float64).reshape(-1).numpy()


def assert_row_holds(row: Any, values: Tensor, *, rel: float = 2e-6) -> None:
    """`row` was made of all of `values` (sampling off)."""
    truth = (
        (values.detach().abs() if values.is_complex() else values.detach())
        .to(torch.float64)
        .reshape(-1)
        .numpy()
    )
    assert row["status"] == Status.OK
    assert row["size"] == row["sampled"] == truth.size
    tolerance = rel * (np.abs(truth).max() + 1e-300)
    for name, value in (
        ("min", truth.min()),
        ("max", truth.max()),
        ("mean", truth.mean()),
        ("std", truth.std()),
    ):
        np.testing.assert_allclose(row[name], value, rtol=rel, atol=tolerance, err_msg=name)
    assert row["counts"].sum() == truth.size - int(0.1 * truth.size)


def norms(gradient: Tensor) -> Tensor:
    """Per-sample norms as DESIGN defines them."""
    if gradient.dim() == 0:
        gradient = gradient.reshape(1)
    return gradient.reshape(gradient.shape[0], -1).norm(dim=1)


def clone_instrumented(model: nn.Module) -> dict[tuple[str, str, int], list[Tensor]]:
    """Make `model` clone each module input and output and collect the clones' gradients: what a full
    backward hook means, and independent of how we read gradients. Keys: (path, group, leaf number); one
    entry per call, in the order of the backward."""
    found: dict[tuple[str, str, int], list[Tensor]] = {}

    def clones(path: str, group: str, value: Any, count: list[int]) -> Any:
        if isinstance(value, Tensor):
            key = (path, group, count[0])
            count[0] += 1
            if not value.requires_grad:
                return value
            copy = value.clone()
            copy.register_hook(lambda g: found.setdefault(key, []).append(g.clone()))
            return copy
        if isinstance(value, (tuple, list)):
            return type(value)(clones(path, group, item, count) for item in value)
        if isinstance(value, dict):
            return {key: clones(path, group, item, count) for key, item in value.items()}
        return value

    for path, module in model.named_modules():

        def before(_module, args, kwargs, path=path):
            count = [0]
            return clones(path, "input", args, count), clones(path, "input", kwargs, count)

        def after(_module, args, result, path=path):
            return clones(path, "output", result, [0])

        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after)
    return found
