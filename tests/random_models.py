"""Random trees of modules: drawn programs with reuse, containers, views and in-place operations.

A `Program` is what one module's forward does: statements over a growing list of tensors. All tensors
have the shape (3, 4), all operations keep values moderate and let every change of an input show.
The generator keeps to what the oracle can answer, see oracle.py: views and shared memory don't cross
a call that writes to them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from hypothesis import strategies as st
from oracle import tensors
from torch import Tensor, nn

SHAPE = (3, 4)
STYLES = ("positional", "keywords", "list", "dictionary", "dataclass")


@dataclasses.dataclass(frozen=True)
class Pair:
    """A container that holds what it is given."""

    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Statement:
    """`operation` on the tensors numbered `operands`; for a call, of child `child`, in a `style`."""

    operation: str
    operands: tuple[int, ...]
    child: int = -1
    style: str = "positional"
    keep: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Program:
    """`children` are programs, or names of leaf modules; equal objects are one module. `returns` are
    numbers of tensors, `results[k]` the input that the k-th of them is, -1 for a new tensor."""

    inputs: int
    children: tuple[Any, ...]
    statements: tuple[Statement, ...]
    returns: tuple[int, ...]
    style: str
    results: tuple[int, ...]
    changed: frozenset[int]


@dataclasses.dataclass(frozen=True, eq=False)
class Leaf:
    """A leaf module. One object in several places is one module."""

    kind: str

    @property
    def inputs(self) -> int:
        return 1

    @property
    def results(self) -> tuple[int, ...]:
        return (0,) if self.kind in ("leaky_", "identity") else (-1,)

    @property
    def changed(self) -> frozenset[int]:
        return frozenset([0] if self.kind == "leaky_" else [])

    def build(self) -> nn.Module:
        if self.kind == "linear":
            return nn.Linear(4, 4)
        if self.kind == "dropout":
            return nn.Dropout(0.3)
        if self.kind == "leaky_":
            return nn.LeakyReLU(0.1, inplace=True)
        return nn.Identity()


class Block(nn.Module):
    """Runs a program."""

    def __init__(self, program: Program, made: dict[int, nn.Module]) -> None:
        super().__init__()
        self.program = program
        self.parts = nn.ModuleList(build(child, made) for child in program.children)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        known = tensors((args, kwargs))
        for statement in self.program.statements:
            operands = [known[number] for number in statement.operands]
            if statement.operation in ("call", "call_no_grad"):
                with torch.set_grad_enabled(torch.is_grad_enabled() and statement.operation == "call"):
                    result = call(self.parts[statement.child], operands, statement.style)
                results = tensors(result)
                known += [results[number] for number in statement.keep]
            else:
                known += OPERATIONS[statement.operation](*operands)
        return packed([known[number] for number in self.program.returns], self.program.style)


def build(child: Program | Leaf, made: dict[int, nn.Module]) -> nn.Module:
    if id(child) not in made:
        made[id(child)] = child.build() if isinstance(child, Leaf) else Block(child, made)
    return made[id(child)]


def call(module: nn.Module, operands: list[Tensor], style: str) -> Any:
    if not isinstance(module, Block):
        return module(*operands)
    if style == "keywords":
        return module(**{f"x{number}": operand for number, operand in enumerate(operands)})
    if style == "positional":
        return module(*operands)
    return module(packed(operands, style))


def packed(values: list[Tensor], style: str) -> Any:
    if style == "list":
        return list(values)
    if style in ("dictionary", "keywords"):
        return {f"y{number}": value for number, value in enumerate(values)}
    if style == "dataclass":
        return Pair(values[0], values[1:])
    return values[0] if len(values) == 1 else tuple(values)


def _write(target: Tensor, source: Tensor) -> list[Tensor]:
    target[:, :2] = source.mean(1, keepdim=True)
    return []


def _add_(target: Tensor, source: Tensor) -> list[Tensor]:
    target.add_(source)
    return []


def _leaky_(target: Tensor) -> list[Tensor]:
    nn.functional.leaky_relu_(target, 0.1)
    return []


@torch.no_grad()
def _add_no_grad_(target: Tensor, source: Tensor) -> list[Tensor]:
    target.add_(source)
    return []


@torch.no_grad()
def _double_no_grad(tensor: Tensor) -> list[Tensor]:
    return [tensor * 2]


OPERATIONS: dict[str, Any] = {
    "sin": lambda a: [a.sin()],
    "add": lambda a, b: [a + b],
    "mix": lambda a, b: [a * torch.sigmoid(b) + b],
    "cat": lambda a, b: [torch.cat([a, b], 1)[:, ::2].contiguous()],
    "round": lambda a: [(a * 50).round().long().float() / 50],
    "view": lambda a: [a[:]],
    "detach": lambda a: [a.detach()],
    "double_no_grad": _double_no_grad,
    "add_": _add_,
    "add_no_grad_": _add_no_grad_,
    "leaky_": _leaky_,
    "write": _write,
}
UNARY = ("sin", "round", "view", "detach", "double_no_grad", "leaky_")
BINARY = ("add", "mix", "add_", "add_no_grad_", "write")
CHANGING = frozenset({"leaky_", "add_", "add_no_grad_", "write"})


class _Known:
    """What the generator knows of a tensor: whose memory it shares, and whether it is a view."""

    def __init__(self, memory: object, alias: bool = False, source: int = -1) -> None:
        self.memory = memory
        self.alias = alias
        self.source = source


@st.composite
def programs(draw: st.DrawFn, leaves: tuple[Leaf, ...] = (), depth: int = 2) -> Program:
    """A program whose children are programs of less depth and leaves, some shared by all levels."""
    inputs = draw(st.integers(1, 3))
    shared = leaves or tuple(Leaf(kind) for kind in ("linear", "leaky_"))
    children: list[Program | Leaf] = list(shared)
    children += [Leaf(draw(st.sampled_from(("linear", "dropout", "identity", "leaky_"))))]
    if depth:
        children += [draw(programs(shared, depth - 1)) for _ in range(draw(st.integers(1, 2)))]
    known = [_Known(object(), source=number) for number in range(inputs)]
    changed: set[int] = set()
    statements = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("unary", "binary", "call", "call", "call_no_grad")))
        if kind == "unary":
            statement = _unary(draw, known)
        elif kind == "binary":
            statement = _binary(draw, known)
        else:
            statement = _call(draw, known, children, kind)
        if statement is None:
            continue
        statements.append(statement)
        if statement.operation in CHANGING:
            memory = known[statement.operands[0]].memory
        for number, tensor in enumerate(known[:inputs]):
            if statement.operation in CHANGING and tensor.memory is memory:
                changed.add(number)
            if statement.child >= 0:
                touched = {known[statement.operands[i]].memory for i in children[statement.child].changed}
                if tensor.memory in touched:
                    changed.add(number)
    returns = _returns(draw, known)
    return Program(
        inputs,
        tuple(children),
        tuple(statements),
        returns,
        draw(st.sampled_from(STYLES)),
        tuple(known[number].source for number in returns),
        frozenset(changed),
    )


def _unary(draw: st.DrawFn, known: list[_Known]) -> Statement:
    operation = draw(st.sampled_from(UNARY))
    number = draw(st.integers(0, len(known) - 1))
    if operation in ("view", "detach"):
        known.append(_Known(known[number].memory, alias=True))
    elif operation not in CHANGING:
        known.append(_Known(object()))
    return Statement(operation, (number,))


def _binary(draw: st.DrawFn, known: list[_Known]) -> Statement | None:
    operation = draw(st.sampled_from(BINARY))
    a, b = draw(st.integers(0, len(known) - 1)), draw(st.integers(0, len(known) - 1))
    if a == b or (operation in CHANGING and known[a].memory is known[b].memory):
        return None
    if operation not in CHANGING:
        known.append(_Known(object()))
    return Statement(operation, (a, b))


def _call(
    draw: st.DrawFn, known: list[_Known], children: list[Program | Leaf], operation: str
) -> Statement | None:
    child = draw(st.integers(0, len(children) - 1))
    callee = children[child]
    operands = tuple(draw(st.integers(0, len(known) - 1)) for _ in range(callee.inputs))
    if len({id(known[number].memory) for number in operands}) < len(operands):
        return None
    hands_over = callee.changed | {source for source in callee.results if source >= 0}
    if any(known[operands[position]].alias for position in hands_over):
        return None
    if operation == "call_no_grad" and hands_over:
        return None
    keep = tuple(number for number, source in enumerate(callee.results) if source < 0)
    known += [_Known(object()) for _ in keep]
    return Statement(operation, operands, child, draw(st.sampled_from(STYLES)), keep)


def _returns(draw: st.DrawFn, known: list[_Known]) -> tuple[int, ...]:
    """Up to three tensors that share no memory with one another, and with an input only if they are
    that very input."""
    inputs = {id(tensor.memory) for tensor in known if tensor.source >= 0}
    fit = [
        number
        for number, tensor in enumerate(known)
        if not tensor.alias and (tensor.source >= 0 or id(tensor.memory) not in inputs)
    ]
    chosen = draw(st.lists(st.sampled_from(fit), min_size=1, max_size=3, unique=True))
    # the last tensor is what most of the program went into
    return tuple(dict.fromkeys([*chosen, fit[-1]]))[:3]
