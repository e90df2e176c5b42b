"""Calls that come about in odd ways, and tensors that are not plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from levels import Traced, chains, paths_of
from models_flow import Branches
from models_lookup import VQVAE
from torch import Tensor, nn

from tensorboard_torchexplorer.capture.calls import CallTree
from tensorboard_torchexplorer.capture.structure import StructureTracer


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors of a few elements: more threads only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_branch_that_changes_is_traced_as_it_runs() -> None:
    """Which forwards are joined to one graph is not the tracer's matter."""
    model, x = Branches(), torch.randn(3, 4)
    levels = [Traced(model, lambda model: model(x)).level(".") for _ in range(3)]

    assert levels == [chains(f"in0 > {branch} > out0") for branch in ("odd", "even", "odd")]


def test_a_loop_that_grows() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.turns = 0

        def forward(self, x: Tensor) -> Tensor:
            self.turns += 1
            for _ in range(self.turns):
                x = self.l(x)
            return x

    model, x = Loop(), torch.randn(3, 4)
    levels = [Traced(model, lambda model: model(x)).level(".") for _ in range(3)]

    assert levels == [
        chains("in0 > l > out0"),
        chains("in0 > l > l#1 > out0"),
        chains("in0 > l > l#1 > l#2 > out0"),
    ]


def test_recursion_of_the_root() -> None:
    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4)

        def forward(self, x: Tensor, depth: int = 5) -> Tensor:
            x = self.l(x)
            return x if depth == 0 else self(x, depth - 1) + x

    traced = Traced(Tree(), lambda model: model(torch.randn(3, 4)))
    roots = [call for call in traced.tree.calls if isinstance(call.module, Tree)]

    assert traced.faults == []
    assert len(roots) == 6
    # in0 > l > tree > out0 and l > out0; the innermost has no tree
    assert [len(call.links) for call in roots] == [4, 4, 4, 4, 4, 2]


def test_unregistered_modules_are_followed_if_they_are_watched() -> None:
    """Held in a plain list, a module is in no `named_modules()`; whoever finds it gives it a path."""

    class Unregistered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    model = Unregistered()
    paths = {**paths_of(model), **{layer: f"layers.{n}" for n, layer in enumerate(model.layers)}}
    x = torch.randn(3, 4)

    assert Traced(model, lambda model: model(x)).level(".") == chains("in0 > out0")
    assert Traced(model, lambda model: model(x), paths).level(".") == chains(
        "in0 > layers.0 > layers.1 > out0"
    )


def test_modules_that_are_not_watched_are_passed_through() -> None:
    """The edges of the others close over the gap."""
    model = VQVAE(straight_through=True)
    paths = {module: path for module, path in paths_of(model).items() if "quantizer" not in path}
    traced = Traced(model, lambda model: model(torch.randn(2, 3, 8, 8)), paths)

    assert traced.level(".") == chains("in0 > encoder > decoder > out1; encoder > out0; encoder ..> out2")


def test_two_forwards_of_one_tracer_are_not_mixed() -> None:
    """A root that runs twice in the block: the second forward starts anew."""
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    faults: list[Any] = []
    tracer = StructureTracer(lambda *fault: faults.append(fault))
    tree = CallTree(model, paths_of(model), [tracer], lambda *fault: faults.append(fault))
    with tree.watching(), tracer:
        model(model(x))
    tracer.finish()

    assert faults == []
    roots = [call for call in tree.calls if call.parent is None]
    assert [len(call.links) for call in roots] == [3, 3]


@pytest.mark.filterwarnings("default")  # of torch._dynamo
def test_higher_order_operators() -> None:
    """torch.cond compiles its branches even in eager mode, and reaches the mode as one operator."""

    class Conditional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            return self.b(torch.cond(h.sum() > 0, torch.sin, torch.cos, (h,)))

    model, x = Conditional(), torch.randn(3, 4)
    plain = model(x)
    traced = Traced(model, lambda model: model(x))

    assert traced.faults == []
    assert torch.equal(traced.result, plain)
    assert traced.level(".") == chains("in0 > a > b > out0")


@pytest.mark.filterwarnings("default")  # of torch._dynamo
def test_compiled_children() -> None:
    """A compiled function and a compiled module keep their places, and compile as often as before."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    class Compiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.function = torch.compile(lambda t: t.sin() * 2, backend=backend)
            self.b = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.function(self.a(x)))

    model, x = Compiled(), torch.randn(3, 4)
    plain = model(x)
    compiled = len(graphs)
    traced = Traced(model, lambda model: model(x))
    model(x)

    assert traced.faults == []
    assert torch.equal(traced.result, plain)
    assert traced.level(".") == chains("in0 > a > b > out0")
    assert len(graphs) == compiled == 1


@torch.library.custom_op("structure_tests::scale", mutates_args=())
def scale(x: Tensor, factor: float) -> Tensor:
    return torch.from_numpy(x.detach().numpy() * factor)


@torch.library.custom_op("structure_tests::fill", mutates_args=("out",))
def fill(x: Tensor, out: Tensor) -> None:
    out.copy_(x * 2)


scale.register_autograd(lambda ctx, gradient: (gradient * 2, None))


def test_custom_operators() -> None:
    """One with a backward and a body that torch can't see into, one that fills its argument."""

    class UsesOperators(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in "abc":
                self.add_module(name, nn.Linear(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            y = self.b(scale(self.a(x), 2.0))
            filled = torch.empty_like(y)
            fill(y.detach(), filled)
            return self.c(filled) + y

    traced = Traced(UsesOperators(), lambda model: model(torch.randn(3, 4)))

    assert traced.faults == []
    assert traced.level(".") == chains("in0 > a > b > out0; b ..> c > out0")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors(layout: torch.layout) -> None:
    class Nests(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            nested = self.b(torch.nested.as_nested_tensor([h[:2], h[2:]], layout=layout))
            return torch.nested.to_padded_tensor(nested, 0.0)

    traced = Traced(Nests(), lambda model: model(torch.randn(5, 4)))

    assert traced.faults == []
    assert traced.level(".") == chains("in0 > a > b > out0")
    assert traced.level("b") == chains("in0 > out0")


def test_wrapper_subclasses() -> None:
    """A tensor whose data lie in another tensor, as DTensor and quantised weights are made."""
    from torch.utils import _pytree
    from torch.utils._python_dispatch import return_and_correct_aliasing

    class Wrapped(Tensor):
        inner: Tensor

        @staticmethod
        def __new__(cls, inner: Tensor) -> Wrapped:
            made = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            opened = _pytree.tree_map_only(Wrapped, lambda t: t.inner, (args, kwargs))
            result = func(*opened[0], **opened[1])
            closed = _pytree.tree_map_only(Tensor, Wrapped, result)
            return return_and_correct_aliasing(func, args, kwargs, closed)

    model = nn.Sequential(nn.Tanh(), nn.Flatten(), nn.ReLU(inplace=True), nn.Sigmoid())
    traced = Traced(model, lambda model: model(Wrapped(torch.randn(3, 2, 2))))

    assert traced.faults == []
    assert isinstance(traced.result, Wrapped)
    assert traced.level(".") == chains("in0 > 0 > 1 > 2 > 3 > out0")


def test_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), torch.randn(3, 4)
        traced = Traced(model, lambda model: model(x))

    assert traced.faults == []
    assert traced.level(".") == chains("in0 > 0 > 1 > out0")


def test_memory_mapped_parameters(tmp_path: Path) -> None:
    """Storages that borrow their memory, like those of numpy arrays, but share none."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    torch.save(model.state_dict(), tmp_path / "weights")
    model.load_state_dict(torch.load(tmp_path / "weights", mmap=True, weights_only=True), assign=True)
    traced = Traced(model, lambda model: model(torch.randn(3, 4)))

    assert traced.faults == []
    assert traced.level(".") == chains("in0 > 0 > 1 > out0")


# --- Distributed, one process ------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.relu = nn.ReLU()
        self.b = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.relu(self.a(x))) + x


RESIDUAL = "in0 > a > relu > b > out0; in0 > out0"


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A device mesh of this process alone."""
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def tensor_parallel(mesh: Any) -> tuple[nn.Module, str]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(Residual(), mesh, {"a": ColwiseParallel(), "b": RowwiseParallel()}), "."


def fully_sharded(mesh: Any) -> tuple[nn.Module, str]:
    from torch.distributed.fsdp import fully_shard

    model = Residual()
    fully_shard(model.a, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, "."


def data_parallel(mesh: Any) -> tuple[nn.Module, str]:
    return nn.parallel.DistributedDataParallel(Residual()), "module"


@pytest.mark.filterwarnings("default")  # of torch.distributed
@pytest.mark.parametrize("make", [tensor_parallel, fully_sharded, data_parallel])
def test_distributed_models(mesh: Any, make: Any) -> None:
    model, level = make(mesh)
    x = torch.randn(3, 4)
    plain = model(x)
    traced = Traced(model, lambda model: model(x))
    traced.result.sum().backward()

    assert traced.faults == []
    assert torch.equal(traced.result, plain)
    assert traced.level(level) == chains(RESIDUAL)


@pytest.mark.filterwarnings("default")  # of torch.distributed
def test_dtensors_as_inputs(mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, distribute_module, distribute_tensor

    model = distribute_module(Residual(), mesh)
    x = distribute_tensor(torch.randn(3, 4), mesh, [Replicate()])
    traced = Traced(model, lambda model: model(x))

    assert traced.faults == []
    assert type(traced.result) is type(x)
    assert traced.level(".") == chains(RESIDUAL)
