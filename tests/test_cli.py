"""The command `tensorboard-torchexplorer`."""

from __future__ import annotations

import inspect
import json
import urllib.request
from importlib.metadata import entry_points

import pytest
import torch

import tensorboard_torchexplorer
from tensorboard_torchexplorer import demo, read
from tensorboard_torchexplorer.cli import main
from tensorboard_torchexplorer.report import export


@pytest.fixture
def one_thread():
    """The demo changes the number of torch's threads."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_the_command_is_installed():
    (found,) = entry_points(group="console_scripts", name="tensorboard-torchexplorer")

    assert found.load() is main


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == tensorboard_torchexplorer.__version__


def test_show_prints_an_address_that_answers(serve, tmp_path):
    with urllib.request.urlopen(f"{serve(tmp_path)}data/plugins_listing", timeout=60) as answer:
        listing = json.load(answer)

    assert listing["torchexplorer"]["tab_name"] == "TorchExplorer"


@pytest.mark.usefixtures("one_thread")
def test_the_demo_learns_and_leaves_a_run(tmp_path, capsys):
    assert main(["demo", "--steps", "20", "--no-serve", "--logdir", str(tmp_path)]) == 0

    ((run, models),) = read(tmp_path).items()
    model = models["ByteModel"]
    printed = capsys.readouterr().out
    assert f"Recorded in {tmp_path / run}" in printed
    losses = [float(line.split()[-1]) for line in printed.splitlines() if "loss" in line]
    assert losses[0] > 5  # a guess among 256 bytes costs ln 256 = 5.5
    assert losses[-1] < 4
    assert model.history().steps.tolist() == [0, 5, 10, 15]
    assert {"byte", "place", "blocks/3/attention/qkv", "head"} <= {node.id for node in model.graph.nodes}
    assert [info.faults for info in model.history().infos] == [[]] * 4


@pytest.mark.usefixtures("one_thread")
def test_the_report_of_the_demo_is_small(tmp_path, monkeypatch):
    """As many records as the demo makes, of as many tensors; how many samples are in a batch adds nothing."""
    made = inspect.signature(demo.train).parameters
    records = made["steps"].default // made["log_freq"].default
    monkeypatch.setattr(demo, "_BATCH", 2)
    demo.train(tmp_path / "runs", steps=records, log_freq=1)
    size = export(tmp_path / "runs", tmp_path / "report.html")

    assert len(read(tmp_path / "runs")["."]["ByteModel"].history().steps) == records == 60
    assert size == (tmp_path / "report.html").stat().st_size
    assert size < 3_000_000


def test_the_demo_says_where_it_found_no_text(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})

    assert main(["demo", "--logdir", str(tmp_path / "runs")]) == 1
    assert f"error: there are no Python sources in '{tmp_path}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["demo", "--steps", "0"], "argument --steps: expected a whole number from 1 "),
        (["show", "x", "--port", "99999"], "argument --port: expected a whole number from 0 to 65535, got"),
        (["show"], "logdir"),
        ([], "command"),
    ],
)
def test_wrong_arguments_are_named(arguments, problem, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert problem in capsys.readouterr().err
