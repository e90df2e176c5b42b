"""Views and in-place operations. See models.py."""

from __future__ import annotations

import torch
from models_register import Built, case, forward_only, mean_square, on
from torch import Tensor, nn


class Slices(nn.Module):
    """A result put together by writing to slices and views of an empty tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.c = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0], 8)
        out[:, :4] = self.a(x)
        right = out[:, 4:]
        right.copy_(self.b(x[:, [3, 2, 1, 0]]))
        out[:, 0].mul_(2.0)
        return self.c(out)


@case({".": "in0 > a > c > out0; in0 > b > c"})
def slices() -> Built:
    return Slices(), on(torch.randn(5, 4))


class WritesToItsArgument(nn.Module):
    """A child that overwrites a part of what it was given and returns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 2)

    def forward(self, target: Tensor, x: Tensor) -> None:
        target[:, :2] = self.l(x)


class FilledByChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.fill = WritesToItsArgument()
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        self.fill(h, x)
        return self.b(h)


@case({".": "in0 > a > fill > b > out0; in0 > fill; a > b", "fill": "in1 > l"})
def child_writes_to_its_argument() -> Built:
    """The part that was not written still stems from `a`."""
    return FilledByChild(), on(torch.randn(5, 4))


@case({".": "in0 > a > fill > b > out0; in0 > fill; a > b"})
def child_writes_to_its_argument_frozen() -> Built:
    return FilledByChild().requires_grad_(False), forward_only(torch.randn(5, 4))


class FilledByGrandchild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.wrap = HandsOn(WritesToItsArgument())
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        self.wrap(h, x)
        return self.b(h)


class HandsOn(nn.Module):
    def __init__(self, fill: nn.Module) -> None:
        super().__init__()
        self.fill = fill

    def forward(self, target: Tensor, x: Tensor) -> None:
        self.fill(target, x)


@case({".": "in0 > a > wrap > b > out0; in0 > wrap; a > b", "wrap": "in0 > fill; in1 > fill"})
def grandchild_writes_to_its_argument() -> Built:
    return FilledByGrandchild().requires_grad_(False), forward_only(torch.randn(5, 4))


class FilledThroughDetached(nn.Module):
    """What the child writes to shares memory with `h`, but is no view of it to autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.fill = WritesToItsArgument()
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        self.fill(h.detach(), x)
        return self.b(h)


@case({".": "in0 > a > b > out0; a ..> fill ..> b; in0 > fill", "fill": "in1 > l"})
def child_writes_to_detached_memory() -> Built:
    return FilledThroughDetached(), on(torch.randn(5, 4))


@case({".": "in0 > 0 > 1 > 2 > out0", "1": "in0 > out0"})
def inplace_on_a_view() -> Built:
    """On 3-D input, Linear returns a view of its matrix product."""
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)), on(torch.randn(2, 3, 4))


class InplaceThenMore(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(x).sin()


@case({".": "in0 > 0 > 1 > 2 > out0", "1": "in0 > out0"})
def inplace_on_a_view_inside() -> Built:
    """The graph by-passes the view: what follows hangs on to the node of its base."""
    return nn.Sequential(nn.Linear(4, 4), InplaceThenMore(), nn.Linear(4, 4)), on(torch.randn(2, 3, 4))


class FlattenedInPlace(nn.Module):
    """The convolution's result is modified through its flattened view."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.flatten = nn.Flatten()
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 4)
        self.conv2 = nn.Conv2d(2, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.conv(x)
        return self.head(self.relu(self.flatten(features))), self.conv2(features)


@case(
    {
        ".": """in0 > conv > flatten > relu > head > out0
                relu > conv2 > out1""",
        "relu": "in0 > out0",
    }
)
def flattened_in_place() -> Built:
    x = torch.randn(2, 1, 4, 4)
    return FlattenedInPlace(), lambda model: mean_square(*model(x))


class InplaceStatement(nn.Module):
    """The result of the in-place call is thrown away, its effect is not."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.relu = nn.ReLU(inplace=True)
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        self.relu(h)
        return self.b(h + x)


@case({".": "in0 > a > relu > b > out0; in0 > b"})
def inplace_statement() -> Built:
    return InplaceStatement(), on(torch.randn(3, 4))


class Chunks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out((self.norm(q) @ k.transpose(-1, -2)).softmax(-1) @ v)


@case({".": "in0 > qkv > norm > out > out0; qkv > out"})
def chunks_of_one_result() -> Built:
    return Chunks(), on(torch.randn(2, 3, 4))


class ViewOfFlattened(nn.Module):
    """Views of a pass-through view belong to it, not to whoever made the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.flatten = nn.Flatten()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.flatten(self.conv(x))[:, :4])


@case({".": "in0 > conv > flatten > head > out0"})
def view_of_a_view() -> Built:
    return ViewOfFlattened(), on(torch.randn(2, 1, 4, 4))


class DetachedThenChanged(nn.Module):
    """A detached view shares memory with what is changed afterwards: values flow, no gradient does."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.a(x)
        view = h.detach()
        h.add_(self.b(x))
        return self.c(view), h


@case({".": "in0 > a > out1; in0 > b > out1; a ..> c > out0; b ..> c"})
def detached_then_changed() -> Built:
    x = torch.randn(3, 4)
    return DetachedThenChanged(), lambda model: mean_square(*model(x))


@case({".": "in0 > a > out1; in0 > b > out1; a ..> c > out0; b ..> c"})
def detached_then_changed_frozen() -> Built:
    return DetachedThenChanged().requires_grad_(False), forward_only(torch.randn(3, 4))


class StaleView(nn.Module):
    """A view of what has been written to gets a new node from whoever uses it first, here `mix`."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(4, 8)
        self.mix = Mix()
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.a(x)
        view = h[:, :4]
        h.add_(self.b(x))
        return self.mix(view, x), self.c(view), view * 2


class Mix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, view: Tensor, x: Tensor) -> Tensor:
        return self.l(x) + view


@case(
    {
        ".": """in0 > a > mix > out0; in0 > b > mix; in0 > mix
                a > c > out1; b > c; a > out2; b > out2""",
        "mix": "in1 > l > out0; in0 > out0",
        "c": "in0 > out0",
    }
)
def stale_view() -> Built:
    x = torch.randn(3, 4)
    return StaleView(), lambda model: mean_square(*model(x))


class OutArgument(nn.Module):
    """One buffer serves two products in turn; what was in it before is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.c = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        buffer = torch.empty_like(x)
        torch.mul(self.a(x), 2, out=buffer)
        first = self.c(buffer)
        torch.mul(self.b(x), 2, out=buffer)
        return self.c(buffer) + first


@case({".": "in0 ..> a ..> c ..> out0; in0 ..> b ..> c#1 ..> out0"})
def out_argument() -> Built:
    x = torch.randn(3, 4)

    def run(model: nn.Module) -> None:
        with torch.no_grad():
            model(x)

    return OutArgument(), run


class ReusedBatchNorm(nn.Module):
    """Running statistics are written by each call, but no result of this forward is made of them."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.a(x)) * self.norm(self.b(x))


@case({".": "in0 > a > norm > out0; in0 > b > norm#1 > out0", "norm": "in0 > out0"})
def reused_batch_norm() -> Built:
    return ReusedBatchNorm(), on(torch.randn(5, 4))
