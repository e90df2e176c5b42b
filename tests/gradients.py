"""Gradients by other means than ours, and those in the records."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
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


Found = dict[tuple[str, int, str, int], Tensor]


def cloned(model: nn.Module) -> Found:
    """Make each module clone what enters and leaves it, so that each has tensors of its own. Gives their
    gradients by (path, number of the call, group, port), filled by the backward."""
    found: Found = {}
    calls: Counter[str] = Counter()
    running: list[tuple[str, int]] = []

    def clones(value: Any, call: tuple[str, int], group: str, count: list[int]) -> Any:
        if isinstance(value, Tensor):
            key = (*call, group, count[0])
            count[0] += 1
            copy = value.clone()
            if not copy.requires_grad:
                return value
            copy.register_hook(lambda g: found.__setitem__(key, g.clone()))
            return copy
        if isinstance(value, (tuple, list)):
            return type(value)(clones(item, call, group, count) for item in value)
        if isinstance(value, Mapping):
            copies = {key: clones(item, call, group, count) for key, item in value.items()}
            if type(value) is dict:
                return copies
            for key, item in copies.items():  # transformers' results
                value[key] = item
            return value
        if dataclasses.is_dataclass(value):
            parts = [clones(getattr(value, f.name), call, group, count) for f in dataclasses.fields(value)]
            return type(value)(*parts)
        return value

    for path, module in model.named_modules():

        def before(_m: nn.Module, args: Any, kwargs: Any, path: str = path) -> Any:
            running.append((path, calls[path]))
            calls[path] += 1
            count = [0]
            return clones(args, running[-1], "input", count), clones(kwargs, running[-1], "input", count)

        def after(_m: nn.Module, args: Any, result: Any) -> Any:
            return clones(result, running.pop(), "output", [0])

        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after)
    return found


def assert_gradients_of_twin(recorded: Recorded, truth: Found) -> int:
    """Every gradient that is recorded of inputs and outputs is the one of a `cloned` twin, and no other of
    its is missing. Gives how many were compared."""
    calls: Counter[str] = Counter()
    compared, missing = 0, dict(truth)
    for node in recorded.graph.nodes:
        path = recorded.graph.modules[node.module].path
        if "not called through __call__" in node.notes:
            continue
        number = calls[path]
        calls[path] += 1
        for group, ports in (("input", node.inputs), ("output", node.outputs)):
            for index, port in enumerate(ports):
                row = recorded.row(node.id, group, "grad", port.name)
                gradient = missing.pop((path, number, group, index), None)
                where = (node.id, group, port.name)
                if gradient is None:
                    assert row["status"] != Status.OK or row["max"] == 0, where
                    continue
                wanted = norms(gradient)
                if row["status"] != Status.OK:
                    assert not wanted.any(), where
                    continue
                tolerance = 1e-5 * float(wanted.max()) + 1e-7
                assert row["max"] == pytest.approx(float(wanted.max()), abs=tolerance), where
                assert row["mean"] == pytest.approx(float(wanted.mean()), abs=tolerance), where
                compared += 1
    assert missing == {}
    return compared
