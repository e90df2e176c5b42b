"""Models of many fields: every call, edge and gradient of theirs is recorded, and right."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gradients import assert_gradients_of_twin, cloned
from models_field import FIELD
from models_transformers import TRANSFORMERS
from recording import assert_row_holds, read_back
from test_structure_oracle import assert_agreement
from torch import Tensor, nn

from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter

MODELS = FIELD | {name: TRANSFORMERS[name] for name in ("mixtral", "mamba", "wav2vec2", "whisper")}

RUNS_AGAIN = {
    "deep_equilibrium": "the backward runs a module once more",
    "learning_to_learn": "two forwards of one step, the second through a gradient of the first",
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seed() -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_a_cloned_twin(name):
    build: Callable[[], Any] = MODELS[name]
    twin, run = build()
    truth = cloned(twin) if name not in RUNS_AGAIN else {}
    seed()
    run(twin).backward()

    model, run = build()
    with tempfile.TemporaryDirectory() as folder:
        with ExplorerWriter(folder) as writer:
            watch = writer.watch(model, log_freq=1, sample_n=None)
            seed()
            run(model).backward()
            assert watch.faults.list() == []
        recorded = read_back(folder)

    if truth:
        assert assert_gradients_of_twin(recorded, truth) > 5
    for path, parameter in twin.named_parameters():
        owner, _, name = path.rpartition(".")
        row = recorded.row(owner, "param", "grad", name)
        if parameter.grad is None:
            assert row["status"] == (Status.NO_GRADIENT if parameter.requires_grad else Status.FROZEN)
        elif parameter.grad.abs().max() > 1e-9:  # the bias of keys, say, has but rounding
            assert_row_holds(row, parameter.grad, rel=1e-4)


@pytest.mark.parametrize("name", [name for name in FIELD if name not in RUNS_AGAIN])
def test_edges_are_those_of_the_oracle(name):
    _, run = FIELD[name]()

    def seeded(model: nn.Module) -> Tensor:
        seed()
        return run(model)

    assert assert_agreement(lambda: FIELD[name]()[0], seeded) > 3
