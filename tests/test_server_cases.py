"""The rows of the public faults about values, names and sizes: from real trainings to the answers of a real
`tensorboard`, under its data server and under its Python loader."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import Lambda, X, squared
from tensorboard.compat.proto.summary_pb2 import Summary
from test_cases_values import Huge, Words
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import ExplorerWriter, events
from tensorboard_torchexplorer.schema import Status
from tests.plugin_client import parse_series
from tests.record_graphs import wide
from tests.records import Run
from tests.tensorboard_server import PLUGIN, Server, tensorboard_server

CONSTANTS = {"one": 5.0, "zero": 0.0, "large": 1e6, "tiny": 1e-30, "huge": 1e300, "subnormal": 5e-310}
ODD = ("a/b", "a b", "層", "x<y>", "#1", "%2F", "a?b&c=d", "^", "…", "new\nline", "'\"`", "__proto__")
MODULES = 3000


def no_time() -> float:
    raise ZeroDivisionError("no batches yet")


TIMES = [0.0, 0.0, 0.5, 0.25, 1, torch.tensor(1.5), no_time, math.nan, math.inf, 2.0]
"""What a `time_log` of the user returns at each step."""


def train(
    where: Path,
    model: nn.Module,
    loss: Callable[[nn.Module, int], Tensor],
    steps: int,
    rate: float = 0.0,
    **options: Any,
) -> None:
    with ExplorerWriter(where) as writer:
        watch = writer.watch(model, "model", **{"log_freq": 1, "sample_n": None, **options})
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        for step in range(steps):
            optimizer.zero_grad()
            loss(model, step).backward()
            optimizer.step()
        assert watch.faults.list() == []


def nan_weight(where: Path) -> None:
    """One weight of the second layer is NaN from step 3 on."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3), nn.Identity())
    clean = copy.deepcopy(model.state_dict())

    def loss(model: nn.Module, step: int) -> Tensor:
        model.load_state_dict(clean)  # else the optimizer spreads it
        if step >= 3:
            with torch.no_grad():
                model[1].weight[0, 1] = math.nan
        return squared(model)

    train(where, model, loss, 5)


def infinite_activations(where: Path) -> None:
    """+Inf at step 1, -Inf at step 2, nothing but NaN at step 3."""
    model = Lambda(lambda m, x: m.look(m.l(x)).clamp(-1e3, 1e3), l=nn.Linear(4, 4), look=nn.Identity())

    def loss(model: nn.Module, step: int) -> Tensor:
        with torch.no_grad():
            model.l.bias.zero_()
            model.l.bias[1] = (0.0, math.inf, -math.inf, 0.0, 0.0)[step]
            if step == 3:
                model.l.bias.fill_(math.nan)
        return squared(model)

    train(where, model, loss, 5)


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name, value in CONSTANTS.items():
            shape = (1,) if name == "one" else (3, 4)
            self.register_parameter(name, nn.Parameter(torch.full(shape, value, dtype=torch.float64)))

    def forward(self, x: Tensor) -> Tensor:
        return x * sum(parameter.sum() for parameter in self.parameters())


def empty_batches(where: Path) -> None:
    """Boxes are found in step 1 only; the second output has no dimensions."""
    boxes = Lambda(lambda m, x: (m.l(x[x[:, 0] > 100]), x.mean()), l=nn.Linear(4, 4))
    model = Lambda(lambda m, x: m.boxes(x)[1] * m.weight, boxes=boxes)
    model.weight = nn.Parameter(torch.ones(()))
    data = (X, X + 1000, X[:0], X)
    train(where, model, lambda m, step: m(data[step].clone().requires_grad_()), 4)


def half_precision(where: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3)).to(dtype)
    train(where, model, lambda m, step: (m(X.to(dtype)) * 2e-7).sum(), 2)


class OddNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in ODD:
            self.add_module(name, type(f"Layer {name}", (nn.Linear,), {})(4, 4))
        self.a = nn.Sequential()
        self.a.add_module("b", nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        for module in self.children():
            x = module(x)
        return x


def own_time(where: Path) -> None:
    def time_of(model: nn.Module, step: int) -> Any:
        found = TIMES[step]
        return found() if callable(found) and not isinstance(found, Tensor) else found

    model = nn.Linear(4, 3)
    with ExplorerWriter(where) as writer:
        writer.watch(model, "model", log_freq=1, time_log=("epoch", time_of))
        for _ in TIMES:
            squared(model).backward()


def many_modules(where: Path) -> None:
    """Twenty steps of `MODULES` modules; two different ones are repeated."""
    run = Run(wide(MODULES))
    records = [run.record(step) for step in range(2)]
    with SummaryWriter(where) as writer:
        for step in range(20):
            record = replace(records[step % 2], info=replace(records[0].info, step=step))
            values = events.graph_values(run.graph) if step == 0 else []
            values += events.step_values(record)
            writer._get_file_writer().add_summary(Summary(value=values), step)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("cases")
    nan_weight(path / "nan")
    infinite_activations(path / "infinite")
    train(path / "constant", Constants(), lambda m, step: m(torch.ones((), dtype=torch.float64)), 2)
    empty_batches(path / "empty")
    for dtype in (torch.bfloat16, torch.float16):
        half_precision(path / str(dtype), dtype)
    words = Words(50)
    train(path / "sparse", words, lambda m, step: m(torch.tensor([[1, 2, 2, 7]])).square().sum(), 2)
    train(path / "huge", Huge(), lambda m, step: m(torch.ones(())), 3, sample_n=100)
    for name in ODD:
        train(
            path / "odd" / name.replace("/", ""),
            OddNames(),
            lambda m, step: squared(m),
            2,
            log=("io", "params"),
        )
    train(path / "long", nn.Linear(4, 3), lambda m, step: squared(m), 400, max_records=16, sample_n=5)
    many_modules(path / "many")
    own_time(path / "time")
    return path


@pytest.fixture(scope="module", params=["true", "false"], ids=["data server", "Python loader"])
def server(request, logdir):
    with tensorboard_server(logdir, request.param) as found:
        found.wait_for_steps("many", "model", 19)
        found.wait_for(lambda: len(found.plugin("runs")["runs"]) == len(RUNS))
        for entry in found.plugin("runs")["runs"]:
            found.wait_for_steps(entry["name"], "model", last_step(entry["name"]))
        yield found
        assert "Traceback" not in found.output()


RUNS = [
    *("constant", "empty", "huge", "infinite", "long", "many", "nan", "sparse", "time"),
    *("torch.bfloat16", "torch.float16"),
    *(f"odd/{name.replace('/', '')}" for name in ODD),
]


def last_step(run: str) -> int:
    steps = {"nan": 5, "infinite": 5, "empty": 4, "huge": 3, "many": 20, "time": len(TIMES)}
    return 384 if run == "long" else steps.get(run, 2) - 1


def rows(server: Server, run: str, node: str, group: str, kind: str, name: str) -> dict[str, np.ndarray]:
    """The history of one tensor: each field [steps], `counts` [steps, bins]."""
    answer = server.get(PLUGIN + "series", run=run, model="model", node=node)
    assert answer.status == 200, answer.body
    head, blocks = parse_series(answer.body)
    (index,) = (
        index
        for index, entry in enumerate(head["series"])
        if (entry["group"], entry["kind"], entry["name"], entry["phase"]) == (group, kind, name, "train")
    )
    return {field: block[index] for field, block in blocks.items()}


def test_every_run_is_there(server):
    found = server.plugin("runs")["runs"]

    assert [entry["name"] for entry in found] == sorted(RUNS)
    assert {model["problem"] for entry in found for model in entry["models"]} == {""}


def test_c48_a_nan_weight_is_counted_from_its_step_on(server):
    weight = rows(server, "nan", "1", "param", "value", "weight")
    output = rows(server, "nan", "1", "output", "value", "output")
    before = rows(server, "nan", "0", "output", "value", "output")

    assert weight["nan"].tolist() == [0, 0, 0, 1, 1]
    assert output["nan"].tolist() == [0, 0, 0, 6, 6]  # one column of the batch
    assert before["nan"].tolist() == [0] * 5
    assert weight["counts"].sum(1).tolist() == [11, 11, 11, 10, 10]  # of the finite ones, less a tenth
    for row in (weight, output, before):
        assert np.isfinite([row[field] for field in ("min", "max", "low", "high", "mean", "std")]).all()
    gradient = rows(server, "nan", "0", "param", "grad", "weight")
    assert gradient["nan"].tolist() == [0, 0, 0, 16, 16]
    assert gradient["counts"][3].sum() == 0
    assert np.isnan(gradient["min"][3])
    assert np.isnan(gradient["max"][3])


def test_c48_the_statistic_of_a_module_tells_where_it_began(server):
    level = server.plugin("graph", run="nan", model="model")
    index = {node["id"]: node["index"] for node in level["nodes"]}
    for step, bad in ((2, []), (3, ["0", "1", "2"])):
        health = server.plugin("health", run="nan", model="model", stat="nonfinite", step=step)
        assert [node for node, at in index.items() if health["own"][at]] == bad
    # All three have NaN once it came back as gradients; forward it began in the second.
    assert not rows(server, "nan", "0", "output", "value", "output")["nan"].any()


def test_c50_infinite_values_are_counted_apart(server):
    found = rows(server, "infinite", "look", "output", "value", "output")

    assert found["posinf"].tolist() == [0, 6, 0, 0, 0]
    assert found["neginf"].tolist() == [0, 0, 6, 0, 0]
    assert found["nan"].tolist() == [0, 0, 0, 24, 0]
    assert found["status"].tolist() == [Status.OK] * 5
    assert found["counts"].sum(1).tolist() == [22, 17, 17, 0, 22]
    finite = [0, 1, 2, 4]
    assert np.isfinite([found[field][finite] for field in ("min", "max", "low", "high", "mean")]).all()


@pytest.mark.parametrize("name", CONSTANTS)
def test_c51_a_constant_is_one_bar_at_its_value(server, name):
    found = rows(server, "constant", ".", "param", "value", name)

    value, size = CONSTANTS[name], 1 if name == "one" else 12
    for field in ("min", "max", "mean"):
        assert found[field].tolist() == [value, value]
    assert found["std"].tolist() == [0, 0]
    assert (found["low"] <= value).all()
    assert (found["high"] >= value).all()
    assert found["counts"].sum(1).tolist() == [size - size // 10] * 2
    assert np.count_nonzero(found["counts"], axis=1).tolist() == [1, 1]
    assert found["zeros"].tolist() == [float(value == 0)] * 2


def test_c52_empty_batches_are_blank_and_later_steps_are_whole(server):
    boxes = rows(server, "empty", "boxes", "output", "value", "[0]")
    mean = rows(server, "empty", "boxes", "output", "value", "[1]")

    assert boxes["status"].tolist() == [Status.EMPTY, Status.OK, Status.EMPTY, Status.EMPTY]
    assert boxes["size"].tolist() == [0, 24, 0, 0]
    assert mean["size"].tolist() == [1] * 4
    assert mean["nan"].tolist() == [0, 0, 1, 0]  # the mean of nothing
    assert mean["mean"][[0, 3]] == pytest.approx(X.mean().item())
    level = server.plugin("graph", run="empty", model="model")
    assert [port["shape"] for port in level["nodes"][0]["outputs"]] == [[None, 4], []]


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float16"])
def test_c53_half_precision_is_counted_exactly(server, dtype):
    gradient = rows(server, dtype, "0", "param", "grad", "weight")
    output = rows(server, dtype, "0", "output", "value", "output")

    assert gradient["status"].tolist() == output["status"].tolist() == [Status.OK] * 2
    assert output["size"].tolist() == [6 * 64] * 2
    assert (gradient["zeros"] > 0.3).tolist() == [dtype == "torch.float16"] * 2  # underflow can be seen
    assert (np.abs(gradient["max"]) > 0).all()
    (node, *_) = server.plugin("graph", run=dtype, model="model")["nodes"]
    assert node["outputs"][0]["dtype"] == dtype.removeprefix("torch.")


def test_c55_a_sparse_gradient_has_its_zeros(server):
    found = rows(server, "sparse", "embed", "param", "grad", "weight")

    assert found["status"].tolist() == [Status.OK] * 2
    assert found["size"].tolist() == [50 * 64] * 2
    assert found["zeros"] == pytest.approx([47 / 50] * 2, abs=5e-3)
    assert (found["counts"].max(1) >= 0.8 * 47 * 64).all()


def test_c56_a_huge_tensor_is_a_row_as_any_other(server, logdir):
    found = rows(server, "huge", ".", "param", "value", "p")

    assert found["size"].tolist() == [20_000_000] * 3
    assert found["sampled"].tolist() == [100] * 3
    assert found["min"].tolist() == [-1] * 3
    assert found["max"].tolist() == [1] * 3
    assert sum(file.stat().st_size for file in (logdir / "huge").iterdir()) < 10_000


def test_c70_of_thousands_of_modules_only_the_level_in_view_is_sent(server):
    level = server.get(PLUGIN + "graph", run="many", model="model")
    inner = server.get(PLUGIN + "graph", run="many", model="model", node="group7")
    series = server.get(PLUGIN + "series", run="many", model="model", node="group7/layer3")

    assert len(level.json["nodes"]) == MODULES / 20
    assert [node["name"] for node in inner.json["nodes"]] == [f"layer{index}" for index in range(20)]
    assert max(len(level.body), len(inner.body), len(series.body)) < 100_000
    head, blocks = parse_series(series.body)
    assert head["steps"] == list(range(20))
    assert (blocks["status"] == Status.OK).all()
    assert blocks["counts"].shape == (8, 20, 30)


def test_c71_a_run_on_a_budget_is_thin_to_its_end(server):
    steps = server.plugin("steps", run="long", model="model")["train"]

    assert steps[:16] == list(range(16))
    assert steps[16:] == [
        *range(16, 32, 2),
        *range(32, 64, 4),
        *range(64, 128, 8),
        *range(128, 256, 16),
        *range(256, 400, 32),
    ]
    found = rows(server, "long", ".", "output", "value", "output")
    assert found["status"].tolist() == [Status.OK] * len(steps)


def test_c73_a_time_axis_of_the_user_may_repeat_and_go_back(server):
    """TensorBoard's own step never does, so no loader drops what came before."""
    found = server.plugin("steps", run="time", model="model")

    assert found["train"] == list(range(len(TIMES)))
    assert found["unit"] == "epoch"
    assert found["time"] == [0.0, 0.0, 0.5, 0.25, 1.0, 1.5, None, None, None, 2.0]
    (fault,) = found["faults"]
    assert (fault["place"], fault["error"]) == ("time_log", "ZeroDivisionError: no batches yet")
    answer = server.get(PLUGIN + "series", run="time", model="model", node=".")
    head, blocks = parse_series(answer.body)
    assert (head["time"], head["unit"]) == (found["time"], "epoch")
    assert (blocks["status"][:, 1:] != Status.NOT_RUN).all()


@pytest.mark.parametrize("run", [f"odd/{name.replace('/', '')}" for name in ODD])
def test_c75_every_odd_name_leads_to_its_own_module(server, run):
    level = server.plugin("graph", run=run, model="model")
    nodes = {node["path"]: node for node in level["nodes"]}

    assert set(nodes) == {*ODD, "a"}
    assert len({node["id"] for node in level["nodes"]}) == len(ODD) + 1
    for name in ODD:
        node = nodes[name]
        assert (node["name"], node["class_name"]) == (name, f"Layer {name}")
        inner = server.plugin("graph", run=run, model="model", node=node["id"])
        assert inner["node"]["path"] == name
        assert rows(server, run, node["id"], "param", "value", "weight")["size"].tolist() == [16, 16]
        found = server.plugin("search", run=run, model="model", q=name)
        assert node["id"] in {match["id"] for match in found["matches"]}
    assert server.plugin("graph", run=run, model="model", node="a/b")["node"]["path"] == "a.b"
