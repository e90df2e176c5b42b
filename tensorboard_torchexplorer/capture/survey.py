"""A model in, all its modules with their paths and parameters out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod

from ..schema import Module, Parameter
from .by_module import ByModule
from .leaves import SEQUENCES, items_of
from .private import without_torch_function
from .sharding import class_before_sharding, flat_parts
from .wrappers import held_as

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
PLAIN_CONTAINERS = (*SEQUENCES, dict)
MAX_VISITS = 1000
"""Of one attribute: what holds more is a data set, not a list of layers."""
_OWN_ATTRIBUTES = frozenset(vars(nn.Module()))
UNREGISTERED = "unregistered: not a submodule, the optimizer can't see it"


@dataclass(frozen=True)
class Survey:
    """The modules of a model at one moment.

    `paths` maps each module object to its path in `named_modules()` (the first, if it is reachable by
    several), followed by those that are held otherwise, as by plain lists; `registered` are the former.
    `flags` and `containers` are by path, see `schema.Module`. `owners` maps the id of each parameter to
    `path.name` of its first owner, `parts` modules to what `sharding.flat_parts` says of them.
    """

    paths: ByModule[str]
    registered: ByModule[str] = field(default_factory=ByModule)
    flags: dict[str, list[str]] = field(default_factory=dict)
    containers: dict[str, str] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    parts: ByModule[tuple[int, int]] = field(default_factory=ByModule)

    def entry(self, module: nn.Module, excluded: bool) -> Module:
        """What the graph says of a module."""
        path = self.paths[module]
        name, marks = _class_name(module)
        marks += self.flags.get(path, [])
        if excluded:
            marks.append("excluded")
        container = self.containers.get(path, "")
        return Module(path, name, split_extra(_extra_repr(module)), self.parameters(module), marks, container)

    def parameters(self, module: nn.Module) -> list[Parameter]:
        """The immediate parameters of a module, in order, without those that are None."""
        path = self.paths[module]
        found = []
        with without_torch_function():
            for name, value in own_parameters(module):
                full = f"{path}.{name}" if path else name
                owner = self.owners.get(id(value), full)
                shape = None if is_lazy(value) else list(value.shape)
                dtype = str(value.dtype).removeprefix("torch.")
                shared = "" if owner == full else owner
                found.append(Parameter(name, shape, dtype, value.requires_grad, shared))
        return found


def own_parameters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The immediate parameters of a module that are not None."""
    for name, value in module._parameters.items():
        if value is not None:
            yield name, value


def survey(model: nn.Module, known: Survey | None = None) -> Survey:
    """Walk the modules of `model`. Reads attributes only, calls nothing of the user's but
    `named_modules`. Where the registered modules are still those of `known`, that is the answer: a step
    is logged many times, and the search for hidden modules takes longer than all else."""
    wrappers: dict[str, nn.Module] = {}
    registered = ByModule((module, path) for path, module in _named(model, wrappers))
    parts = flat_parts(wrappers.values())
    if known is not None and known.registered == registered and known.parts == parts:
        return known
    found = Survey(ByModule(registered.items()), registered, parts=parts)
    todo = deque(found.paths.items())
    while todo:
        module, path = todo.popleft()
        if isinstance(module, CONTAINERS):
            name = type(module).__name__
            for child in module._modules:
                found.containers[f"{path}.{child}" if path else child] = name
        for name, hidden in _hidden_modules(module):
            if hidden not in found.paths and not isinstance(hidden, torch.jit.ScriptModule):
                start = f"{path}.{name}" if path else name
                for below, deeper in _named(hidden, {}):
                    if deeper not in found.paths:
                        full = f"{start}.{below}" if below else start
                        found.paths[deeper] = full
                        found.flags[full] = [UNREGISTERED]
                        todo.append((deeper, full))
    for module, path in found.paths.items():
        for name, value in own_parameters(module):
            found.owners.setdefault(id(value), f"{path}.{name}" if path else name)
    return found


def _named(model: nn.Module, wrappers: dict[str, nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """The modules of `model` by path, without what `torch.compile` and others wrap around some, so that their
    paths are those of the model as it was written. What is left out goes into `wrappers`. Calls of a wrapper
    are not seen, only those of the module inside; that of `torch.compile` shares its hook dictionaries."""
    for path, module in model.named_modules():
        if held_as(module):
            wrappers[path] = module
        else:
            yield _unwrapped(path, wrappers) if wrappers else path, module


def _unwrapped(path: str, wrappers: dict[str, nn.Module]) -> str:
    names = path.split(".")
    kept = []
    for position, name in enumerate(names):
        wrapper = wrappers.get(".".join(names[:position]))
        if wrapper is None or name != held_as(wrapper):
            kept.append(name)
    return ".".join(kept)


def _hidden_modules(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules among a module's attributes, and in lists, tuples, dicts and deques there and in these, that it
    does not register; without those that it is a part of itself."""
    if isinstance(module, torch.jit.ScriptModule):
        return
    for name, value in vars(module).items():
        if name in _OWN_ATTRIBUTES:
            continue
        todo: deque[tuple[tuple[Any, ...], Any]] = deque([((), value)])
        visits = 0
        while todo and visits < MAX_VISITS:
            keys, value = todo.popleft()
            visits += 1
            if isinstance(value, nn.Module):
                if "_modules" not in vars(value):
                    continue  # one that was never initialised, and can't be called as a module
                if all(below is not module for below in value.modules()):
                    # Only now: to write out a key, a tensor say, may take long or run code of the user.
                    yield "".join([name, *(f"[{key!r}]".replace(".", "_") for key in keys)]), value
            elif isinstance(value, PLAIN_CONTAINERS):
                room = MAX_VISITS - len(todo)
                todo += [((*keys, key), item) for key, item in islice(items_of(value), room)]


def _class_name(module: nn.Module) -> tuple[str, list[str]]:
    """The class as the user wrote it, and what has been done to it since."""
    if isinstance(module, torch.jit.ScriptModule):
        return str(module.original_name), ["scripted"]
    if parametrize.is_parametrized(module):
        steps: Any = module.parametrizations
        marks = [
            f"parametrized: {name} by {', '.join(type(step).__name__.lstrip('_') for step in chain)}"
            for name, chain in steps.items()
        ]
        return parametrize.type_before_parametrizations(module).__name__, marks
    return class_before_sharding(module).__name__, [type(hook).__name__ for hook in _makers(module)]


def _extra_repr(module: nn.Module) -> str:
    """`extra_repr()`, or what is wrong with it. Where it looks at a parametrized weight, no parametrization
    runs: those may draw random numbers or count their runs."""
    try:
        text = _without_parametrizations(module).extra_repr()
    except Exception as error:
        return f"extra_repr() raised {type(error).__name__}"
    return text if isinstance(text, str) else f"extra_repr() gave {type(text).__name__}"


def _without_parametrizations(module: nn.Module) -> nn.Module:
    """The module, or one like it that holds the original tensors in the place of parametrized ones."""
    if isinstance(module, torch.jit.ScriptModule) or not parametrize.is_parametrized(module):
        return module
    plain: nn.Module = object.__new__(parametrize.type_before_parametrizations(module))
    plain.__dict__.update(module.__dict__)
    chains: Any = module.parametrizations
    originals = {name: next(iter(chain._parameters.values()), None) for name, chain in chains.items()}
    plain.__dict__["_parameters"] = {**module._parameters, **originals}
    return plain


def _makers(module: nn.Module) -> list[Any]:
    """The hooks that make a weight before each call: of torch's old `weight_norm` and `spectral_norm`, and of
    its pruning."""
    hooks: Iterable[Any] = module._forward_pre_hooks.values()
    return [
        hook
        for hook in hooks
        if type(hook).__name__ in ("WeightNorm", "SpectralNorm") or isinstance(hook, BasePruningMethod)
    ]


def weights_in_effect(module: nn.Module) -> list[tuple[str, Tensor]]:
    """What these hooks have made for the call that begins: attributes, no parameters."""
    found = []
    for hook in _makers(module):
        name = hook._tensor_name if isinstance(hook, BasePruningMethod) else hook.name
        found.append((name, getattr(module, name, None)))
    return [(name, weight) for name, weight in found if isinstance(weight, Tensor)]


def split_extra(text: str) -> list[list[str]]:
    """`extra_repr()` split on commas outside of brackets and quotes: `key=value` gives [key, value],
    anything else ["", value]."""
    parts, depth, quote, current = [], 0, "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth = max(0, depth - 1)
        elif character in ",\n" and depth == 0:
            parts.append(current)
            current = ""
            continue
        current += character
    parts.append(current)
    rows = []
    for part in (part.strip() for part in parts):
        key, equals, value = part.partition("=")
        if equals and key.strip().isidentifier() and not value.startswith("="):
            rows.append([key.strip(), value.strip()])
        elif part:
            rows.append(["", part])
    return rows
