"""The whole way: the example model trained, its graph and values read through a real TensorBoard."""

from __future__ import annotations

import copy
import json
import pickle
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tensorboard_torchexplorer.schema import ROOT_ID
from tensorboard_torchexplorer.writer import ExplorerWriter
from tests.recording import norms
from tests.tensorboard_server import PLUGIN, Server, tensorboard_server

EXAMPLES = Path(__file__).parent.parent / "examples"

TOP = """input 0>conv1 conv1>bn1 bn1>relu relu>layer1 layer1>layer2 layer2>layer3 layer3>layer4
layer4>avgpool avgpool>fc fc>output 0"""
STAGE = "input 0>0 0>1 1>output 0"
BLOCK = "input 0>conv1 conv1>bn1 bn1>relu relu>conv2 conv2>bn2 bn2>relu#1 relu#1>output 0"
SAME_SIZE = BLOCK + " input 0>relu#1"
HALVED = BLOCK + " input 0>downsample downsample>relu#1"
LEVELS = {ROOT_ID: TOP, "layer1": STAGE, "layer1/0": SAME_SIZE, "layer2/0": HALVED}


@pytest.fixture(scope="module")
def resnet18():
    sys.path.insert(0, str(EXAMPLES))
    try:
        from resnet18 import ResNet18
    finally:
        sys.path.remove(str(EXAMPLES))
    return ResNet18


def images(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 1, 32, 32, generator=generator), torch.randint(10, (4,), generator=generator)


def train(model: nn.Module, steps: int) -> list[float]:
    """The losses of a few steps, with all the randomness a loop may have."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = images(step)
        x = x + 0.01 * torch.randn_like(x) * random.random() * np.random.random()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def seed_all() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def arrows(level: dict[str, Any]) -> set[str]:
    """The edges of a `Level` as `a>b`, data-only ones as `a~b`; ends by the last part of their ids."""
    nodes = {node["index"]: node["id"].split("/")[-1] for node in level["nodes"]}

    def end(kind: str, index: int) -> str:
        return nodes[index] if kind == "node" else f"{kind} {index}"

    return {
        end(*edge["source"]) + (">" if edge["kind"] == "gradient" else "~") + end(*edge["target"])
        for edge in level["edges"]
    }


@pytest.fixture(scope="module")
def server(resnet18, tmp_path_factory) -> Iterator[Server]:
    """It has three logged steps of the example's model."""
    logdir = tmp_path_factory.mktemp("runs")
    seed_all()
    with ExplorerWriter(str(logdir / "resnet18")) as writer:
        model = resnet18(width=4)
        writer.watch(model, log_freq=1)
        train(model, 3)
    with tensorboard_server(logdir) as found:
        found.wait_for_steps("resnet18", "ResNet18", 2)
        yield found


@pytest.mark.parametrize("level", LEVELS)
def test_the_graph_has_exactly_the_edges_of_the_forward(server, level, golden):
    answer = server.plugin("graph", run="resnet18", model="ResNet18", node=level)
    expected = LEVELS[level].replace("\n", " ").replace("put 0", "put_0").split()
    assert {arrow.replace("put 0", "put_0") for arrow in arrows(answer)} == set(expected)
    golden(f"resnet18-{level.replace('/', '.').strip('.') or 'top'}", answer)


def test_watching_changes_nothing_of_the_training(resnet18, tmp_path):
    def run(watched: bool) -> tuple[nn.Module, list[float], tuple[Any, ...]]:
        seed_all()
        model = resnet18(width=4)
        keys = list(model.state_dict())
        with ExplorerWriter(str(tmp_path / str(watched))) as writer:
            if watched:
                writer.watch(model, log_freq=1)
            losses = train(model, 5)
            assert list(model.state_dict()) == keys
            for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                assert vars(twin).keys() == vars(resnet18(width=4)).keys()
                x, _ = images()
                assert torch.equal(twin.eval()(x), copy.deepcopy(model).eval()(x))
        states = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
        return model, losses, states

    plain, watched = run(False), run(True)
    assert plain[1] == watched[1]
    for (name, one), other in zip(
        plain[0].state_dict().items(), watched[0].state_dict().values(), strict=True
    ):
        assert torch.equal(one, other), name
    assert torch.equal(plain[2][0], watched[2][0])
    assert plain[2][1:] == watched[2][1:]
    assert vars(plain[0]).keys() == vars(watched[0]).keys()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out = self.linear(x)
        out += x
        return out


STEPS = 300


@pytest.fixture(scope="module")
def long_run(tmp_path_factory) -> tuple[Path, list[dict[str, Tensor]]]:
    """A run of 300 logged steps, and the tensors of each as the loop itself has seen them."""
    logdir = tmp_path_factory.mktemp("long")
    seed_all()
    model = Residual()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = []
    with ExplorerWriter(str(logdir / "run")) as writer:
        writer.watch(model, log_freq=1, sample_n=None, reject_outlier_proportion=0.0)
        for step in range(STEPS):
            x = torch.randn(5, 6)
            weight = model.linear.weight.detach().clone()
            hidden = nn.functional.linear(x, weight, model.linear.bias.detach())
            loss = model(x).square().mean()
            loss.backward()
            seen.append(
                {
                    "input value": x,
                    "output value": hidden,
                    # d mean((h + x)^2) / d h
                    "output grad": norms(2 * (hidden + x) / 30),
                    "weight value": weight,
                    "weight grad": model.linear.weight.grad.clone(),
                }
            )
            optimizer.step()
            optimizer.zero_grad()
            writer.add_scalar("loss", loss.item(), step)
    return logdir, seen


def series(server: Server, **query: object) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A `series` answer: its head, and the blocks by name."""
    answer = server.get(PLUGIN + "series", **query)
    assert answer.status == 200, answer.body
    (length,) = struct.unpack_from("<I", answer.body)
    head = json.loads(answer.body[4 : 4 + length])
    blocks = {}
    for block in head["blocks"]:
        count = int(np.prod(block["shape"]))
        flat = np.frombuffer(answer.body, "<" + block["dtype"], count, 4 + length + block["offset"])
        blocks[block["name"]] = flat.reshape(block["shape"])
    return head, blocks


@pytest.mark.parametrize("load_fast", ["auto", "false"])
def test_all_logged_steps_and_true_values_reach_the_tab(long_run, load_fast):
    logdir, seen = long_run
    with tensorboard_server(logdir, load_fast) as server:
        server.wait_for_steps("run", "Residual", STEPS - 1)
        scalars = server.get_json("data/plugin/scalars/scalars", run="run", tag="loss")
        assert len(scalars) == STEPS
        steps = server.plugin("steps", run="run", model="Residual")
        assert steps["train"] == list(range(STEPS))
        head, blocks = series(server, run="run", model="Residual", node="linear", limit=1000)
    assert head["steps"] == list(range(STEPS))
    names = [f"{s['name']} {s['kind']}" for s in head["series"]]
    for name in seen[0]:
        row = names.index(name)
        for step in range(STEPS):
            truth = seen[step][name].double().numpy()
            counts, edges = np.histogram(truth, 30)
            assert blocks["min"][row, step] == pytest.approx(truth.min(), rel=1e-5)
            assert blocks["max"][row, step] == pytest.approx(truth.max(), rel=1e-5)
            assert blocks["mean"][row, step] == pytest.approx(truth.mean(), rel=1e-4, abs=1e-6)
            assert blocks["size"][row, step] == truth.size
            # A value on the border of two bins may fall to either side by rounding.
            found = blocks["counts"][row, step]
            assert found.sum() == counts.sum()
            assert np.abs(np.cumsum(found) - np.cumsum(counts)).max() <= 1, (name, step, edges)
