"""Public faults of tools like this one, by the rows' numbers: kinds of layers, and layers used twice."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import Lambda, X, edges, modules, train
from recording import Recorded, assert_row_holds, norms, record
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter


def in_place(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), activation, nn.Linear(5, 3))


@pytest.mark.parametrize("shape", [(6, 4), (3, 2, 4)], ids=["matrix", "view of the product"])
@pytest.mark.parametrize(
    "activation",
    [nn.ReLU(True), nn.LeakyReLU(0.1, True), nn.SiLU(True), nn.Dropout(0.5, True), nn.ELU(1.0, True)],
)
def test_c01_in_place_activation(activation, shape):
    x = X.reshape(shape)

    def losses(watched: bool) -> tuple[list[float], Recorded | None]:
        model, found = in_place(activation), []

        def loss(model: nn.Module) -> Tensor:
            found.append(model(x).square().mean())
            return found[-1]

        torch.manual_seed(1)
        if watched:
            recorded = train(model, loss, steps=3)
        else:
            recorded = None
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                loss(model).backward()
                optimizer.step()
                optimizer.zero_grad()
        return [value.item() for value in found], recorded

    plain, (watched, recorded) = losses(False)[0], losses(True)

    assert watched == plain
    # The output of the first layer as it was before the activation overwrote it.
    before = in_place(activation)[0](x)
    assert_row_holds(recorded.row("0", "output", "value", "output", 0), before)
    for node in ("0", "1", "2"):
        for kind in ("value", "grad"):
            assert recorded.status(node, "output", kind, "output") == Status.OK


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "add_": lambda y: y.add_(1),
    "masked_fill_": lambda y: y.masked_fill_(y > 0, 0.0),
    "slice": lambda y: y[..., 1:].mul_(3),
    "transpose_": lambda y: y.transpose_(0, 1),
}


@pytest.mark.parametrize("shape", [(6, 4), (3, 2, 4)], ids=["matrix", "view of the product"])
@pytest.mark.parametrize("write", WRITES)
def test_c01_results_that_the_loop_writes_to(write, shape):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), X.reshape(shape)
    result = model(x)
    written = result.clone()
    WRITES[write](written)
    (gradient,) = torch.autograd.grad(written.square().mean(), result)

    def loss(model: nn.Module) -> Tensor:
        y = model(x)
        WRITES[write](y)
        return y.square().mean()

    recorded = train(model, loss)

    for node in (".", "2"):
        assert_row_holds(recorded.row(node, "output", "value", "output"), result)
        assert_row_holds(recorded.row(node, "output", "grad", "output"), norms(gradient), rel=1e-5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_c08_fused_encoder(guard, tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 2))
    x = torch.randn(3, 5, 8)
    twin = copy.deepcopy(model).eval()
    results = []

    def run(writer: ExplorerWriter) -> None:
        watch = writer.watch(model, log_freq=1, eval_freq=1, sample_n=None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        model(x).sum().backward()
        optimizer.step()
        model.eval()
        with guard():
            results.append(model(x))
        assert watch.faults.list() == []

    evaluated = record(run, phase="eval")
    with guard():
        assert torch.equal(results[0], twin(x))  # the fused kernel ran, as it does unwatched
    fused = "0/layers.0"
    assert_row_holds(evaluated.row(fused, "output", "value", "output"), layer_output(twin, x, guard))
    assert evaluated.status(f"{fused}/linear1", "output", "value", "output") == Status.NOT_RUN
    assert any("fused" in note for note in evaluated.node(fused).notes)


def layer_output(model: nn.Module, x: Tensor, guard: Callable[[], Any]) -> Tensor:
    with guard():
        return model[0].layers[0](x)


def test_c10_recurrent_state_tuples():
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        out, (h, c) = m.lstm(x)
        again, _ = m.next(out, (h.tanh(), c))
        return m.head(h[0]) + again.sum(0)

    model = Lambda(forward, lstm=nn.LSTM(4, 4), next=nn.LSTM(4, 4), head=nn.Linear(4, 4))

    recorded = train(model, lambda m: m(X.reshape(2, 3, 4)).square().mean())

    assert [port.name for port in recorded.node("lstm").outputs] == ["[0]", "[1][0]", "[1][1]"]
    assert [port.name for port in recorded.node("next").inputs] == ["input", "hx[0]", "hx[1]"]
    assert {"lstm next", "lstm head"} <= edges(recorded)
    for port in ("[0]", "[1][0]", "[1][1]"):
        assert recorded.status("lstm", "output", "grad", port) == Status.OK


RECURRENT: dict[str, tuple[Callable[[], nn.Module], list[str], bool]] = {
    "GRU": (lambda: nn.GRU(4, 3, 2, bidirectional=True), ["[0]", "[1]"], False),
    "RNN": (lambda: nn.RNN(4, 3, batch_first=True), ["[0]", "[1]"], False),
    "projected LSTM": (lambda: nn.LSTM(4, 5, proj_size=2), ["[0]", "[1][0]", "[1][1]"], False),
    "packed LSTM": (lambda: nn.LSTM(4, 3), ["[0].data", "[0].batch_sizes", "[1][0]", "[1][1]"], True),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", RECURRENT)
def test_c10_kinds_of_recurrence(name):
    build, ports, packed = RECURRENT[name]
    x, lengths = X.reshape(2, 3, 4), torch.tensor([2, 2, 1])
    found: list[Tensor] = []

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        result = m.rnn(pack_padded_sequence(x, lengths) if packed else x)
        found[:] = [t for t in tensors(result) if t.is_floating_point()]
        for tensor in found:
            tensor.retain_grad()
        return sum((k + 1) * t.square().sum() for k, t in enumerate(found))

    def tensors(value: Any) -> list[Tensor]:
        if value is None or isinstance(value, Tensor):
            return [] if value is None else [value]
        return [tensor for item in value for tensor in tensors(item)]

    recorded = train(Lambda(forward, rnn=build()), lambda m: m(x))

    node = recorded.node("rnn")
    assert [port.name for port in node.outputs] == ports
    floating = [port for port in ports if port != "[0].batch_sizes"]
    for port, tensor in zip(floating, found, strict=True):
        assert_row_holds(recorded.row("rnn", "output", "value", port), tensor)
        assert_row_holds(recorded.row("rnn", "output", "grad", port), norms(tensor.grad), rel=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5"])
def test_c12_transformers(name):
    from models_transformers import TRANSFORMERS

    model, run = TRANSFORMERS[name]()
    plain, _ = TRANSFORMERS[name]()
    torch.manual_seed(0)
    wanted = run(plain).item()
    got = []

    def loss(model: nn.Module) -> Tensor:
        torch.manual_seed(0)
        got.append(run(model))
        return got[-1]

    recorded = train(model, loss)

    assert got[0].item() == wanted
    level, layers, head = {
        "gpt2": ("transformer", "h", "lm_head"),
        "llama": ("model", "layers", "lm_head"),
        "bert": ("bert/encoder", "layer", "classifier"),
        "t5": ("decoder", "block", "lm_head"),
    }[name]
    assert f"{layers}.0 {layers}.1" in edges(recorded, level)
    assert f"{head} output1" in edges(recorded)
    if name == "gpt2":
        tied = modules(recorded)["lm_head"].parameters[0]
        assert tied.shared == "transformer.wte.weight"
    if name in ("gpt2", "llama"):
        arguments = dict(map(tuple, recorded.node(f"{level}/{layers}.0").arguments))
        assert "DynamicCache" in arguments.values()


def test_c12_tied_weights_are_marked_and_recorded_once():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.embed(tokens))

    model, wanted = Tied(), []
    tokens = torch.tensor([[1, 2, 3]])

    recorded = train(
        model,
        lambda m: m(tokens).square().mean(),
        each=lambda step: wanted.append(model.embed.weight.grad.clone()),
    )

    assert modules(recorded)["embed"].parameters[0].shared == ""
    assert modules(recorded)["head"].parameters[0].shared == "embed.weight"
    for path in ("embed", "head"):  # the gradient is that of both uses
        assert_row_holds(recorded.row(path, "param", "grad", "weight"), wanted[0])


def test_c22_reused_modules():
    relu, a = nn.ReLU(), nn.Linear(4, 4)
    inner = Lambda(lambda m, x: m.relu(m.l(x)), relu=relu, l=nn.Linear(4, 4))
    model = Lambda(lambda m, x: m.relu(m.inner(m.relu(m.a(m.a(x))))), a=a, relu=relu, inner=inner)
    once = a(X)

    recorded = train(model)

    assert recorded.ids() == [".", "a", "a#1", "relu", "inner", "inner/l", "inner/^relu", "relu#1"]
    assert_row_holds(recorded.row("a", "output", "value", "output"), once)
    assert_row_holds(recorded.row("a#1", "input", "value", "input"), once)
    assert sum(k.group == "param" and k.kind == "value" for k in recorded.series) == 4  # each once
    assert edges(recorded) == {
        "input0 a",
        "a a#1",
        "a#1 relu",
        "relu inner",
        "inner relu#1",
        "relu#1 output0",
    }
