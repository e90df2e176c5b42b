"""Watching changes nothing: each model trained with and without it, compared bit by bit.

The models are those of models.py (structure), models_values.py and models_layouts.py (dtypes,
values, chance; layouts, subclasses) and models_transformers.py. A table of models and properties closes
the run.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from models import CASES
from models_field import FIELD
from models_layouts import LAYOUTS
from models_transformers import TRANSFORMERS
from models_values import VALUES
from neutrality import PROPERTIES, Build, Observed, attempt, train
from torch import Tensor, nn

from tensorboard_torchexplorer.reader import read
from tensorboard_torchexplorer.schema import PHASES
from tensorboard_torchexplorer.writer import ExplorerWriter

MODELS: dict[str, Build] = {
    **{name: case.build for name, case in CASES.items()},
    **VALUES,
    **LAYOUTS,
    **FIELD,
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
def examined(name: str, **options: Any) -> Examined:
    build = MODELS[name]
    plain = plainly(name)
    counts: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        with ExplorerWriter(folder) as writer:
            watches: list[Any] = []

            def watch(model: nn.Module) -> None:
                watches.append(writer.watch(model, **{"log_freq": 1, "eval_freq": 1, **options}))

            def use_a_copy(model: nn.Module, run: Callable[[Any], Any]) -> None:
                counts.append(records(writer, folder))
                twin, _ = build()
                twin.__dict__.update(model.__dict__)  # what careless copying does
                loss = run(twin)
                if isinstance(loss, Tensor) and loss.requires_grad:
                    attempt(loss.backward)
                counts.append(records(writer, folder))

            watched = train(build, watch, lambda: writer.unwatch(), after=use_a_copy)
            faults = watches[0].faults.list()
        counts.append(records(writer, folder))
    return Examined(plain, watched, watched.differences(plain), faults, counts[-1], counts[1] - counts[0])


@functools.cache
def plainly(name: str) -> Observed:
    return train(MODELS[name])


def records(writer: ExplorerWriter, folder: str) -> int:
    """How many logged steps are on disk."""
    writer.flush()
    found = read(folder)
    return sum(
        len(model.history(phase).steps)
        for run in found.values()
        for model in run.values()
        for phase in PHASES
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models on many threads are slow, and how a sum is split would depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- The table ---------------------------------------------------------------------------------------


class Table:
    """Which properties of which models were compared; printed at the end of the run."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        self.reasons: dict[str, list[str]] = {}

    def add(self, name: str, found: Examined) -> None:
        row = self.rows[name] = {}
        for column in PROPERTIES:
            reason = not_applicable(column, found.plain)
            if column in found.broken:
                row[column] = "X"
            elif reason:
                row[column] = "."
                self.reasons.setdefault(f"{column}: {reason}", []).append(name)
            else:
                row[column] = "="

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker of xdist has no terminal: conftest.py takes the table from here to the one that has."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["neutral"] = [self.rows, self.reasons]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("watched and unwatched training, compared")
        write("  = the same by the bit   X changed   . nothing to compare, see below")
        for number, column in enumerate(PROPERTIES):
            write(" " * 42 + "| " * number + "+ " + column)
        for name, row in self.rows.items():
            write(f"{name:42}" + " ".join(row[column] for column in PROPERTIES))
        for reason, models in sorted(self.reasons.items()):
            write(f". {reason}: {', '.join(models)}")


def not_applicable(column: str, plain: Observed) -> str:
    """Why a property says nothing about a model, empty if it does. Judged by the unwatched run."""
    facts = plain.facts[column]
    if column == "loss":
        return "" if plain.trained else "nothing to train"
    if column in ("gradients", "optimizer"):
        return "" if plain.trained else "nothing to train"
    if column in ("weights", "buffers"):
        return "" if any(facts) else f"it has no {column}"
    if column in ("deepcopy", "pickle", "save", "average"):
        failed = [
            fact for fact in facts if isinstance(fact, tuple) and fact and str(fact[0]).endswith("Error")
        ]
        return f"torch can't do it either ({failed[0][0]})" if len(failed) == len(facts) else ""
    if column == "objects":
        return "" if facts else "it makes no module call"
    return ""


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Table:
    made = Table()
    request.config.pluginmanager.register(made)
    return made


# --- Tests -------------------------------------------------------------------------------------------


@OLD_TORCH
@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_same_bit_by_bit(name, table):
    found = examined(name)
    table.add(name, found)

    assert found.broken == {}
    assert found.faults == []
    assert found.records > 0
    assert found.copied == 0  # a copy is not taken for the original


@OLD_TORCH
@pytest.mark.parametrize(
    "name", sorted({*list(MODELS)[::4], "checkpoint_reentrant", "stochastic_depth", "gpt2"})
)
def test_training_is_the_same_with_all_values_and_idle_steps(name):
    found = examined(name, log_freq=2, sample_n=None, exact=True)

    assert found.broken == {}
    assert found.faults == []


LOAD = """
import io, pathlib, pickle, sys, warnings
sys.modules["tensorboard_torchexplorer"] = None  # importing it raises ImportError
sys.modules["tensorboard"] = None
import torch
warnings.simplefilter("ignore")
torch.set_num_threads(1)
loaded = 0
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    data = path.read_bytes()
    assert b"torchexplorer" not in data, path.name
    pickle.loads(data) if path.suffix == ".pickle" else torch.load(io.BytesIO(data), weights_only=False)
    loaded += 1
print(loaded)
"""


@OLD_TORCH
def test_saved_models_load_where_this_package_is_missing(tmp_path):
    for name in MODELS:
        for moment, data in examined(name).watched.files.items():
            (tmp_path / f"{name} {moment}").write_bytes(data)
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) == len(list(tmp_path.iterdir())) > 4 * len(MODELS)
