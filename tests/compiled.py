"""What the tests of torch.compile share: ways to compile a model, and what the compiler made of it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

from tensorboard_torchexplorer import ExplorerWriter, attach
from tensorboard_torchexplorer.capture.dynamo import EAGER, _stance

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


# The compiler's own, while it traces.
WARNINGS = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]


@contextmanager
def fresh_compiler():
    """For one test: nothing is compiled before, and nobody is held off the compiler after."""
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    assert _stance() == "default"
    assert not EAGER._holders


class Graphs:
    """A backend that counts what it is given and runs it as it is."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, graph, inputs):
        self.sizes.append(len(list(graph.graph.nodes)))
        return graph.forward


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.layers(x)


class Head(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = Body()
        self.head = Head(8, 3)

    def forward(self, x):
        return self.head(attach(self.body(x), "hidden"))


class Breaks(Net):
    """With a graph break in the middle."""

    def forward(self, x):
        hidden = self.body(x)
        torch._dynamo.graph_break()
        return self.head(hidden)


def loop(model, call, steps, *, evaluate=False, optimizer=None):
    """Trains with `call` as the forward; the losses."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        loss = call(X).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if evaluate:
            model.eval()
            with torch.no_grad():
                losses += [call(X).sum().item(), call(X + 1).sum().item()]
            model.train()
    return losses


def whole_model(model, backend, **options):
    return torch.compile(model, backend=backend, **options)


def in_place(model, backend, **options):
    model.compile(backend=backend, **options)
    return model


def step_function(model, backend, **options):
    @torch.compile(backend=backend, **options)
    def forward(x):
        return model(x * 1)

    return forward


def children(model, backend, **options):
    model.body = torch.compile(model.body, backend=backend, **options)
    model.head.compile(backend=backend, **options)
    return model


WAYS = {
    "compile(model)": whole_model,
    "model.compile()": in_place,
    "step function": step_function,
    "children": children,
}


def run(way, when, folder, *, build=Net, steps=7, evaluate=False, watch=True, **options):
    """Train and watch a model; (losses, weights, sizes of the graphs, counters of the compiler)."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model, backend = build(), Graphs()
    fullgraph = options.pop("fullgraph", False)
    writer = ExplorerWriter(str(folder))
    if watch and when == "before":
        writer.watch(model, log_freq=3, **options)
    call = WAYS[way](model, backend, fullgraph=fullgraph)
    if watch and when == "after":
        writer.watch(call if isinstance(call, nn.Module) else model, log_freq=3, **options)
    losses = loop(model, call, steps, evaluate=evaluate)
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    writer.close()
    stats = {
        "graphs": backend.sizes,
        "breaks": sum(counters["graph_break"].values()),
        "recompiles": sum(counters["recompiles"].values()),
        "frames": counters["stats"]["unique_graphs"],
    }
    return losses, weights, stats
