"""The callback for the Hugging Face Trainer with real trainers, against a loop written out by hand."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from tensorboard_torchexplorer import read  # noqa: E402
from tensorboard_torchexplorer.integrations.transformers import ExplorerCallback  # noqa: E402
from tensorboard_torchexplorer.schema import Status  # noqa: E402
from tests.recording import assert_row_holds, read_back  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Transformers' and Accelerate's own

X = torch.randn(24, 8, generator=torch.Generator().manual_seed(1))
Y = torch.randn(24, 3, generator=torch.Generator().manual_seed(2))
DATA = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
BATCH, LR, CLIP = 4, 0.1, 0.05


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x, labels=None):
        out = self.net(x)
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


class InOrder(transformers.Trainer):
    """Batches in the order of the data, so that a loop can be written beside it."""

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def create_optimizer(self, *args, **kwargs):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR)
        return self.optimizer


def trainer(folder, *callbacks, model=None, **options):
    options = {"max_steps": 4, "report_to": "tensorboard", "max_grad_norm": 0.0, **options}
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=8,
        lr_scheduler_type="constant",
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1,
        **{"save_strategy": "no", **options},
    )
    made = InOrder(
        Net() if model is None else model,
        arguments,
        train_dataset=DATA,
        eval_dataset=DATA,
        callbacks=list(callbacks),
    )
    return made


def fit(folder, callback=None, resume=None, **options):
    """A training with all recorded; the trainer."""
    made = trainer(folder, callback or ExplorerCallback(log_freq=1, sample_n=None), **options)
    made.train(resume_from_checkpoint=resume)
    return made


def run_of(folder) -> str:
    """The directory of the one run below `folder`."""
    (name,) = read(folder)
    return str(folder / name)


def by_hand(steps: int, accumulate: int = 1, clip: float = 0.0) -> list[dict[str, torch.Tensor]]:
    """The training of `Net` as a plain loop: weights before each step, and the gradients that it used."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    batches = [(X[i : i + BATCH], Y[i : i + BATCH]) for i in range(0, len(X), BATCH)]
    found = []
    for step in range(steps):
        for part in range(accumulate):
            x, y = batches[(step * accumulate + part) % len(batches)]
            (model(x, y)["loss"] / accumulate).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        seen = {name: p.detach().clone() for name, p in model.named_parameters()}
        seen |= {f"{name}.grad": p.grad.clone() for name, p in model.named_parameters()}
        found.append(seen)
        optimizer.step()
        optimizer.zero_grad()
    return found


def assert_is_that_by_hand(recorded, wanted):
    for at, step in enumerate(wanted):
        for name in ("net.0.weight", "net.2.bias"):
            path, _, leaf = name.rpartition(".")
            assert_row_holds(recorded.row(path, "param", "value", leaf, at), step[name], rel=1e-5)
            assert_row_holds(recorded.row(path, "param", "grad", leaf, at), step[f"{name}.grad"], rel=1e-5)


@pytest.mark.parametrize(("accumulate", "clip"), [(1, 0.0), (2, 0.0), (1, CLIP), (2, CLIP)])
def test_gradients_are_those_that_the_optimizer_used(accumulate, clip, tmp_path):
    fit(tmp_path, gradient_accumulation_steps=accumulate, max_grad_norm=clip, max_steps=3)
    recorded = read_back(run_of(tmp_path))

    assert recorded.steps == [0, 1, 2]
    assert_is_that_by_hand(recorded, by_hand(3, accumulate, clip))
    assert [info.forwards for info in recorded.history.infos] == [accumulate] * 3
    assert [info.faults for info in recorded.history.infos if info.faults] == []
    assert recorded.status("net/2", "output", "grad", "output") == Status.OK


def test_records_and_scalars_share_the_file_of_the_report(tmp_path):
    fit(tmp_path)
    files = list(tmp_path.rglob("events.out.tfevents.*"))
    scalars = EventAccumulator(run_of(tmp_path)).Reload()

    assert len(files) == 1
    assert "train/loss" in scalars.Tags()["scalars"]
    assert read_back(run_of(tmp_path)).steps == [0, 1, 2, 3]


def test_the_order_of_the_callbacks_does_not_matter(tmp_path):
    made = trainer(tmp_path, ExplorerCallback(log_freq=1))
    report = made.pop_callback(transformers.integrations.TensorBoardCallback)
    made.add_callback(report)
    made.train()

    assert len(list(tmp_path.rglob("events.out.tfevents.*"))) == 1
    assert read_back(run_of(tmp_path)).steps == [0, 1, 2, 3]


def test_each_of_two_trainers_has_the_writer_of_its_own_report(tmp_path):
    one = trainer(tmp_path / "one", ExplorerCallback(log_freq=1))
    other = trainer(tmp_path / "other", ExplorerCallback(log_freq=1))
    one.train()
    other.train()

    assert len(list(tmp_path.rglob("events.out.tfevents.*"))) == 2
    assert [list(run["Net"].history().steps) for run in read(tmp_path).values()] == [[0, 1, 2, 3]] * 2


def test_evaluations_become_a_series_and_that_on_start_does_not(tmp_path):
    fit(tmp_path, eval_strategy="steps", eval_steps=2, eval_on_start=True)
    recorded = read_back(run_of(tmp_path), phase="eval")

    assert recorded.steps == [2, 4]
    assert recorded.row("net", "output", "value", "output")["size"] == 8 * 3
    assert recorded.status("net", "output", "grad", "output") == Status.EVAL


def test_epochs_as_time_axis(tmp_path):
    fit(tmp_path, ExplorerCallback(log_freq=3, epochs=True), max_steps=10)
    model = next(iter(read(tmp_path).values()))["Net"]

    assert [info.time for info in model.history().infos] == [0.0, 0.5, 1.0, 1.5]
    assert model.unit == "epoch"


def test_a_resumed_training_goes_on_with_the_trainers_steps(tmp_path):
    fit(tmp_path / "first", save_strategy="steps", save_steps=4)
    fit(tmp_path / "second", resume=str(tmp_path / "first" / "checkpoint-4"), max_steps=6)
    recorded = read_back(run_of(tmp_path / "second"))

    assert recorded.steps == [4, 5]
    assert_is_that_by_hand(recorded, by_hand(6)[4:])


@pytest.mark.parametrize("own", [False, True])
def test_without_a_report_records_have_a_file_of_their_own(own, tmp_path):
    where = tmp_path / "own" if own else None
    fit(tmp_path / "out", ExplorerCallback(log_freq=1, logdir=where), report_to="none")
    folder = where if own else tmp_path / "out" / "runs"

    assert read_back(run_of(folder)).steps == [0, 1, 2, 3]
    assert len(list(tmp_path.rglob("events.out.tfevents.*"))) == 1


def test_a_second_event_file_beside_that_of_the_report_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tb"))
    with pytest.raises(ValueError, match=r"logdir='.*tb' is where the trainer's own event file lies"):
        fit(tmp_path, ExplorerCallback(logdir=tmp_path / "tb"))


def test_the_training_is_that_without_the_callback_and_nothing_stays_behind(tmp_path):
    models = Net(), Net()
    trainer(tmp_path / "plain", model=models[0]).train()
    fit(tmp_path / "watched", model=models[1])

    for plain, watched in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(plain, watched)
    assert vars(models[0]).keys() == vars(models[1]).keys()


def test_a_training_that_raised_does_not_hinder_the_next(tmp_path):
    class Raises(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 2:
                raise RuntimeError("the user's own")

    callback, raises = ExplorerCallback(log_freq=1), Raises()
    first = trainer(tmp_path / "first", callback, raises)
    with pytest.raises(RuntimeError, match="the user's own"):
        first.train()
    trainer(tmp_path / "second", callback, model=first.model).train()

    assert "_compiled_call_impl" not in vars(first.model)
    assert read_back(run_of(tmp_path / "first")).steps == [0, 1]
    assert read_back(run_of(tmp_path / "second")).steps == [0, 1, 2, 3]


def test_a_compiled_model_in_mixed_precision(tmp_path):
    fit(tmp_path, torch_compile=True, torch_compile_backend="eager", bf16=True)
    recorded = read_back(run_of(tmp_path))
    ports = recorded.node("net/0").outputs

    assert recorded.graph.model == "Net"
    assert recorded.steps == [0, 1, 2, 3]
    assert [port.dtype for port in ports] == ["bfloat16"]
    assert recorded.status("net/0", "output", "grad", "output") == Status.OK


def test_copies_made_during_a_training_watch_nothing(tmp_path):
    class Copies(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            self.made = pickle.loads(pickle.dumps(callback))

    callback, copies = ExplorerCallback(log_freq=1), Copies()
    trainer(tmp_path, callback, copies).train()

    assert not copies.made._watching.begun
    assert read_back(run_of(tmp_path)).steps == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [({"every": 1}, TypeError, "no option 'every'"), ({"bins": 0}, ValueError, "bins=0")],
)
def test_wrong_options_are_named_at_once(options, error, match):
    with pytest.raises(error, match=match):
        ExplorerCallback(**options)


def test_without_transformers_the_import_says_what_to_install():
    code = (
        "import sys\n"
        "sys.modules['transformers'] = None\n"
        "import tensorboard_torchexplorer.integrations.transformers\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert run.returncode == 1
    assert "pip install transformers accelerate" in run.stderr
