"""torch.func, tracing, export and scripting around or inside of a watched model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

from tensorboard_torchexplorer import ExplorerWriter, verify
from tensorboard_torchexplorer.schema import Status
from tests.recording import assert_row_holds, read_back

# torch.jit warns wherever it is used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


def train(net, steps=1, call=None):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        (call or net)(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_functional_call_with_other_tensors_is_recorded_with_them(tmp_path):
    net = model()
    other = {name: (value * 2).requires_grad_() for name, value in net.state_dict().items()}
    optimizer = torch.optim.SGD(list(other.values()) + list(net.parameters()), lr=0.1)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(net, log_freq=1, sample_n=None)
        output = functional_call(net, other, (X,))
        output.square().mean().backward()
        optimizer.step()
    seen = read_back(str(tmp_path))

    assert_row_holds(seen.row(".", "output", "value", "output"), output)
    assert seen.status("0", "output", "grad", "output") == Status.OK
    assert seen.status("0", "param", "grad", "weight") == Status.NO_GRADIENT


def per_sample(net, step):
    parameters = dict(net.named_parameters())

    def loss(values, x):
        return functional_call(net, values, (x[None],)).square().mean()

    gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, X)
    return net(X).square().mean() + sum(value.detach().sum() for value in gradients.values())


def ensemble(net, step):
    nets = [net, copy.deepcopy(net)]
    parameters, buffers = stack_module_state(nets)
    return vmap(lambda p, b: functional_call(net, (p, b), (X,)))(parameters, buffers).square().mean()


def jacobian(net, step):
    return net(X).square().mean() + jacrev(net)(X[0]).square().mean()


def many_gradients(net, step):
    rows = torch.autograd.functional.jacobian(net, X[:2], vectorize=True, create_graph=True)
    return net(X).square().mean() + rows.square().mean()


def tangents(net, step):
    with forward_ad.dual_level():
        primal, tangent = forward_ad.unpack_dual(net(forward_ad.make_dual(X, torch.ones_like(X))))
        return primal.square().mean() + tangent.square().mean()


TRANSFORMS = {
    "per-sample gradients": per_sample,
    "ensemble": ensemble,
    "jacobian": jacobian,
    "many gradients at once": many_gradients,
    "tangents": tangents,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_around_the_model_change_nothing(name):
    report = verify(model(), TRANSFORMS[name])

    assert report.identical
    assert (report.recorded, report.faults) == (3, [])


def test_of_a_step_with_a_transform_the_forward_with_a_backward_is_recorded(tmp_path):
    net = model()
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1)
        for _ in range(2):
            train(net, 1, lambda x: x.sum() * 0 + per_sample(net, 0))
    seen = read_back(str(tmp_path))

    assert watch.faults.list() == []
    assert seen.steps == [0, 1]
    assert seen.row("0", "input", "value", "input")["size"] == X.numel()
    assert seen.status("0", "output", "grad", "output") == Status.OK


class Inside(nn.Module):
    """Transforms within the forward of the root, over submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = vmap(self.inner)(x)
        with torch.enable_grad():
            slope = grad(lambda row: self.head(row).sum())(x[0])
        return self.head(hidden + slope.detach())


def test_transforms_inside_of_the_model_change_nothing(tmp_path):
    assert verify(Inside(), lambda net, step: net(X).square().mean()).identical
    net = Inside()
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1)
        train(net)
    seen = read_back(str(tmp_path))

    assert watch.faults.list() == []
    assert seen.status(".", "output", "grad", "output") == Status.OK
    assert {"inner", "head"} <= set(seen.ids())


def test_values_and_gradients_of_a_forward_with_tangents(tmp_path):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1, sample_n=None)
        with forward_ad.dual_level():
            primal, tangent = forward_ad.unpack_dual(net(forward_ad.make_dual(X, torch.ones_like(X))))
            primal.retain_grad()
            (primal.square().mean() + tangent.square().mean()).backward()
        optimizer.step()
    seen = read_back(str(tmp_path))

    assert watch.faults.list() == []
    torch.testing.assert_close(tangent, torch.func.jvp(model(), (X,), (torch.ones_like(X),))[1])
    assert_row_holds(seen.row(".", "output", "value", "output"), primal)
    assert_row_holds(seen.row(".", "output", "grad", "output"), primal.grad.norm(dim=1), rel=1e-5)
    assert_row_holds(seen.row("0", "param", "grad", "weight"), net[0].weight.grad, rel=1e-5)


@pytest.mark.parametrize("also", [False, True], ids=["alone", "before an ordinary backward"])
def test_many_gradients_at_once_have_no_histogram(also, tmp_path):
    """A backward of many gradients at once (`is_grads_batched`, a vectorized jacobian) brings no gradient of
    a loss. What it brings is not looked at, and an ordinary backward is shown all the same."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1, optimizer=optimizer)
        result = net(X)
        many = torch.eye(result.numel()).reshape(-1, *result.shape)
        (rows,) = torch.autograd.grad(result, net[0].weight, many, retain_graph=True, is_grads_batched=True)
        if also:
            result.square().mean().backward()
        optimizer.step()
    seen = read_back(str(tmp_path))

    assert rows.shape == (18, 8, 8)
    assert watch.faults.list() == []
    assert seen.status("0", "output", "grad", "output") == (Status.OK if also else Status.NOT_OBSERVED)


def scripted() -> nn.Module:
    return nn.Sequential(torch.jit.script(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3))


def traced() -> nn.Module:
    return nn.Sequential(torch.jit.trace(nn.Linear(8, 8), X), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("build", [scripted, traced])
def test_c59_scripted_submodules_are_opaque_nodes(build, tmp_path):
    net = build()
    wanted = net[0](X)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(net, log_freq=1, sample_n=None)
        train(net, 2)
    seen = read_back(str(tmp_path))
    module = next(m for m in seen.graph.modules if m.path == "0")

    assert (module.class_name, module.flags) == ("Linear", ["scripted"])
    assert_row_holds(seen.row("0", "output", "value", "output", 0), wanted)
    assert seen.status("0", "output", "grad", "output") == Status.OK
    assert seen.status("0", "param", "grad", "weight") == Status.OK
    assert sum(edge.level == 0 for edge in seen.graph.edges) == 4


def test_a_scripted_root(tmp_path):
    net = torch.jit.script(model())
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(net, log_freq=1)
        train(net, 2)
    seen = read_back(str(tmp_path))

    assert seen.steps == [0, 1]
    assert seen.status("0", "param", "grad", "weight") == Status.OK


WAYS_OUT = {
    "jit.trace": lambda net: torch.jit.trace(net, X),
    "fx": lambda net: torch.fx.symbolic_trace(net),
    "export": lambda net: torch.export.export(net, (X,)).module(),
    "strict export": lambda net: torch.export.export(net, (X,), strict=True).module(),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_tracing_a_watched_model_gives_what_it_gives_unwatched(way, mode, tmp_path):
    net = model().train(mode == "train")
    wanted = WAYS_OUT[way](model().train(mode == "train"))(X)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(net, log_freq=1, eval_freq=1)
        result = WAYS_OUT[way](net)
        assert torch.equal(result(X), wanted)
        if hasattr(result, "code"):
            assert "torchexplorer" not in str(result.code)
        net.train()
        train(net, 2)
    seen = read_back(str(tmp_path))

    assert seen.steps[-1] in (1, 2)
    assert seen.status("0", "output", "grad", "output") == Status.OK


def test_fake_tensors_and_meta_models(tmp_path):
    from torch._subclasses import FakeTensorMode

    net = model()
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1)
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert net(torch.empty(2, 8)).shape == (2, 3)
        train(net)
    assert [fault.error for fault in watch.faults.list()] == ["NotObserved: it runs on fake tensors"]
    assert read_back(str(tmp_path)).status("0", "output", "grad", "output") == Status.OK


def test_a_cuda_graph_being_captured_is_left_alone(monkeypatch, tmp_path):
    """Without CUDA: what torch would say is put in its place."""
    net = model()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1)
        train(net)
    seen = read_back(str(tmp_path))

    assert "CUDA graph" in watch.faults.list()[0].error
    assert seen.status("0", "param", "grad", "weight") == Status.OK
    assert not [key for key in seen.series if key.group == "output"]
