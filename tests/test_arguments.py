"""Wrong arguments of public functions: each gets an error that names the argument and its value, and nothing
is begun."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import ExplorerWriter, log_to_wandb, read, unwatch_model, verify, watch_model
from tensorboard_torchexplorer.integrations.lightning import ExplorerCallback as ForLightning
from tensorboard_torchexplorer.integrations.transformers import ExplorerCallback as ForTransformers
from tensorboard_torchexplorer.report import export
from tensorboard_torchexplorer.serve import launch, serve
from tests import record_graphs, records


@pytest.fixture
def model():
    return nn.Linear(2, 2)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs")
    with SummaryWriter(path / "a") as writer:
        records.write(writer, records.Run(record_graphs.small("model")), range(3))
    return path


def refused(function, *arguments, named: str, **options) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        function(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"log": 5}, "watch: log=5 is not some of io, io_grad"),
        ({"log": None}, "watch: log=None is not some of"),
        ({"include": 5}, "watch: include=5 is not a glob"),
        ({"exclude": [3.5]}, "watch: exclude=3.5 is not a glob"),
        ({"name": "a\ud800"}, "watch: name='a\\ud800' is not valid Unicode"),
        ({"name": ""}, "watch: name='' is not a non-empty string"),
    ],
)
def test_options_of_watch(options, named, model, tmp_path):
    with ExplorerWriter(tmp_path) as writer:
        refused(writer.watch, model, named=named, **options)

        assert "_compiled_call_impl" not in vars(model)


def test_numbers_of_numpy_are_numbers(model, tmp_path):
    names = ("log_freq", "max_records", "bins", "sample_n", "eval_freq", "start_step")
    with ExplorerWriter(tmp_path) as writer:
        watch = writer.watch(
            model, reject_outlier_proportion=np.float32(0.25), **dict.fromkeys(names, np.int64(5))
        )
        for _ in range(6):
            model(torch.ones(3, 2)).sum().backward()
            torch.optim.SGD(model.parameters(), 0.1).step()
        assert watch.faults.list() == []
    history = read(tmp_path)["."].models["Linear"].history("train")
    assert list(history.steps) == [5, 10]


@pytest.mark.parametrize("writer", ["runs/a", 5, nn.Linear(1, 1)], ids=["path", "number", "module"])
def test_what_is_no_writer(writer, model):
    refused(watch_model, writer, model, named=f"watch: writer={writer!r} is not a SummaryWriter")
    refused(unwatch_model, writer, named=f"unwatch: writer={writer!r} is not a SummaryWriter")
    refused(log_to_wandb, writer, None, named=f"log_to_wandb: writer={writer!r} is not a SummaryWriter")


def test_what_is_no_model(model, tmp_path):
    with ExplorerWriter(tmp_path) as writer:
        refused(writer.watch, "model", named="watch: model='model' is not a torch.nn.Module")
        watch = writer.watch(model)
        refused(writer.unwatch, "model", named="unwatch: model='model' is not a torch.nn.Module")
        writer.unwatch(nn.Linear(1, 1))  # one that is not watched

        model(torch.ones(1, 2)).sum().backward()
        assert watch.recorded == 1


@pytest.mark.parametrize("path", [None, 3, b"runs", "", "a\0b"])
def test_what_is_no_path(path, logdir):
    named = f"={path!r} is not a path"
    refused(read, path, named=f"read: logdir{named}")
    refused(serve, path, named=f"serve: logdir{named}")
    refused(launch, path, named=f"serve: logdir{named}")
    refused(export, path, "report.html", named=f"export: logdir{named}")
    refused(export, logdir, path, named=f"export: path{named}")
    if path is not None:
        for callback in (ForLightning, ForTransformers):
            refused(callback, logdir=path, named=f"ExplorerCallback: logdir{named}")
    if path:  # None and an empty one are none, to a SummaryWriter
        refused(ExplorerWriter, path, named=f"ExplorerWriter: log_dir{named}")


@pytest.mark.parametrize("port", [-1, 65536, True, "6006"])
def test_what_is_no_port(port, tmp_path):
    refused(launch, tmp_path, port, named=f"serve: port={port!r} is not a whole number from 0 to 65535")


class TestReports:
    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"runs": 3}, "export: runs=3 is not a name or several names"),
            ({"runs": []}, "export: runs=[] is not a name"),
            ({"models": 5}, "export: models=5 is not a name"),
            ({"models": [5]}, "export: models=[5] is not a name"),
            ({"steps": 1}, "export: steps=1 is not a whole number from 2 on"),
        ],
    )
    def test_what_is_chosen(self, options, named, logdir, tmp_path):
        refused(export, logdir, tmp_path / "report.html", named=named, **options)

        assert list(tmp_path.iterdir()) == []

    def test_a_directory_in_place_of_the_file(self, logdir, tmp_path):
        refused(export, logdir, tmp_path, named=f"export: path='{tmp_path}' is a directory")

    def test_a_directory_that_is_not_there(self, logdir, tmp_path):
        missing = tmp_path / "missing"
        with pytest.raises(FileNotFoundError, match=f"path='{missing}/r.html': there is no directory"):
            export(logdir, missing / "r.html")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": "x"}, "verify: seed='x' is not a whole number from"),
        ({"seed": 2**64}, f"verify: seed={2**64} is not a whole number"),
        ({"optimizer": 3}, "verify: optimizer=3 is not a function(parameters)"),
        (
            {"optimizer": lambda parameters: None},
            "verify: optimizer returned None, not a torch.optim.Optimizer",
        ),
        ({"batch_fn": lambda model, step: ()}, "verify: batch_fn returned tuple, not a loss of one element"),
    ],
    ids=["text as seed", "large seed", "number as optimizer", "no optimizer made", "empty result"],
)
def test_arguments_of_verify(options, named, model):
    refused(
        verify,
        model,
        **{"batch_fn": lambda model, step: model(torch.ones(1, 2)).sum(), **options},
        named=named,
    )


class TestSeries:
    @pytest.mark.parametrize("index", ["0", 1.0, None, True])
    def test_what_is_no_number_of_one(self, index, logdir):
        history = read(logdir)["a"]["model"].history()

        refused(history.rows, index, named=f"series: index={index!r} is not a whole number")

    def test_one_of_numpy_is_one(self, logdir):
        history = read(logdir)["a"]["model"].history()

        assert history.rows(np.int32(1)).tobytes() == history.rows(1).tobytes()
