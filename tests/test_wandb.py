"""A run of the real wandb, offline: what it was given is read back from its directory."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import ExplorerWriter, log_to_wandb, read, watch_model
from tensorboard_torchexplorer.background import background_of
from tests.chromium import look_at, needs_chromium
from tests.test_report import Held

wandb = pytest.importorskip("wandb")
pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")

BLOCK = 32768


@pytest.fixture
def start(tmp_path):
    """`start(**options)` begins an offline run in a directory of the test."""
    runs = []

    def begin(**options: Any) -> Any:
        settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True)
        run = wandb.init(mode="offline", dir=tmp_path, settings=settings, **options)
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.finish()


def stored(directory: Path) -> list[Any]:
    """The records of an offline run that has been finished. wandb's own process writes them, and its last
    ones come after `finish()` has returned."""
    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    deadline = time.monotonic() + 60
    while True:
        found = list(parsed(path.read_bytes()))
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        assert time.monotonic() < deadline, f"{path} has no end after {len(found)} records"
        time.sleep(0.1)


def parsed(data: bytes) -> Iterator[Any]:
    """LevelDB's log format behind a header of 7 bytes; a piece that is not whole yet ends it."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if at + 7 + length > len(data):
            return
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield pb.Record.FromString(whole)
            whole = b""


def rows(directory: Path) -> list[dict[str, Any]]:
    """The rows of metrics, in order."""
    found = []
    for record in stored(directory):
        if record.WhichOneof("record_type") == "history":
            found.append({})
            for item in record.history.item:
                *above, last = item.nested_key or [item.key]
                place = found[-1]
                for key in above:
                    place = place.setdefault(key, {})
                place[last] = json.loads(item.value_json)
    return found


def train(writer: Any, run: Any, steps: int = 4, log_row: bool = True) -> None:
    """Every step is recorded, and the training logs a row for each."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch_model(writer, model, "net", log_freq=1, exact=True)
    for _ in range(steps):
        loss = model(torch.ones(8, 3)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        background_of(writer).flush()
        if log_row:
            run.log({"loss": loss.item()})


def test_the_statistics_of_each_module_join_the_rows_of_the_training(start, tmp_path):
    run = start()
    with ExplorerWriter(tmp_path / "logs", wandb_run=run) as writer:
        train(writer, run)
    run.finish()
    logged = [row for row in rows(tmp_path) if "loss" in row]
    recorded = read(tmp_path / "logs")["."]["net"].history()

    assert [row["_step"] for row in logged] == [0, 1, 2, 3]
    assert [row["net/step"] for row in logged] == [0, 1, 2, 3]
    health = recorded.health()
    for step, row in enumerate(logged):
        assert row["net/0/gradient"] == pytest.approx(health[step, 1, 0], rel=1e-6)
        assert row["net/2/parameter"] == pytest.approx(health[step, 3, 4], rel=1e-6)
    # By hand: all samples are the same ones, so the model's gradient norm is that of one output row.
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    output = first(torch.ones(8, 3))
    assert logged[0]["net/2/gradient"] == pytest.approx((2 * output).norm(dim=1).mean().item(), rel=5e-3)
    # A module without parameters has no such statistic.
    assert "net/1/parameter" not in logged[0]
    assert all(math.isfinite(value) for key, value in logged[0].items() if key.startswith("net/"))


def test_a_training_that_counts_in_its_own_way_keeps_its_rows(start, tmp_path):
    run = start()
    with ExplorerWriter(tmp_path / "logs", wandb_run=run) as writer:
        for epoch in range(3):
            train(writer, run, log_row=False)
            run.log({"loss": 0.5}, step=epoch)
    run.finish()
    found = rows(tmp_path)

    assert [row["_step"] for row in found] == [0, 1, 2]
    assert [row["loss"] for row in found] == [0.5] * 3
    assert [row["net/step"] for row in found if "net/step" in row] == [7, 11]


def test_metrics_have_the_step_of_their_model_as_axis(start, tmp_path):
    run = start()
    with ExplorerWriter(tmp_path / "logs", wandb_run=run) as writer:
        train(writer, run, 1)
    run.finish()
    metrics = [record.metric for record in stored(tmp_path) if record.WhichOneof("record_type") == "metric"]

    assert {(metric.name or metric.glob_name, metric.step_metric) for metric in metrics} == {
        ("net/step", ""),
        ("net/*", "net/step"),
    }


def test_records_have_rows_of_their_own_where_that_is_wanted(start, tmp_path):
    run = start()
    with ExplorerWriter(tmp_path / "logs", wandb_run=run, wandb_own_rows=True) as writer:
        train(writer, run, log_row=False)
    run.finish()
    found = rows(tmp_path)

    assert [row["net/step"] for row in found if "net/step" in row] == [0, 1, 2, 3]
    assert "torchexplorer/report" in found[-1]
    assert not any("loss" in row for row in found)


def test_evaluation_has_names_of_its_own(start, tmp_path):
    run = start()
    model = nn.Linear(3, 2)
    with ExplorerWriter(tmp_path / "logs", wandb_run=run, wandb_own_rows=True) as writer:
        writer.watch(model, "net", log_freq=1, eval_freq=1)
        model(torch.ones(4, 3)).sum().backward()
        with torch.no_grad():
            model.eval()(torch.ones(4, 3))
    run.finish()
    trained, evaluated, _ = rows(tmp_path)

    assert {"net/gradient", "net/output_std"} <= trained.keys()
    assert "net/eval/output_std" in evaluated
    assert not {"net/eval/gradient", "net/output_std"} & evaluated.keys()


@needs_chromium
def test_the_report_is_logged_as_it_is_and_shows_the_graph(start, tmp_path):
    run = start()
    with ExplorerWriter(tmp_path / "logs", wandb_run=run, wandb_report_every=3) as writer:
        train(writer, run)
    run.finish()
    logged = [row["torchexplorer/report"] for row in rows(tmp_path) if "torchexplorer/report" in row]
    files = {path.name: path for path in tmp_path.glob("wandb/offline-run-*/files/media/html/**/*.html")}

    assert [entry["_type"] for entry in logged] == ["html-file"] * 2
    held = [Held.of(files[Path(entry["path"]).name].read_text("utf-8")) for entry in logged]
    assert [h.json(h.model("logs", "net")["steps"])["train"] for h in held] == [[0, 1, 2], [0, 1, 2, 3]]
    last = files[Path(logged[-1]["path"]).name]
    link = {"run": "logs", "model": "net", "color": "gradient", "panels": "0:0"}
    address = "".join(f"&p.torchexplorer.{key}={value}" for key, value in link.items())
    look = look_at(f"{last.as_uri()}#torchexplorer{address}", tmp_path / "profile")
    for title in ("0", "1", "2"):
        assert f'<span class="node-title">{title}</span>' in look.dom
    panel = look.dom.split('<article class="panel"', 1)[1].split("</article>", 1)[0]
    assert panel.count("<canvas") >= 6, "heat maps of the input, the output, weight and bias"
    assert look.console == []


def test_what_wandb_itself_syncs_from_tensorboard_goes_on(start, tmp_path):
    run = start(sync_tensorboard=True)
    try:
        with ExplorerWriter(tmp_path / "logs") as writer:
            train(writer, run, log_row=False)
            for step in range(4):
                writer.add_scalar("loss/train", 0.5 * step, step)
        run.finish()
    finally:
        wandb.tensorboard.unpatch()
    found = rows(tmp_path)
    (events,) = (tmp_path / "logs").iterdir()

    assert [row["loss/train"] for row in found if "loss/train" in row] == [0, 0.5, 1, 1.5]
    assert read(tmp_path / "logs")["."].problems == []
    assert read(tmp_path / "logs")["."]["net"].history().steps.tolist() == [0, 1, 2, 3]
    assert events.name.startswith("events.out.tfevents.")


def test_an_error_of_wandb_does_not_reach_the_training(start, tmp_path):
    run = start()
    with ExplorerWriter(tmp_path / "logs", wandb_run=run) as writer:
        train(writer, run, 1)
        run.finish()
        with pytest.warns(RuntimeWarning, match="nothing more is logged to wandb: UsageError: .*finished"):
            train(writer, run, 3, log_row=False)

    assert read(tmp_path / "logs")["."]["net"].history().steps.tolist() == [0, 1, 2, 3]


def test_any_summary_writer_can_be_logged(start, tmp_path):
    run = start()
    with SummaryWriter(tmp_path / "logs") as writer:
        log = log_to_wandb(writer, run)
        train(writer, run, 2)
        writer.flush()
        log.close()
        log.close()
    run.finish()

    assert [row["net/step"] for row in rows(tmp_path) if "loss" in row] == [0, 1]
    assert sum("torchexplorer/report" in row for row in rows(tmp_path)) == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"wandb_run": "mine"}, "wandb_run='mine' is not a run of wandb.init()"),
        ({"wandb_report_every": 0}, "log_to_wandb: report_every=0 is not a whole number from 1 on"),
        ({"wandb_report_every": True}, "log_to_wandb: report_every=True is not"),
        ({"wandb_own_rows": 1}, "log_to_wandb: own_rows=1 is not True or False"),
    ],
)
def test_wrong_arguments_are_named_and_no_file_is_opened(options, problem, start, tmp_path):
    options = {"wandb_run": start(), **options}
    with pytest.raises(ValueError, match=f"^{problem.replace('()', '..')}"):
        ExplorerWriter(tmp_path / "logs", **options)

    assert not (tmp_path / "logs").exists()


def test_without_wandb_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)

    with pytest.raises(ImportError, match="wandb_run needs wandb: pip install wandb"):
        ExplorerWriter(tmp_path, wandb_run=object())


@pytest.mark.filterwarnings("ignore")  # of Lightning
def test_a_callback_logs_its_training(start, tmp_path):
    pytest.importorskip("lightning")
    from tests.lightning_training import ExplorerCallback, fit

    run = start()
    fit(tmp_path / "fit", callback=ExplorerCallback(log_freq=1, wandb_run=run))
    run.finish()
    (row,) = rows(tmp_path)
    ((name, model),) = read(tmp_path / "fit")["."].items()
    history = model.history()
    node = next(index for index, node in enumerate(model.graph.nodes) if node.parent == 0)

    assert row[f"{name}/step"] == history.steps[-1] > 0
    key = f"{name}/{model.graph.nodes[node].id.replace('/', '.')}/gradient"
    assert row[key] == pytest.approx(history.health()[-1, node, 0], rel=1e-6)
    assert row["torchexplorer/report"]["_type"] == "html-file"
