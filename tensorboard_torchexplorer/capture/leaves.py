"""Arguments and results of a call in, named tensor leaves and short texts of everything else out."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MemberDescriptorType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .private import is_transformed

MAX_DEPTH = 8
MAX_VISITS = 4096
MAX_TEXT = 80


class Leaf(NamedTuple):
    """A tensor and how Python would spell the way to it: `x`, `hidden_states[1]`, `out.logits`."""

    name: str
    tensor: Tensor


class Leaves:
    """The tensors of a nest of containers, in order, and short texts of what is not a tensor.

    Opens tuples, named tuples, lists, deques, mappings and dataclasses, down to `MAX_DEPTH` levels
    and `MAX_VISITS` values. Generators and objects of other classes stay closed: reading them could
    run the user's code or use them up. For the same reason it is the base class that is asked for the
    items, and no property for a field. Mappings that are no dict can be read by their own methods only;
    what can't be read stays closed, too.
    """

    __slots__ = ("_visits", "others", "tensors")

    def __init__(self) -> None:
        self.tensors: list[Leaf] = []
        self.others: list[tuple[str, str]] = []
        self._visits = 0

    def add(self, name: str, value: Any, depth: int = 0) -> None:
        if isinstance(value, Tensor):
            self.tensors.append(Leaf(name, value))
            return
        if value is None:
            return
        self._visits += 1
        if depth >= MAX_DEPTH or self._visits > MAX_VISITS:
            return
        try:
            self._open(name, value, depth)
        except Exception:  # of the user's own class
            self._describe(name, value)

    def _open(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, SEQUENCES):
            fields = getattr(type(value), "_fields", None)
            items = list(items_of(value))
            if isinstance(fields, tuple) and len(fields) == len(items):
                for key, (_, item) in zip(fields, items, strict=True):
                    self.add(f"{name}.{key}" if name else str(key), item, depth + 1)
            else:
                before = len(self.tensors)
                for position, item in items:
                    if isinstance(item, (int, float, str, bool)):
                        continue
                    self.add(f"{name}[{position}]", item, depth + 1)
                if len(self.tensors) == before:
                    self._describe(name, value)
        elif isinstance(value, dict):
            for key, item in list(items_of(value)):
                self.add(_member(name, key), item, depth + 1)
        elif isinstance(value, Mapping):
            for key, item in [(key, value[key]) for key in value.keys()]:  # noqa: SIM118  as it says itself
                self.add(_member(name, key), item, depth + 1)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for entry in dataclasses.fields(value):
                self.add(_member(name, entry.name), _field(value, entry.name), depth + 1)
        else:
            self._describe(name, value)

    def _describe(self, name: str, value: Any) -> None:
        if len(self.others) < 64:
            self.others.append((name, describe(value)))


SEQUENCES = (list, tuple, deque)


def items_of(container: Any) -> Iterator[tuple[Any, Any]]:
    """The items of a list, tuple, deque or dict by position or key, whatever its class does to iterate."""
    if isinstance(container, OrderedDict):
        return iter(OrderedDict.items(container))
    if isinstance(container, dict):
        return iter(dict.items(container))
    base = next(kind for kind in SEQUENCES if isinstance(container, kind))
    return enumerate(base.__iter__(container))


def _field(value: Any, name: str) -> Any:
    """A field of a dataclass as it is stored; None where a property of the user's stands in its place."""
    own = getattr(value, "__dict__", {})
    if name in own:
        return own[name]
    slot = getattr(type(value), name, None)
    return getattr(value, name, None) if isinstance(slot, MemberDescriptorType) else None


def with_sources(value: Any, made: dict[int, Tensor] | None = None) -> Any:
    """`value` with a copy that requires grad in the place of each floating point tensor that does not:
    in tuples, lists and dicts of exactly these types, one copy per tensor. A copy and not a detached
    alias, since a forward may write to its input. Tensors under a transform of torch.func stay: it lets none
    of them require a gradient."""
    made = {} if made is None else made
    if isinstance(value, Tensor):
        if value.requires_grad or is_transformed(value):
            return value
        if not (value.is_floating_point() or value.is_complex()):
            return value
        if id(value) not in made:
            # Not a leaf: those may not be written to.
            made[id(value)] = value.detach().requires_grad_().clone()
        return made[id(value)]
    if type(value) in (tuple, list):
        return type(value)(with_sources(item, made) for item in value)
    if type(value) is dict:
        return {key: with_sources(item, made) for key, item in value.items()}
    return value


def _member(name: str, key: Any) -> str:
    if not name:
        return str(key)
    return f"{name}.{key}" if isinstance(key, str) and key.isidentifier() else f"{name}[{key!r}]"


def describe(value: Any) -> str:
    """A short text of a value that is not a tensor. Only values of plain types are shown; of others
    the class name, since their `repr` is the user's code and may be long or slow."""
    if isinstance(value, str):
        text = repr(value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…")
    elif isinstance(value, (bool, int, float, complex, torch.dtype, torch.device, torch.Size)):
        text = repr(value)
    elif isinstance(value, SEQUENCES):
        items = list(items_of(value))
        shown = ", ".join(describe(item) for _, item in items[:4])
        more = f", … {len(items)} items" if len(items) > 4 else ""
        text = f"[{shown}{more}]"
    elif type(value).__module__ == "numpy" and hasattr(value, "shape"):
        text = f"{type(value).__name__} {tuple(value.shape)} {value.dtype}"
    else:
        text = type(value).__name__
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


@functools.lru_cache(maxsize=4096)
def _positional_names(forward: Callable[..., Any]) -> tuple[tuple[str, ...], str]:
    """Names of the positional parameters of a plain function, and that of `*args` ("" if none)."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):  # built in, or a signature that inspect can't read
        return (), "args"
    names = [
        p.name
        for p in parameters
        if p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    star = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "")
    return tuple(names), star


def forward_of(module: torch.nn.Module) -> Any:
    """The `forward` of the module's class as it stands there: on a ScriptModule's class it is a descriptor
    that can't be read."""
    # What inspect.getattr_static does of a class, at a tenth of its cost.
    for base in type(module).__mro__:
        if "forward" in base.__dict__:
            return base.__dict__["forward"]
    return None


def _names_of(module: torch.nn.Module) -> tuple[tuple[str, ...], str]:
    """The names of the positional parameters of the module's `forward`, and that of `*args`."""
    forward = forward_of(module)
    if isinstance(forward, FunctionType):
        names, star = _positional_names(forward)
        return names[1:], star  # without self
    if isinstance(forward, staticmethod):
        return _positional_names(forward.__func__)
    if isinstance(forward, classmethod):
        names, star = _positional_names(forward.__func__)
    elif isinstance(forward, functools.partialmethod):  # makes a new function at each look
        names, star = _positional_names.__wrapped__(type(module).forward)
    else:
        return (), "args"
    return names[1:], star


def argument_leaves(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Leaves:
    """The leaves of a call's arguments, positional ones named by the signature of `forward`."""
    leaves = Leaves()
    if args:
        names, star = _names_of(module)
        for position, value in enumerate(args):
            beyond = position - len(names)
            leaves.add(names[position] if beyond < 0 else f"{star or 'args'}[{beyond}]", value)
    for key, value in kwargs.items():
        leaves.add(key, value)
    return leaves


def result_leaves(result: Any) -> Leaves:
    """The leaves of a call's result. A lone tensor is named `output`, items of a tuple `[0]`, `[1]`,
    entries of a mapping, named tuple or dataclass by their keys."""
    leaves = Leaves()
    leaves.add("output" if isinstance(result, Tensor) else "", result)
    return leaves
