"""What the tests of public faults share: a watched training with everything sampled, and its records."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from neutrality import Observed
from neutrality import train as train_and_note
from recording import Recorded, record
from torch import Tensor, nn

from tensorboard_torchexplorer.writer import ExplorerWriter

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(7))


def squared(model: nn.Module) -> Tensor:
    return model(X).square().mean()


def train(
    model: nn.Module,
    loss: Callable[[nn.Module], Tensor] = squared,
    steps: int = 1,
    *,
    phase: str = "train",
    each: Callable[[int], Any] = lambda step: None,
    rate: float = 0.1,
    **options: Any,
) -> Recorded:
    """Watched training with everything sampled; `each(step)` is called before each optimizer step."""

    def run(writer: ExplorerWriter) -> None:
        watch = writer.watch(model, **{"log_freq": 1, "sample_n": None, **options})
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
        for step in range(steps):
            loss(model).backward()
            each(step)
            optimizer.step()
            optimizer.zero_grad()
        assert watch.faults.list() == []

    return record(run, phase=phase)


def edges(recorded: Recorded, level: str = ".") -> set[str]:
    """The edges of a level as `source target`, data-only ones with `..` between."""
    graph = recorded.graph
    ids = [node.id for node in graph.nodes]
    inside = "" if level == "." else f"{level}/"

    def name(end: Any) -> str:
        return ids[end.index].removeprefix(inside) if end.kind == "node" else f"{end.kind}{end.index}"

    return {
        f"{name(edge.source)} {'' if edge.kind == 'gradient' else '.. '}{name(edge.target)}"
        for edge in graph.edges
        if ids[edge.level] == level
    }


def modules(recorded: Recorded) -> dict[str, Any]:
    return {module.path: module for module in recorded.graph.modules}


def observed(build: Callable[[], tuple[nn.Module, Callable[[Any], Any]]]) -> tuple[Observed, Observed]:
    """What an unwatched and a watched training leave behind."""
    plain = train_and_note(build)
    with tempfile.TemporaryDirectory() as folder, ExplorerWriter(folder) as writer:
        watched = train_and_note(build, lambda model: writer.watch(model, log_freq=1), writer.unwatch)
    return plain, watched


class Lambda(nn.Module):
    """A module of one function and named children."""

    def __init__(self, function: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


class Pair(NamedTuple):
    first: Tensor
    second: Tensor
