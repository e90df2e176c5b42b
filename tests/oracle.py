"""A slow and independent answer to which edges a level has: run it alone, with its children replaced.

Each call of a module is run once more by itself. Its inputs are fresh leaves of an autograd graph, and
each call of a child is replaced by a stub that returns what the child had returned, as fresh leaves
again. Whatever leaf the graph leads back to from a child's input or from an output has a gradient
edge to it. For data, one source at a time is changed, and what changes with it depends on it.

What it can't answer: values that pass by attributes and closures, generators, state that a forward
leaves in opaque objects, reentrant checkpoints, and views that pass into or out of a child that
writes to them.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Edge = tuple[str, str]
Replace = Callable[[Tensor], Any]


class Answer(NamedTuple):
    """Edges of one level as (source, target): `in0`, `out1`, or the position of a child, `#3`."""

    gradient: set[Edge]
    data: set[Edge]


class Recorded:
    """One call: all that is needed to run it again."""

    def __init__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.module = module
        self.given = (args, kwargs)
        self.args, self.kwargs = replaced((args, kwargs), cloned())
        self.grad = torch.is_grad_enabled()
        self.training = module.training
        self.random = torch.get_rng_state()
        self.buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
        self.children: list[Recorded] = []
        self.result: Any = None
        self.finished = False
        # positions of input tensors that the call has changed, with what they held afterwards
        self.changed: dict[int, Tensor] = {}
        # position of an output -> position of the input that it is
        self.handed_through: dict[int, int] = {}

    def finish(self, result: Any) -> None:
        inputs, before = tensors(self.given), tensors((self.args, self.kwargs))
        outputs = tensors(result)
        for position, (tensor, old) in enumerate(zip(inputs, before, strict=True)):
            if not same(tensor, old):
                self.changed[position] = tensor.detach().clone()
        for number, output in enumerate(outputs):
            for position, tensor in enumerate(inputs):
                if output is tensor:
                    self.handed_through.setdefault(number, position)
        self.result = replaced(result, cloned())
        self.finished = True
        self.given = None


def record(model: nn.Module, run: Callable[[Any], Any]) -> list[Recorded]:
    """All calls of one forward, in the order in which they begin."""
    calls: list[Recorded] = []
    stack: list[Recorded] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        with torch.no_grad(), torch.inference_mode(False):
            pass
        call = Recorded(module, args, kwargs)
        if stack:
            stack[-1].children.append(call)
        stack.append(call)
        calls.append(call)

    def after(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        stack.pop().finish(result)

    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    try:
        run(model)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def answer(call: Recorded, data: bool = True, repeats: int = 3) -> Answer:
    """The edges of the level of one recorded call."""
    gradient = Replay(call, grad=True).gradient_edges()
    if not data:
        return Answer(gradient, set())
    plain = Replay(call, grad=False)
    found: set[Edge] = set()
    for source in plain.sources:
        for repeat in range(repeats):
            changed = Replay(call, grad=False, disturbed=source, seed=repeat)
            found.update((source, target) for target in plain.differences(changed))
    return Answer(gradient, found - gradient)


class Replay:
    """One run of a call by itself, with stubs for its children."""

    def __init__(self, call: Recorded, grad: bool, disturbed: str = "", seed: int = 0) -> None:
        self.call = call
        self.sources: list[str] = []
        self.targets: list[tuple[str, list[Tensor], bool]] = []
        self._grad = grad
        self._disturbed = disturbed
        self._generator = torch.Generator().manual_seed(seed)
        self._leaves: dict[int, str] = {}
        self._kept: list[Tensor] = []
        self._next = 0
        args, kwargs = self._inputs()
        with self._alone(), torch.set_grad_enabled(call.grad and grad):
            result = call.module.forward(*args, **kwargs)
            for number, tensor in enumerate(tensors(result)):
                self.targets.append((f"out{number}", [tensor], torch.is_grad_enabled()))
        assert self._next == len(call.children), "the replay called other children"

    def gradient_edges(self) -> set[Edge]:
        return {
            (self._leaves[leaf], target)
            for target, found, enabled in self.targets
            if enabled
            for leaf in leaves_behind(found)
            if leaf in self._leaves
        }

    def differences(self, other: Replay) -> set[str]:
        """The targets whose tensors differ between two runs of the same call."""
        return {
            target
            for (target, mine, _), (_, theirs, _) in zip(self.targets, other.targets, strict=False)
            if len(mine) != len(theirs) or not all(map(same, mine, theirs))
        }

    def _inputs(self) -> tuple[Any, Any]:
        given = tensors((self.call.args, self.call.kwargs))
        fresh: list[list[Tensor]] = []
        where: dict[int, list[Tensor]] = {}
        for position, tensor in enumerate(given):
            # One object at several positions is a single tensor that stems from all of them.
            group = where.setdefault(id(tensor), [])
            group.append(self._source(f"in{position}", tensor, self.call.grad))
            fresh.append(group)
        joined = {key: group[0] if len(group) == 1 else mean(group) for key, group in where.items()}
        return replaced((self.call.args, self.call.kwargs), lambda tensor: joined[id(tensor)])

    def _source(self, name: str, recorded: Tensor, grad: bool) -> Tensor:
        """A tensor with the recorded values that is known as a source."""
        if name not in self.sources:
            self.sources.append(name)
        tensor = recorded.detach().clone()
        if name == self._disturbed:
            tensor = disturbed(tensor, self._generator)
        if self._grad and grad and (tensor.is_floating_point() or tensor.is_complex()):
            leaf = tensor.requires_grad_()
            self._leaves[id(leaf)] = name
            self._kept.append(leaf)
            with torch.enable_grad():
                return leaf.clone()
        return tensor

    def _stub(self, child: Recorded, name: str, args: Any, kwargs: Any) -> Any:
        grad = torch.is_grad_enabled()
        given = tensors((args, kwargs))
        # clones, because in-place operations may change them later
        self.targets.append((name, [tensor.clone() for tensor in given], grad))
        if not child.finished:
            raise RuntimeError("the recorded call had raised")
        written: dict[int, Tensor] = {}
        through = {position: number for number, position in child.handed_through.items()}
        recorded = tensors(child.result)
        for position in {*child.changed, *through}:
            values = child.changed.get(position)
            if values is None:
                values = recorded[through[position]]
            with torch.set_grad_enabled(grad):
                overwrite(given[position], self._source(name, values, grad))
            written[position] = given[position]
        made: dict[int, Tensor] = {}
        numbers = iter(range(len(recorded)))

        def output(tensor: Tensor) -> Tensor:
            position = child.handed_through.get(next(numbers))
            if position is not None:
                return written[position]
            if id(tensor) not in made:
                made[id(tensor)] = self._source(name, tensor, grad)
            return made[id(tensor)]

        if not recorded and name not in self.sources:
            self.sources.append(name)
        return replaced(child.result, output)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        call, original = self.call, nn.Module.__call__

        def dispatch(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._next < len(call.children) and call.children[self._next].module is module:
                name = f"#{self._next}"
                self._next += 1
                return self._stub(call.children[self._next - 1], name, args, kwargs)
            return original(module, *args, **kwargs)

        buffers = {name: buffer.detach().clone() for name, buffer in call.module.named_buffers()}
        training = call.module.training
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(call.random)
            write_buffers(call.module, call.buffers)
            call.module.training = call.training
            nn.Module.__call__ = dispatch  # type: ignore[method-assign]
            try:
                yield
            finally:
                nn.Module.__call__ = original  # type: ignore[method-assign]
                call.module.training = training
                write_buffers(call.module, buffers)


def leaves_behind(found: list[Tensor]) -> set[int]:
    """Ids of the leaves that the graph of these tensors leads back to."""
    stack = [tensor.grad_fn for tensor in found if tensor.grad_fn is not None]
    leaves = {id(tensor) for tensor in found if tensor.is_leaf and tensor.requires_grad}
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node.name() == "torch::autograd::NotImplemented":
            continue
        if hasattr(node, "variable"):
            leaves.add(id(node.variable))
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                stack.append(before)
    return leaves


def overwrite(target: Tensor, source: Tensor) -> None:
    """Give `target`, and all views of it, the values and the history of `source`, and none other."""
    if not target._is_view():
        target.detach_()
    target.copy_(source)


def disturbed(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Other values of the same kind."""
    if tensor.is_floating_point() or tensor.is_complex():
        noise = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
        return tensor + noise * (tensor.abs().float().nan_to_num(posinf=1).mean() + 0.1)
    if tensor.dtype == torch.bool:
        return ~tensor
    if tensor.numel() < 2:
        return tensor
    return tensor.flatten()[torch.randperm(tensor.numel(), generator=generator)].view(tensor.shape)


def same(a: Tensor, b: Tensor) -> bool:
    """Bitwise equal, NaN equal to itself."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    with torch.no_grad():
        equal = a == b
        if a.is_floating_point() or a.is_complex():
            equal = equal | (a.isnan() & b.isnan())
        return bool(equal.all())


def mean(group: list[Tensor]) -> Tensor:
    total = group[0]
    if not (total.is_floating_point() or total.is_complex()):
        return next((t for t in group if not same(t, total)), total)
    with torch.enable_grad():
        for tensor in group[1:]:
            total = total + tensor
        return total / len(group)


def write_buffers(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if name in values and buffer.shape == values[name].shape:
                buffer.copy_(values[name])


def cloned() -> Replace:
    """Clones tensors; the same object gives the same clone."""
    made: dict[int, tuple[Tensor, Tensor]] = {}

    def replace(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = (tensor, tensor.detach().clone())
        return made[id(tensor)][1]

    return replace


def tensors(value: Any) -> list[Tensor]:
    """The tensors in nested containers, in the order of ports."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    replaced(value, note)
    return found


def replaced(value: Any, replace: Replace) -> Any:
    """`value` with each tensor replaced; containers are new, all else is the same."""
    if isinstance(value, Tensor):
        return replace(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[replaced(item, replace) for item in value])
    if isinstance(value, (tuple, list, deque)):
        return type(value)(replaced(item, replace) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, OrderedDict):  # a ModelOutput: None entries are left out
            return type(value)(**{key: replaced(item, replace) for key, item in value.items()})
        result = copy.copy(value)
        for entry in dataclasses.fields(value):
            object.__setattr__(result, entry.name, replaced(getattr(value, entry.name), replace))
        return result
    if isinstance(value, dict):
        return type(value)((key, replaced(item, replace)) for key, item in value.items())
    return value
