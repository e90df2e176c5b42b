"""`attach`: intermediate tensors under a name, in the graph and in the records."""

from __future__ import annotations

import copy
import threading
import timeit

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tensorboard_torchexplorer import ExplorerWriter, attach, verify
from tensorboard_torchexplorer.capture.attachments import _active
from tensorboard_torchexplorer.schema import End, Status
from tests.recording import assert_row_holds, norms, read_back, record

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


class Block(nn.Module):
    """`hidden` is used twice, and written to after it was attached."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 4), nn.Linear(4, 4)
        self.seen: dict[str, torch.Tensor] = {}

    def forward(self, x):
        hidden = attach(self.first(x) * 2, "hidden")
        self.keep("hidden", hidden)
        square = attach(hidden.square(), "square")
        return self.second(square) + hidden

    def keep(self, name, tensor):
        if name in self.seen:
            tensor.retain_grad()
            self.seen[name] = tensor


class Net(nn.Module):
    def __init__(self, block=None) -> None:
        super().__init__()
        self.block = block or Block()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.block(x))


def train(model, steps=1, x=X):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def watched(model, steps=1, x=X, **options):
    options = {"log_freq": 1, "sample_n": None, **options}
    return record(lambda writer: (writer.watch(model, **options), train(model, steps, x)))


def test_values_and_total_gradients_of_an_attached_tensor():
    torch.manual_seed(0)
    model = Net()
    twin = copy.deepcopy(model)
    twin.block.seen = {"hidden": None}
    twin(X).square().mean().backward()
    hidden = twin.block.seen["hidden"]
    seen = watched(model)

    assert_row_holds(seen.row("block", "output", "value", "hidden"), hidden)
    assert_row_holds(seen.row("block", "output", "grad", "hidden"), norms(hidden.grad))
    assert_row_holds(seen.row("block", "output", "value", "square"), hidden.square())
    assert [port.name for port in seen.node("block").outputs] == ["output", "hidden", "square"]
    assert seen.node("block").notes == ["attached: hidden", "attached: square"]


def test_attached_tensors_are_outputs_of_their_level():
    seen = watched(Net())
    level = seen.ids().index("block")
    first, second = seen.ids().index("block/first"), seen.ids().index("block/second")
    edges = {(e.source, e.target, e.kind) for e in seen.graph.edges if e.level == level}

    assert edges == {
        (End("input", 0), End("node", first), "gradient"),
        (End("node", first), End("output", 1), "gradient"),
        (End("node", first), End("output", 2), "gradient"),
        (End("node", first), End("node", second), "gradient"),
        (End("node", first), End("output", 0), "gradient"),
        (End("node", second), End("output", 0), "gradient"),
    }


class Changed(nn.Module):
    """Attached before an in-place operation: the values and the gradient are those of that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        hidden = attach(self.linear(x), "before")
        hidden.mul_(3)
        attach(hidden, "after")
        return hidden.relu_()


@pytest.mark.parametrize("shape", [(6, 8), (2, 3, 8)])  # of three dimensions, a linear's result is a view
def test_before_and_after_an_inplace_operation(shape):
    torch.manual_seed(0)
    model, x = Changed(), X.reshape(shape)
    before = model.linear(x).detach().requires_grad_()
    after = before * 3
    after.retain_grad()
    after.relu().square().mean().backward()
    seen = watched(model, x=x)

    for name, tensor in (("before", before), ("after", after)):
        assert_row_holds(seen.row(".", "output", "value", name), tensor)
        assert_row_holds(seen.row(".", "output", "grad", name), norms(tensor.grad))


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(8, 8)

    def forward(self, x):
        for _ in range(3):
            x = attach(self.cell(x), "state")
        return {"state": attach(x * 1, "output"), "loss": x.sum()}


def test_one_name_several_times_is_numbered():
    model = Loop()
    seen = record(
        lambda writer: (
            writer.watch(model, log_freq=1),
            model(X)["loss"].backward(),
            torch.optim.SGD(model.parameters(), lr=0.1).step(),
        )
    )

    assert [port.name for port in seen.node(".").outputs] == [
        "state",
        "loss",
        "state (2)",
        "state (3)",
        "state (4)",
        "output",
    ]
    assert seen.status(".", "output", "grad", "state (2)") == Status.OK
    assert seen.status(".", "output", "grad", "output") == Status.NO_GRADIENT


class Kinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        ids = attach(x.argmax(1), "ids")
        attach(x, "the input")
        attach(self.linear.weight, "the weight")
        attach(torch.empty(0, 3), "empty")
        attach(x.to_sparse(), "sparse")
        with torch.no_grad():
            attach(self.linear(x), "aside")
        for thing in (None, "text", 3, [x]):
            assert attach(thing, "no tensor") is thing
        return self.linear(x) + ids[:, None]


def test_tensors_of_all_kinds():
    model = Kinds()
    seen = watched(model)

    def statuses(name):
        return [seen.status(".", "output", kind, name) for kind in ("value", "grad")]

    assert statuses("ids") == [Status.OK, Status.NOT_DIFFERENTIABLE]
    assert statuses("the input") == [Status.OK, Status.REQUIRES_NONE]
    assert statuses("the weight") == [Status.OK, Status.OK]
    assert statuses("empty") == [Status.EMPTY, Status.REQUIRES_NONE]
    assert statuses("sparse") == [Status.OK, Status.REQUIRES_NONE]
    assert statuses("aside") == [Status.OK, Status.REQUIRES_NONE]
    assert len(seen.node(".").outputs) == 7


def test_the_same_object_comes_back_and_training_is_unchanged():
    tensors = []

    class Same(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)

        def forward(self, x):
            hidden = self.linear(x)
            tensors.append((hidden, attach(hidden, "hidden")))
            return hidden

    assert verify(Same(), lambda model, step: model(X).sum()).identical
    assert all(one is other for one, other in tensors)
    for build in (Net, Changed, Kinds, lambda: nn.Sequential(Changed(), nn.Dropout(0.5))):
        assert verify(build(), lambda model, step: model(X).square().mean()).identical


def test_outside_of_logged_forwards_it_does_nothing():
    assert attach(X, "alone") is X
    model = Net()
    seen = watched(model, steps=4, log_freq=2)
    assert seen.steps == [0, 2]
    assert not _active
    seconds = min(timeit.repeat(lambda: attach(X, "alone"), number=10_000, repeat=5)) / 10_000
    assert seconds < 2e-6


def test_an_exception_within_the_forward_leaves_nothing_behind():
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.fail = Block(), True

        def forward(self, x):
            try:
                attach(x * 2, "twice")
                self.block(x, None) if self.fail else None
            except TypeError:
                attach(x * 3, "thrice")
            if self.fail:
                raise MemoryError
            return self.block(x).sum(1)

    model = Fails()

    def run(writer):
        writer.watch(model, log_freq=1)
        with pytest.raises(MemoryError):
            model(X)
        assert not _active
        model.fail = False
        train(model)

    seen = record(run)
    assert [port.name for port in seen.node(".").outputs] == ["output", "twice"]
    assert [port.name for port in seen.node("block").outputs] == ["output", "hidden", "square"]


def test_other_threads_do_not_attach_to_this_one():
    class Threaded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)

        def forward(self, x):
            thread = threading.Thread(target=lambda: attach(x * 5, "elsewhere"))
            thread.start()
            thread.join()
            return attach(self.linear(x), "here") * 1

    seen = watched(Threaded())
    assert [port.name for port in seen.node(".").outputs] == ["output", "here"]


def test_excluded_modules_attach_nothing():
    seen = watched(Net(), exclude="block")
    assert seen.node("block").outputs == [] or len(seen.node("block").outputs) == 1
    assert not [key for key in seen.series if key.name == "hidden"]


def test_kinds_that_are_not_logged_are_left_out():
    values, gradients = watched(Net(), log=["io"]), watched(Net(), log=["io_grad"])

    assert {key.kind for key in values.series if key.name == "hidden"} == {"value"}
    assert {key.kind for key in gradients.series if key.name == "hidden"} == {"grad"}
    assert gradients.status("block", "output", "grad", "hidden") == Status.OK


def test_evaluation_has_values_of_attached_tensors(tmp_path):
    model = Net().eval()
    with ExplorerWriter(str(tmp_path)) as writer, torch.no_grad():
        writer.watch(model, sample_n=None)
        model(X)
    seen = read_back(str(tmp_path), phase="eval")

    assert_row_holds(seen.row("block", "output", "value", "hidden"), model.block.first(X) * 2)
    assert seen.status("block", "output", "grad", "hidden") == Status.EVAL


class Checkpointed(nn.Module):
    def __init__(self, reentrant, nested=False) -> None:
        super().__init__()
        self.block, self.reentrant, self.nested = Block(), reentrant, nested

    def forward(self, x):
        x = x * self.block.first.weight.sum()
        if self.reentrant is None:
            return self.block(x)
        if self.nested:
            return checkpoint(self.run, x, use_reentrant=self.reentrant)
        return self.run(x)

    def run(self, x):
        return checkpoint(self.block, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_under_a_checkpoint(reentrant, nested):
    torch.manual_seed(0)
    model = Checkpointed(reentrant, nested)
    twin = copy.deepcopy(model)
    twin.reentrant = None
    wanted, seen = watched(twin), watched(model)

    assert [port.name for port in seen.node("block").outputs] == ["output", "hidden", "square"]
    for name in ("hidden", "square"):
        for kind in ("value", "grad"):
            one, other = (found.row("block", "output", kind, name) for found in (wanted, seen))
            assert one["status"] == other["status"] == Status.OK
            for column in ("min", "max", "mean", "std"):
                assert one[column] == pytest.approx(other[column], rel=1e-5)
    assert _active == {}
    assert verify(model, lambda model, step: model(X).square().mean()).identical


def test_compiled_models_attach_on_logged_steps_and_keep_their_graph_on_others():
    counts = []

    def backend(graph, inputs):
        counts.append(len(list(graph.graph.nodes)))
        return graph.forward

    model = Net()
    compiled = torch.compile(model, backend=backend, fullgraph=True)

    def run(writer):
        writer.watch(model, log_freq=3)
        train(compiled, 5)

    seen = record(run)
    assert seen.steps == [0, 3]
    assert seen.status("block", "output", "grad", "hidden") == Status.OK
    assert len(counts) == 1


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_wrong_name_is_named(name):
    with pytest.raises(ValueError, match=f"attach: name={name!r} is not"):
        attach(X, name)
