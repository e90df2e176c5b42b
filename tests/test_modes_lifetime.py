"""What lives how long: models, writers and their watches; and what copies of a watched model hold."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from watched import X, everything, train, two_parts

from tensorboard_torchexplorer.background import background_of
from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter, unwatch_model, watch_model
from tests.recording import Key, read_back


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_two_writers_watch_one_model(first_to_go, tmp_path):
    """Each records what it would alone, and goes without the other."""
    model, plain = two_parts(), two_parts()
    before = everything(model)
    writers = [ExplorerWriter(str(tmp_path / str(number))) for number in range(2)]
    for writer, freq in zip(writers, (1, 2), strict=True):
        writer.watch(model, log_freq=freq, sample_n=None)
    train(model, 3)
    writers[first_to_go].close()
    train(model, 2)
    writers[1 - first_to_go].close()
    train(plain, 3)
    train(plain, 2)

    assert everything(model) == before
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    steps = [read_back(str(tmp_path / str(number))).steps for number in range(2)]
    assert steps == ([[0, 1, 2], [0, 2, 4]] if first_to_go == 0 else [[0, 1, 2, 3, 4], [0, 2]])
    seen = [read_back(str(tmp_path / str(number))) for number in range(2)]
    for key in (Key("encoder", "output", "grad", "output"), Key("decoder", "param", "grad", "weight")):
        assert seen[0].series[key][2] == seen[1].series[key][1]
        assert seen[0].series[key][2]["status"] == Status.OK


def test_a_writer_that_is_gone_takes_its_watch_along(tmp_path):
    model = two_parts()
    before = everything(model)
    writer = ExplorerWriter(str(tmp_path))
    watch = writer.watch(model, log_freq=1)
    train(model)
    writer.flush()
    writer.file_writer.close()
    del writer
    gc.collect()

    assert everything(model) == before
    assert watch.model is model
    train(model)
    assert read_back(str(tmp_path)).steps == [0]


@pytest.mark.parametrize("cycle", ["none", "logged", "idle", "evaluated"])
def test_a_watched_model_can_be_collected(cycle, tmp_path):
    model = two_parts()
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(model, log_freq=2)
        if cycle == "evaluated":
            model.eval()
            with torch.no_grad():
                model(X)
        elif cycle != "none":
            train(model, 1 if cycle == "logged" else 2)
        gone = weakref.ref(model), weakref.ref(model.encoder[0].weight)
        del model
        gc.collect()

        assert [one() for one in gone] == [None, None]
        assert watch.model is None
        other = two_parts()
        writer.watch(other, log_freq=1)
        train(other)


def test_a_plain_summary_writer_closed_while_watching_harms_nothing(tmp_path):
    model, plain = two_parts(), two_parts()
    writer = SummaryWriter(str(tmp_path))
    watch_model(writer, model, log_freq=1)
    train(model)
    background_of(writer).flush()
    writer.close()

    def go_on():
        train(model, 2)
        background_of(writer).flush()

    with pytest.warns(RuntimeWarning, match="closed before all records"):
        go_on()
    train(plain)
    train(plain, 2)
    unwatch_model(writer)

    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_copies_pickles_and_saved_files_hold_nothing_of_the_watch(tmp_path):
    """C43, between forward and backward of a logged step; loaded where the package does not exist."""
    model = nn.Sequential(nn.Linear(8, 4))
    with ExplorerWriter(str(tmp_path / "run")) as writer:
        watch = writer.watch(model, log_freq=1)
        loss = model(X).sum()
        assert all(word not in pickle.dumps(model) for word in (b"torchexplorer", b"_compiled_call_impl"))
        buffer = io.BytesIO()
        torch.save(model, tmp_path / "model.pt")
        torch.save({"trainer": {"model": model, "watch": watch}}, buffer)
        twin = copy.deepcopy(model)
        shallow = copy.copy(model)
        by_dict = nn.Sequential.__new__(nn.Sequential)
        by_dict.__dict__.update(model.__dict__)
        attributes = copy.deepcopy(model.__dict__)
        loss.backward()
        twin(X), shallow(X), by_dict(X)
    code = (
        "import sys; sys.modules['tensorboard_torchexplorer'] = None; import torch; "
        f"print(torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)(torch.ones(1, 8)).shape)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "torch.Size([1, 4])"
    assert "_compiled_call_impl" not in vars(twin)
    assert "_compiled_call_impl" not in vars(shallow)
    assert attributes["_compiled_call_impl"] is None
    seen = read_back(str(tmp_path / "run"))
    assert seen.steps == [0]
    assert seen.history.infos[0].forwards == 1


def test_a_traced_graph_module_is_watched_and_copied(tmp_path):
    """torch.fx deep-copies all attributes of a module, the slot included."""
    model = torch.fx.symbolic_trace(two_parts())
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1)
        twin = copy.deepcopy(model)
        train(model)
        train(twin)
    assert read_back(str(tmp_path)).steps == [0]
    assert read_back(str(tmp_path)).ids() == [".", "encoder.0", "encoder.1", "decoder"]


def test_closing_the_writer_within_a_forward(tmp_path):
    """A callback that ends the run while the model is busy."""
    writer = ExplorerWriter(str(tmp_path))

    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            writer.close()
            return self.linear(x)

    model = Ends()
    before = everything(model)
    writer.watch(model, log_freq=1)
    train(model, 2)

    assert everything(model) == before
