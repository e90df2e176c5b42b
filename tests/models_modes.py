"""Checkpoints, transforms, scripts, dtypes, layouts: other ways to run. See models.py."""

from __future__ import annotations

from typing import Any

import torch
from models_register import Built, case, forward_only, mean_square, on
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.a = nn.Linear(6, 6)
        self.block = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.ReLU())
        self.b = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        h = checkpoint(lambda t: self.block(t) + t, h, use_reentrant=self.reentrant)
        h = checkpoint(self.block, h, use_reentrant=self.reentrant)
        return self.b(h)


CHECKPOINTED = {
    ".": "in0 > a > block > block#1 > b > out0; a > block#1",
    "block": "in0 > 0 > 1 > 2 > out0",
    "block/0": "in0 > out0",
}


@case(CHECKPOINTED)
def checkpoint_reentrant() -> Built:
    return Checkpointed(reentrant=True), on(torch.randn(5, 6))


@case(CHECKPOINTED)
def checkpoint_not_reentrant() -> Built:
    return Checkpointed(reentrant=False), on(torch.randn(5, 6))


class NestedCheckpoint(nn.Module):
    """A checkpoint within one, two tensors through both, one of them without a gradient inside."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.a = nn.Linear(6, 6)
        self.b = nn.Linear(6, 6)
        self.c = nn.Linear(6, 6)

    def inner(self, h: Tensor, x: Tensor) -> Tensor:
        return self.b(h) + x.detach()

    def outer(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = checkpoint(self.inner, h, x, use_reentrant=self.reentrant)
        return self.c(h), h * 2

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return checkpoint(self.outer, self.a(x), x, use_reentrant=self.reentrant)


NESTED_CHECKPOINT = {".": "in0 > a > b > c > out0; b > out1; in0 ..> c; in0 ..> out1"}


@case(NESTED_CHECKPOINT)
def nested_checkpoint_reentrant() -> Built:
    x = torch.randn(5, 6)
    return NestedCheckpoint(reentrant=True), lambda model: mean_square(*model(x))


@case(NESTED_CHECKPOINT)
def nested_checkpoint_not_reentrant() -> Built:
    x = torch.randn(5, 6)
    return NestedCheckpoint(reentrant=False), lambda model: mean_square(*model(x))


class CheckpointedFunction(nn.Module):
    """A checkpoint without modules in it, whose results don't depend on all of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.b = nn.Linear(6, 6)
        self.c = nn.Linear(6, 6)

    @staticmethod
    def function(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return u.sin(), v.cos()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u, v = checkpoint(self.function, self.a(x), self.b(x), use_reentrant=True)
        return self.c(u), v


@case({".": "in0 > a > c > out0; in0 > b > out1"})
def checkpoint_of_a_function() -> Built:
    x = torch.randn(5, 6)
    return CheckpointedFunction(), lambda model: mean_square(*model(x))


class Recomputed(torch.autograd.Function):
    """A checkpoint as other libraries write it."""

    @staticmethod
    def forward(ctx: Any, function: Any, x: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            result = ctx.function(x)
        torch.autograd.backward(result, gradient)
        return None, x.grad


class FunctionThatCallsModules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(Recomputed.apply(self.block, self.a(x)))


@case({".": "in0 > a > block > b > out0", "block": "in0 > 0 > 1 > out0"})
def function_that_calls_modules() -> Built:
    """Its backward will go through the modules again, so it hides nothing."""
    return FunctionThatCallsModules(), on(torch.randn(3, 4))


class InnerGradient(nn.Module):
    """Energy model: the forward differentiates a child's result, and that can be differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        energy = self.net(x)
        (force,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
        return self.c(force) + energy


@case({".": "in0 ..> net > out0; net ~> c > out0"})
def gradient_in_forward() -> Built:
    """The force is made from what the child has saved, not from its result."""
    return InnerGradient(), on(torch.randn(3, 4))


class FunctionalGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.func.grad(lambda h: self.net(h).square().sum())(self.a(x)))


@case({".": "in0 > a > net > c > out0", "net": "in0 > 0 > 1 > out0"})
def functional_gradient() -> Built:
    return FunctionalGradient(), on(torch.randn(3, 4))


class Vmapped(nn.Module):
    """A function, and a module with its children, mapped over samples."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.vmap(lambda row: row * row.sum())(self.a(x))
        return self.c(torch.vmap(self.b)(h))


@case({".": "in0 > a > b > c > out0", "b": "in0 > 0 > 1 > out0"})
def vmapped() -> Built:
    return Vmapped(), on(torch.randn(3, 4))


@case({".": "in0 > 0 > 1 > out0", "0": "in0 > out0"})
def functional_call() -> Built:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> Tensor:
        doubled = {name: parameter * 2 for name, parameter in model.named_parameters()}
        return mean_square(torch.func.functional_call(model, doubled, (x,)))

    return model, run


@case({".": "in0 > 0 > 1 > out0"})
def inside_a_transform() -> Built:
    """The whole forward runs under torch.func.grad, as functional training loops do it."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> None:
        def loss(parameters: dict[str, Tensor]) -> Tensor:
            return mean_square(torch.func.functional_call(model, parameters, (x,)))

        torch.func.grad(loss)({name: p.detach() for name, p in model.named_parameters()})

    return model, run


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        self.traced = torch.jit.trace(nn.Linear(4, 4), torch.randn(3, 4))
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.traced(self.scripted(self.a(x))))


@case({".": "in0 > a > scripted > traced > b > out0", "scripted": "in0 > out0", "traced": "in0 > out0"})
def scripted() -> Built:
    """Leaves: what runs inside has no Python hooks."""
    return Scripted(), on(torch.randn(3, 4))


@case({".": "in0 > 0 > 1 > 2 > 3 > out0", "0": "in0 > out0"})
def autocast() -> Built:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    x = torch.randn(5, 8)

    def run(model: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return mean_square(model(x))

    return model, run


class UserBackwardHook(nn.Module):
    """A full backward hook wraps arguments and results of the module in nodes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.split = SplitInTwo()
        self.split.register_full_backward_hook(lambda module, grad_input, grad_output: None)
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        u, v = self.split(self.a(x), y)
        return self.c(u), v


class SplitInTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.l(u), v * 2


@case(
    {
        ".": "in0 > a > split > c > out0; in1 > split > out1",
        "split": "in0 > l > out0; in1 > out1",
    }
)
def full_backward_hook_of_the_user() -> Built:
    x, y = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    return UserBackwardHook(), lambda model: mean_square(*model(x, y))


@case({".": "in0 ..> 0 ..> 1 ..> 2 ..> out0", "0": "in0 ..> out0", "2": "in0 ..> out0"})
def inference_mode() -> Built:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Identity()).eval()
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> None:
        with torch.inference_mode():
            model(x)

    return model, run


@case({".": "in0 > 0 > 1 > out0"})
def complex_numbers() -> Built:
    model = nn.Sequential(nn.Linear(4, 4, dtype=torch.cfloat), nn.Linear(4, 2, dtype=torch.cfloat))
    x = torch.randn(3, 4, dtype=torch.cfloat)
    return model, lambda model: model(x).abs().square().mean()


class ComplexInverse(nn.Module):
    """The kernels of these mark tensors of their own as conjugated."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.lstsq(x, x[:, :1] + 1.0, driver="gels").solution + torch.linalg.pinv(x)[:, :1]


class RealParts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(x)


@case({".": "in0 > 0 > 1 > 2 > out0"})
def complex_inverse() -> Built:
    model = nn.Sequential(nn.Linear(4, 4, dtype=torch.cfloat), ComplexInverse(), RealParts())
    return model, on(torch.randn(4, 4, dtype=torch.cfloat))


class ToFloat8(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float8_e4m3fn)


class FromFloat8(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float32) * 2


@case({".": "in0 > 0 > 1 > 2 > out0", "1": "in0 > out0"})
def float8() -> Built:
    return nn.Sequential(nn.Linear(4, 4), ToFloat8(), FromFloat8()), on(torch.randn(3, 4))


@case({".": "in0 > 0 > 1 > out0"})
def meta_tensors() -> Built:
    with torch.device("meta"):
        model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), torch.randn(3, 4)

    def run(model: nn.Module) -> None:
        model(x)

    return model, run


@case({".": "in0 > 0 > 1 > out0"})
def empty_batch() -> Built:
    x = torch.randn(0, 4)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), lambda model: model(x).sum()


class SparseProduct(nn.Module):
    """Graph convolution: a sparse adjacency matrix is an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, adjacency: Tensor, x: Tensor) -> Tensor:
        return torch.sparse.mm(adjacency, self.l(x))


@case({".": "in0 > 0 > out0; in1 > 0", "0": "in0 > out0; in1 > l > out0"})
def sparse_tensors() -> Built:
    model = Wrapper2(SparseProduct())
    adjacency = torch.eye(3).to_sparse()
    return model, on(adjacency, torch.randn(3, 4))


class Wrapper2(nn.Sequential):
    """A Sequential of one child that takes several arguments."""

    def forward(self, *args: Any) -> Any:
        return self[0](*args)


class QuantizeInside(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)


class Dequantize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.dequantize()


@case({".": "in0 > 0 > 1 ..> 2 > out0", "1": "in0 ..> out0", "2": "in0 ..> out0"})
def quantized_tensors() -> Built:
    return nn.Sequential(nn.Linear(4, 4), QuantizeInside(), Dequantize()), forward_only(torch.randn(3, 4))
