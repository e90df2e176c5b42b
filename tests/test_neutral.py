"""Watching changes nothing: each model trained with and without it, compared bit by bit.

The models are those of models.py (structure), models_values.py (dtypes, layouts, values, chance) and
models_transformers.py. A table of models and properties closes the run.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from models import CASES
from models_transformers import TRANSFORMERS
from models_values import VALUES
from neutrality import PROPERTIES, Build, Observed, train
from recording import read_back
from torch import Tensor, nn

from tensorboard_torchexplorer.writer import ExplorerWriter

MODELS: dict[str, Build] = {
    **{name: case.build for name, case in CASES.items()},
    **VALUES,
    **TRANSFORMERS,
}
OLD_TORCH = pytest.mark.filterwarnings("default")  # some models are about its older features


class Examined(NamedTuple):
    """A model trained plainly and watched. `broken`: property -> the first difference. `copied` are the
    records that training a copy of the watched model has added."""

    plain: Observed
    watched: Observed
    broken: dict[str, str]
    faults: list[Any]
    records: int
    copied: int


@functools.cache
def examined(name: str) -> Examined:
    build = MODELS[name]
    plain = train(build)
    counts: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        with ExplorerWriter(folder) as writer:
            watches: list[Any] = []

            def watch(model: nn.Module) -> None:
                watches.append(writer.watch(model, log_freq=1, eval_freq=1))

            def use_a_copy(model: nn.Module, run: Callable[[Any], Any]) -> None:
                counts.append(records(writer, folder))
                twin, _ = build()
                twin.__dict__.update(model.__dict__)  # what careless copying does
                loss = run(twin)
                if isinstance(loss, Tensor) and loss.requires_grad:
                    loss.backward()
                counts.append(records(writer, folder))

            watched = train(build, watch, lambda: writer.unwatch(), after=use_a_copy)
            faults = watches[0].faults.list()
        counts.append(records(writer, folder))
    return Examined(plain, watched, watched.differences(plain), faults, counts[-1], counts[1] - counts[0])


def records(writer: ExplorerWriter, folder: str) -> int:
    writer.flush()
    if not any(Path(folder).iterdir()):
        return 0
    try:
        return sum(len(read_back(folder, phase=phase).steps) for phase in ("train", "eval"))
    except (ValueError, StopIteration):  # nothing written yet
        return 0


@OLD_TORCH
@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_same_bit_by_bit(name, table):
    found = examined(name)
    table.add(name, found)
    assert found.broken == {}
    assert found.faults == []
    assert found.records > 0
    assert found.copied == 0
