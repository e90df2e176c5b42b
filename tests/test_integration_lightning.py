"""The Lightning callback with real trainers: what it records, against a loop written out by hand."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its imports use what other packages have deprecated
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.fabric import Fabric
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tensorboard_torchexplorer import ExplorerWriter, read
from tensorboard_torchexplorer.integrations.lightning import ExplorerCallback
from tensorboard_torchexplorer.schema import Status
from tests.lightning_training import (
    BATCH,
    CLIP,
    LR,
    Forward,
    Gan,
    Lit,
    Measured,
    OneArgument,
    X,
    Y,
    fit,
    loader,
    trainer,
)
from tests.recording import assert_row_holds, read_back

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own: few workers, no checkpoints, ...


def by_hand(steps: int, accumulate: int, clip: float | None) -> list[dict[str, torch.Tensor]]:
    """The training of `Lit` as a plain loop: weights before each step, and the gradients that it used."""
    net = Lit().net
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    found = []
    batches = [(X[i : i + BATCH], Y[i : i + BATCH]) for i in range(0, len(X), BATCH)]
    for step in range(steps):
        for part in range(accumulate):
            x, y = batches[(step * accumulate + part) % len(batches)]
            (nn.functional.mse_loss(net(x), y) / accumulate).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        seen = {name: p.detach().clone() for name, p in net.named_parameters()}
        seen |= {f"{name}.grad": p.grad.clone() for name, p in net.named_parameters()}
        found.append(seen)
        optimizer.step()
        optimizer.zero_grad()
    return found


def assert_is_that_by_hand(recorded, wanted, prefix="net."):
    for at, step in enumerate(wanted):
        for name in ("0.weight", "2.weight", "2.bias"):
            path, _, leaf = name.rpartition(".")
            assert_row_holds(recorded.row(prefix + path, "param", "value", leaf, at), step[name], rel=1e-5)
            assert_row_holds(
                recorded.row(prefix + path, "param", "grad", leaf, at), step[f"{name}.grad"], rel=1e-5
            )


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("clip", [None, CLIP])
def test_gradients_are_those_that_the_optimizer_used(accumulate, clip, tmp_path):
    fit(tmp_path, accumulate_grad_batches=accumulate, gradient_clip_val=clip)
    recorded = read_back(str(tmp_path))
    steps = len(X) // BATCH // accumulate

    assert recorded.steps == list(range(steps))
    assert_is_that_by_hand(recorded, by_hand(steps, accumulate, clip))
    assert {info.forwards for info in recorded.history.infos} == {accumulate}
    assert [info.faults for info in recorded.history.infos if info.faults] == []


@pytest.mark.parametrize("model", [Lit, Forward, OneArgument])
def test_the_graph_is_that_of_the_training_step(model, tmp_path):
    fit(tmp_path, model())
    recorded = read_back(str(tmp_path))

    assert recorded.graph.model == model.__name__
    assert recorded.ids() == [".", "net", "net/0", "net/1", "net/2", "criterion"]
    assert [port.name for port in recorded.node(".").inputs] == ["batch[0]", "batch[1]"]
    assert recorded.status("net/0", "output", "grad", "output") == Status.OK


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_metrics_among_the_children_are_nodes(precision, tmp_path):
    fit(tmp_path, Measured(), precision=precision, validate=True)
    recorded = read_back(str(tmp_path))
    (port,) = recorded.node("net").outputs

    assert recorded.ids() == [".", "net", "net/0", "net/1", "net/2", "error", "criterion"]
    assert recorded.steps == list(range(6))
    assert port.dtype == ("float32" if precision == "32-true" else "bfloat16")
    assert recorded.status("net/0", "output", "grad", "output") == Status.OK
    assert [info.faults for info in recorded.history.infos if info.faults] == []


def test_fabric_needs_nothing_but_watch(tmp_path):
    net = Lit().net
    fabric = Fabric(accelerator="cpu")
    wrapped, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=LR))
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(wrapped, log_freq=1, sample_n=None, optimizer=optimizer)
        for x, y in list(loader())[:3]:
            fabric.backward(nn.functional.mse_loss(wrapped(x), y))
            fabric.clip_gradients(wrapped, optimizer, max_norm=CLIP)
            optimizer.step()
            optimizer.zero_grad()
    recorded = read_back(str(tmp_path))

    assert recorded.graph.model == "Sequential"
    assert recorded.ids() == [".", "0", "1", "2"]
    assert_is_that_by_hand(recorded, by_hand(3, 1, CLIP), prefix="")


def test_records_and_scalars_share_the_loggers_file(tmp_path):
    fit(tmp_path, max_steps=3)
    files = list(tmp_path.glob("events.out.tfevents.*"))
    scalars = EventAccumulator(str(tmp_path)).Reload()

    assert len(files) == 1
    assert [event.step for event in scalars.Scalars("loss")] == read_back(str(tmp_path)).steps == [0, 1, 2]


def test_the_training_is_that_without_the_callback_and_nothing_stays_behind(tmp_path):
    models = Lit(), Lit()
    trainer(tmp_path / "plain").fit(models[0], loader())
    fit(tmp_path / "watched", models[1])

    for plain, watched in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(plain, watched)
    assert vars(models[0]).keys() == vars(models[1]).keys()
    assert "training_step" not in vars(models[1])


def test_validation_becomes_the_evaluation_series_and_the_sanity_check_does_not(tmp_path):
    fit(tmp_path, validate=True, max_epochs=2, num_sanity_val_steps=2)
    recorded = read_back(str(tmp_path), phase="eval")

    assert recorded.steps == [6, 12]
    assert recorded.row("net", "output", "value", "output")["size"] == BATCH * 3
    assert recorded.status("net", "output", "grad", "output") == Status.EVAL


def test_epochs_as_time_axis(tmp_path):
    fit(tmp_path, callback=ExplorerCallback(log_freq=3, epochs=True), validate=True, max_epochs=2)
    train, evaluated = (read_back(str(tmp_path), phase=phase).history.infos for phase in ("train", "eval"))

    assert [info.time for info in train] == [0.0, 0.5, 1.0, 1.5]
    assert [info.time for info in evaluated] == [1.0, 2.0]
    assert next(iter(read(tmp_path).values()))["Lit"].unit == "epoch"


def test_a_resumed_fit_goes_on_with_the_trainers_steps(tmp_path):
    fit(tmp_path / "first").save_checkpoint(tmp_path / "end.ckpt")
    fit(tmp_path / "second", ckpt_path=tmp_path / "end.ckpt", max_epochs=2)
    recorded = read_back(str(tmp_path / "second"))

    assert recorded.steps == list(range(6, 12))
    assert_is_that_by_hand(recorded, by_hand(12, 1, None)[6:])


def test_several_fits_of_one_trainer_write_into_one_file(tmp_path):
    model, callback = Lit(), ExplorerCallback(log_freq=1, sample_n=None)
    made = fit(tmp_path, model, callback, max_epochs=1)
    made.fit_loop.max_epochs = 2
    made.fit(model, loader())
    recorded = read_back(str(tmp_path))

    assert recorded.steps == list(range(12))
    assert_is_that_by_hand(recorded, by_hand(12, 1, None))


def test_manual_optimization_shows_the_children_with_the_steps_of_their_optimizers(tmp_path):
    fit(tmp_path, Gan())
    (run,) = read(tmp_path).values()

    assert set(run) == {"maker", "critic"}
    assert list(run["maker"].history().steps) == list(range(6))
    assert list(run["critic"].history().steps) == list(range(12))


def test_resumed_manual_optimization_goes_on_where_each_optimizer_was(tmp_path):
    fit(tmp_path / "first", Gan()).save_checkpoint(tmp_path / "end.ckpt")
    fit(tmp_path / "second", Gan(), ckpt_path=tmp_path / "end.ckpt", max_epochs=2)
    (run,) = read(tmp_path / "second").values()

    assert list(run["maker"].history().steps) == list(range(6, 12))
    assert list(run["critic"].history().steps) == list(range(12, 24))


def test_submodules_by_path(tmp_path):
    fit(tmp_path, callback=ExplorerCallback(module=["net", "net.2"], log_freq=1, sample_n=None), max_steps=2)

    assert_is_that_by_hand(read_back(str(tmp_path), "net"), by_hand(2, 1, None), prefix="")
    assert read_back(str(tmp_path), "net.2").ids() == ["."]


@pytest.mark.parametrize(
    ("logger", "where"),
    [(False, "torchexplorer/version_0"), (CSVLogger, "csv/version_0/torchexplorer"), ("logdir", "own")],
)
def test_without_a_tensorboard_logger_records_have_a_file_of_their_own(logger, where, tmp_path):
    callback = ExplorerCallback(log_freq=1, logdir=tmp_path / "own" if logger == "logdir" else None)
    if logger is CSVLogger:
        logger = CSVLogger(tmp_path, name="csv")
    elif logger == "logdir":
        logger = TensorBoardLogger(tmp_path)
    fit(tmp_path, callback=callback, logger=logger, max_steps=2)

    assert list(read(tmp_path)) == [where]
    assert read_back(str(tmp_path / where)).steps == [0, 1]


def test_a_second_event_file_beside_the_loggers_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"logdir='.*' is where the trainer's own event file lies"):
        fit(tmp_path, callback=ExplorerCallback(logdir=tmp_path), max_steps=1)


def test_fast_dev_run_writes_nothing(tmp_path):
    fit(tmp_path, fast_dev_run=True)

    assert list(tmp_path.rglob("events*")) == []


def test_a_fit_that_raises_leaves_the_model_as_it_was_and_the_records_written(tmp_path):
    class Raises(Lit):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                raise RuntimeError("the user's own")
            return super().training_step(batch, batch_idx)

    model = Raises()
    with pytest.raises(RuntimeError, match="the user's own"):
        fit(tmp_path, model)

    assert "training_step" not in vars(model)
    assert read_back(str(tmp_path)).steps == [0, 1]


@pytest.mark.parametrize("kind", [Forward, OneArgument])
def test_a_compiled_module_is_seen_on_logged_steps(kind, tmp_path):
    model = torch.compile(kind(), backend="eager")
    fit(tmp_path, model, ExplorerCallback(log_freq=2, sample_n=None))
    recorded = read_back(str(tmp_path))

    assert recorded.steps == [0, 2, 4]
    assert "net/2" in recorded.ids()
    wanted = by_hand(5, 1, None)
    assert_is_that_by_hand(recorded, [wanted[0], wanted[2], wanted[4]])


def test_copies_of_callback_and_model_made_during_a_fit_watch_nothing(tmp_path):
    class Copies(lightning.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.made = [copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))]
            self.module = copy.deepcopy(pl_module)
            self.state = callback.state_dict()

    callback, copies = ExplorerCallback(log_freq=1), Copies()
    trainer(tmp_path, callback, copies, max_steps=3).fit(Lit(), loader())

    assert copies.state == {"steps": {"Lit": 3}}
    assert all(made.state_dict() == copies.state for made in copies.made)
    assert copies.module.training_step.__self__ is copies.module
    assert read_back(str(tmp_path)).steps == [0, 1, 2]


def test_options_reach_watch(tmp_path):
    fit(tmp_path, callback=ExplorerCallback(name="mine", log_freq=2, log=["params"], bins=7, exclude="net.0"))
    (run,) = read(tmp_path).values()

    assert run["mine"].graph.bins == 7
    assert list(run["mine"].history().steps) == [0, 2, 4]
    assert {series.group for series in run["mine"].graph.series} == {"param"}


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"log_frequency": 1}, TypeError, "no option 'log_frequency'"),
        ({"start_step": 1}, TypeError, "no option 'start_step'"),
        ({"log_freq": 0}, ValueError, "log_freq=0"),
        ({"name": ""}, ValueError, "name=''"),
        ({"module": 3}, TypeError, "not iterable"),
        ({"module": [3]}, ValueError, "module=3"),
        ({"module": ["a", "b"], "name": "c"}, ValueError, "name='c'"),
        ({"epochs": 1}, ValueError, "epochs=1"),
        ({"epochs": True, "time_log": ("s", lambda model, step: 0.0)}, ValueError, "time_log"),
    ],
)
def test_wrong_options_are_named_at_once(options, error, match):
    with pytest.raises(error, match=match):
        ExplorerCallback(**options)


def test_a_module_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"module='body' is no submodule of Lit, which has net, criterion"):
        fit(tmp_path, callback=ExplorerCallback(module="body"), max_steps=1)


def test_the_older_package_works_as_well(tmp_path):
    """In a process of its own, as one without the newer."""
    code = (
        "import sys\n"
        "sys.modules['lightning'] = None\n"
        "import pytorch_lightning as pl, torch\n"
        "from tensorboard_torchexplorer.integrations.lightning import ExplorerCallback\n"
        "class Lit(pl.LightningModule):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.net = torch.nn.Linear(8, 3)\n"
        "    def training_step(self, batch, batch_idx):\n"
        "        return self.net(batch).square().mean()\n"
        "    def configure_optimizers(self):\n"
        "        return torch.optim.SGD(self.parameters(), lr=0.1)\n"
        "trainer = pl.Trainer(accelerator='cpu', max_epochs=1, default_root_dir=sys.argv[1],\n"
        "    logger=pl.loggers.TensorBoardLogger(sys.argv[1], name=None, version=''),\n"
        "    callbacks=[ExplorerCallback(log_freq=1)], enable_progress_bar=False)\n"
        "trainer.fit(Lit(), torch.utils.data.DataLoader(torch.ones(4, 8), batch_size=2))\n"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], check=True, capture_output=True
    )

    assert read_back(str(tmp_path)).steps == [0, 1]
    assert read_back(str(tmp_path)).status("net", "output", "grad", "output") == Status.OK


def test_without_lightning_the_import_says_what_to_install():
    code = (
        "import sys\n"
        "sys.modules['lightning'] = sys.modules['pytorch_lightning'] = None\n"
        "import tensorboard_torchexplorer.integrations.lightning\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent
    )

    assert run.returncode == 1
    assert "pip install lightning" in run.stderr
