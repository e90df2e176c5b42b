"""Gradients by other means than ours, and those in the records."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from recording import Recorded, assert_row_holds, clone_instrumented, norms, record
from torch import Tensor, nn

from tensorboard_torchexplorer.schema import Status


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)


def train_once(model: nn.Module, loss: Callable[[nn.Module], Tensor], **options: Any) -> Recorded:
    """One watched step with everything sampled."""

    def train(writer):
        writer.watch(model, log_freq=1, sample_n=None, **options)
        optimizer = sgd(model)
        loss(model).backward()
        optimizer.step()
        optimizer.zero_grad()

    return record(train)


def compare_with_clones(build: Callable[[], nn.Module], loss: Callable[[nn.Module], Tensor]) -> Recorded:
    """Every recorded gradient equals that of a twin whose tensors are cloned at each module's border, and
    the twin's gradients are all recorded."""
    torch.manual_seed(0)
    model = build()
    twin = copy.deepcopy(model)
    truth = clone_instrumented(twin)
    torch.manual_seed(1)
    loss(twin).backward()
    torch.manual_seed(1)
    recorded = train_once(model, loss)
    seen: dict[tuple[str, str, int], int] = {}
    compared = 0
    for node in recorded.graph.nodes:
        module = recorded.graph.modules[node.module]
        for group, ports in (("input", node.inputs), ("output", node.outputs)):
            for index, port in enumerate(ports):
                key = (module.path, group, index)
                row = recorded.row(node.id, group, "grad", port.name)
                if not port.requires_grad or key not in truth:
                    assert row["status"] != Status.OK, (node.id, group, port.name)
                    continue
                passes = truth[key]
                call = seen.get(key, 0)
                seen[key] = call + 1
                # The backward meets the calls of a module in reverse.
                gradient = passes[len(passes) - 1 - call]
                assert_row_holds(row, norms(gradient), rel=1e-5)
                compared += 1
    assert compared >= len(truth)
    for name, parameter in twin.named_parameters():
        path, _, leaf = name.rpartition(".")
        assert_row_holds(recorded.row(path, "param", "grad", leaf), parameter.grad, rel=1e-5)
    return recorded


X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).tanh()
        return self.last(hidden + self.second(hidden))


def squared(model: nn.Module) -> Tensor:
    return model(X).square().mean()


def parameter_gradients(recorded: Recorded, at: int) -> dict[str, Any]:
    rows = {}
    for key, series in recorded.series.items():
        if key.group == "param" and key.kind == "grad":
            rows[f"{key.node}.{key.name}" if key.node else key.name] = series[at]
    return rows


def assert_parameter_gradients(recorded: Recorded, wanted: list[dict[str, Tensor]]) -> None:
    assert recorded.steps == list(range(len(wanted)))
    for at, gradients in enumerate(wanted):
        rows = parameter_gradients(recorded, at)
        assert set(gradients) <= set(rows)
        for name, gradient in gradients.items():
            assert_row_holds(rows[name], gradient)


def grads(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
