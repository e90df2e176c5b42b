"""Classes of the user's own that are unlike those one expects: none of their code is in our way."""

from __future__ import annotations

import logging
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import torch.utils._pytree as pytree
from recording import assert_row_holds, norms, record
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import SGD
from watched import X, train, two_parts

from tensorboard_torchexplorer.capture.leaves import argument_leaves
from tensorboard_torchexplorer.stepping import _FOLLOWERS
from tensorboard_torchexplorer.writer import ExplorerWriter


class _NamesItself(torch.autograd.Function):
    """Keeps something under `name`, which hides the method that tells the name of the graph's node."""

    @staticmethod
    def forward(ctx, x, name):
        ctx.name = name
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


class _UsesIt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 4), nn.Linear(4, 2)

    def forward(self, x):
        return _NamesItself.apply(self.last(_NamesItself.apply(self.first(x), "one")), "two")


def test_a_function_that_keeps_a_name_on_its_context():
    torch.manual_seed(0)
    model = _UsesIt()
    gradients: list[Tensor] = []

    def run(writer) -> None:
        watch = writer.watch(model, log_freq=1, sample_n=None)
        optimizer = SGD(model.parameters(), lr=0.1)
        model.first.register_forward_hook(lambda *seen: seen[-1].register_hook(gradients.append) and None)
        model(X).square().mean().backward()
        optimizer.step()
        assert watch.faults.list() == []

    recorded = record(run)
    assert_row_holds(recorded.row("first", "output", "grad", "output"), norms(gradients[0]), rel=1e-5)
    nodes = {node.id: index for index, node in enumerate(recorded.graph.nodes)}
    assert any(
        (edge.source.index, edge.target.index) == (nodes["first"], nodes["last"])
        for edge in recorded.graph.edges
        if edge.source.kind == edge.target.kind == "node"
    )


@dataclass
class _DataclassSGD(SGD):
    """Has no hash, since dataclasses define what is equal, and all of these are."""

    weights: list
    rate: float

    def __post_init__(self) -> None:
        SGD.__init__(self, self.weights, lr=self.rate)

    def __eq__(self, other):
        return isinstance(other, _DataclassSGD)

    __hash__ = None


def test_optimizers_without_a_hash_that_are_all_equal(tmp_path):
    def run(folder):
        model = two_parts()
        parts = [_DataclassSGD(list(part.parameters()), 0.1) for part in (model.encoder, model.decoder)]
        watch = None
        if folder:
            writer = ExplorerWriter(folder)
            watch = writer.watch(model, log_freq=1)
        for _ in range(4):
            model(X).square().mean().backward()
            for optimizer in parts:
                optimizer.step()
                optimizer.zero_grad()
        if watch is not None:
            writer.close()
            assert watch.faults.list() == []
            assert (watch.step, watch.recorded) == (4, 4)
        return [p.detach().clone() for p in model.parameters()]

    for one, two in zip(run(None), run(tmp_path), strict=True):
        assert torch.equal(one, two)


def test_a_module_that_lacks_dictionaries_of_hooks(tmp_path):
    """torch itself needs those three only for modules with hooks; unpickling may have left them out."""
    model = two_parts()
    for name in (
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks_with_kwargs",
    ):
        del model.encoder[0].__dict__[name]
    before = {path: set(vars(module)) for path, module in model.named_modules()}
    with ExplorerWriter(tmp_path) as writer:
        watch = writer.watch(model, log_freq=1)
        train(model, 2)
        assert watch.recorded == 2
        assert watch.faults.list() == []
        assert not any(module._forward_hooks for module in model.modules())
    assert {path: set(vars(module)) for path, module in model.named_modules()} == before


def test_a_fault_before_the_forward_stays_out_of_it(tmp_path, monkeypatch):
    model = two_parts()
    monkeypatch.setattr("tensorboard_torchexplorer.capture.calls.fusable", lambda modules: 1 / 0)
    with ExplorerWriter(tmp_path) as writer:
        watch = writer.watch(model, log_freq=1)
        train(model, 2)
        assert [fault.place for fault in watch.faults.list()] == ["the calls of modules"]


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class _Raising(logging.Handler):
    def emit(self, record) -> None:
        raise RuntimeError("no warnings in this house")


def test_errors_without_a_text_and_log_handlers_that_raise(tmp_path):
    def clock(model, step):
        raise _Unprintable

    logger, handler = logging.getLogger("tensorboard_torchexplorer"), _Raising()
    logger.addHandler(handler)
    try:
        with ExplorerWriter(tmp_path) as writer:
            model = two_parts()
            watch = writer.watch(model, log_freq=1, time_log=("epoch", clock))
            train(model, 2)
            assert [(f.place, f.error) for f in watch.faults.list()] == [("time_log", "_Unprintable")]
            assert watch.recorded == 2
    finally:
        logger.removeHandler(handler)


class _MadeByAnother(nn.Module):
    """A weight that another network makes stands among the parameters. It is no leaf."""

    def __init__(self) -> None:
        super().__init__()
        self.maker, self.made = nn.Linear(3, 16), nn.Linear(8, 2)

    def forward(self, x):
        self.made._parameters["weight"] = self.maker(torch.ones(3)).view(2, 8)
        return self.made(x)


def test_parameters_that_are_no_leaves_cause_no_warning(tmp_path):
    model = _MadeByAnother()
    optimizer = SGD(model.maker.parameters(), lr=0.1)
    with ExplorerWriter(tmp_path) as writer, warnings.catch_warnings():
        warnings.simplefilter("error")
        watch = writer.watch(model, log_freq=1)
        train(model, 3, optimizer)
        assert watch.recorded == 3
        assert watch.faults.list() == []


# --- arguments ----------------------------------------------------------------------------------------


class _Lazy(Mapping):
    def __getitem__(self, key):
        if key == "missing":
            raise RuntimeError("no value for this key")
        return X

    def __iter__(self):
        return iter(["x", "missing"])

    def __len__(self) -> int:
        return 2


class _OwnList(list):
    def __iter__(self):
        raise AssertionError("read by its own method")

    def __len__(self) -> int:
        raise AssertionError("read by its own method")


class _OwnDict(dict):
    def __getitem__(self, key):
        raise AssertionError("read by its own method")

    def keys(self):
        raise AssertionError("read by its own method")


@dataclass
class _Lazily:
    x: Tensor
    y: Tensor

    @property
    def y(self):
        raise AssertionError("a property was asked")

    @y.setter
    def y(self, value) -> None:
        self.__dict__["stored"] = value


@dataclass(slots=True)
class _Slots:
    x: Tensor
    y: Tensor


class _Takes(nn.Module):
    def forward(self, first, values, last):
        return first


@pytest.mark.parametrize(
    ("values", "names", "others"),
    [
        (_Lazy(), [], ["_Lazy"]),
        (_OwnList([X, 1, X]), ["values[0]", "values[2]"], []),
        (_OwnList([1, 2]), [], ["[1, 2]"]),
        (_OwnDict(a=X, b=[X]), ["values.a", "values.b[0]"], []),
        (OrderedDict(a=X, b=X), ["values.b", "values.a"], []),
        (_Lazily(X, X), ["values.x"], []),
        (_Slots(X, X), ["values.x", "values.y"], []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_containers_are_read_without_their_own_code_and_cost_nobody_else_his_tensors(values, names, others):
    if isinstance(values, OrderedDict):
        values.move_to_end("a")
    leaves = argument_leaves(_Takes(), (X, values), {"last": X})
    assert [leaf.name for leaf in leaves.tensors] == ["first", *names, "last"]
    assert [text for _, text in leaves.others] == others


class _Wrapper(Tensor):
    """Counts what it is asked."""

    asked: ClassVar[list[str]] = []

    @staticmethod
    def __new__(cls, inner):
        return Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    def __init__(self, inner) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        cls.asked.append(str(operator))
        args, kwargs = pytree.tree_map_only(_Wrapper, lambda t: t.inner, (args, kwargs or {}))
        return pytree.tree_map_only(Tensor, _Wrapper, operator(*args, **kwargs))


def test_tensors_with_operators_of_their_own_are_asked_nothing(tmp_path):
    def run(watched):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
        writer = ExplorerWriter(tmp_path)
        if watched:
            watch = writer.watch(model, log_freq=1)
        x = _Wrapper(X).requires_grad_()
        _Wrapper.asked.clear()
        for _ in range(2):
            model(x).sum().backward()
        if watched:
            assert watch.recorded == 2
            assert watch.faults.list() == []
        writer.close()
        return list(_Wrapper.asked)

    plain = run(False)
    assert plain
    assert run(True) == plain


# --- others who patch, and other threads --------------------------------------------------------------


def test_a_scaler_that_somebody_else_has_wrapped_since_stays_wrapped(tmp_path):
    original = GradScaler.step
    with ExplorerWriter(tmp_path) as writer:
        writer.watch(two_parts())
        ours = GradScaler.step

        def theirs(self, *args, **kwargs):
            return ours(self, *args, **kwargs)

        GradScaler.step = theirs
    try:
        assert GradScaler.step is theirs
    finally:
        GradScaler.step = original


def test_models_that_are_watched_while_others_step(tmp_path):
    """Whoever steps goes through all watches, while other threads begin and end theirs."""
    models = [nn.Linear(2, 2) for _ in range(60)]
    model = two_parts()
    optimizer = SGD(model.parameters(), lr=0.1)
    failed: list[Exception] = []
    over = threading.Event()

    def step() -> None:
        try:
            while not over.is_set():
                optimizer.step()
        except Exception as error:
            failed.append(error)

    with ExplorerWriter(tmp_path) as writer:
        for one in models[:30]:
            writer.watch(one)
        model(X).mean().backward()
        thread = threading.Thread(target=step)
        thread.start()
        for _ in range(8):
            for one in models[30:]:
                writer.watch(one)
            for one in models[30:]:
                writer.unwatch(one)
        over.set()
        thread.join()
        assert len(_FOLLOWERS) >= 30
    assert failed == []
