"""What is said where something older is installed than is supported."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

import pytest
import torch
from torch import nn

from tensorboard_torchexplorer import ExplorerWriter, read, versions
from tensorboard_torchexplorer.capture import structure


@pytest.fixture
def installed(monkeypatch):
    """`installed(torch="2.3.1")` says so of a package."""

    def say(**found: str | None) -> None:
        def version(package: str) -> str:
            text = found.get(package, "999")
            if text is None:
                raise PackageNotFoundError(package)
            return text

        monkeypatch.setattr(versions, "version", version)

    return say


@pytest.mark.parametrize(
    ("package", "found"),
    [
        ("torch", "2.5.1"),
        ("torch", "2.5.1+cu121"),
        ("torch", "1.13"),
        ("torch", "2"),
        ("tensorboard", "2.16.2"),
    ],
)
def test_c85_what_is_too_old_is_named_with_what_to_do(package, found, installed, tmp_path):
    installed(**{package: found})
    oldest = versions.NEEDED[package]
    expected = f'needs {package} {oldest} or newer, and this is {found}: pip install "{package}>={oldest}"'
    with ExplorerWriter(tmp_path) as writer, pytest.raises(ImportError, match=re.escape(expected)):
        writer.watch(nn.Linear(1, 1))


@pytest.mark.parametrize("found", ["2.6", "2.6.0+cpu", "2.13.0", "3.0a1", "10.1", None, "unknown"])
def test_others_pass(found, installed):
    installed(torch=found)

    versions.check()


def test_the_distribution_asks_for_the_same_versions():
    asked = [re.match(r"([a-z]+)>=([\d.]+)$", need) for need in requires("tensorboard-torchexplorer")]

    assert versions.NEEDED.items() <= {found[1]: found[2] for found in asked if found}.items()


def test_a_torch_whose_inner_parts_have_moved_costs_edges_and_not_the_training(tmp_path, monkeypatch):
    def moved(observer: object) -> None:
        raise AttributeError("no attribute '__func__'")

    monkeypatch.setattr(structure, "watch_functions", moved)
    model = nn.Linear(3, 2)
    with ExplorerWriter(tmp_path) as writer:
        writer.watch(model, "net", log_freq=1)
        for _ in range(2):
            output = model(torch.ones(4, 3))
            output.sum().backward()
    found = read(tmp_path)["."]["net"]
    series = [s.name for s in found.graph.series if (s.group, s.kind) == ("output", "grad")]

    assert output.shape == (4, 2)
    assert found.history().steps.tolist() == [0, 1]
    assert len(series) == 1
    assert found.history().table(range(len(found.graph.series)))["status"].min() == 0
    assert {fault.place for info in found.history().infos for fault in info.faults} == {
        "the graph of the forward"
    }
