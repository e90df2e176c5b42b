"""Train a model and take down everything that watching it must leave alone.

`train(build, watch)` runs a few steps and returns `Observed`: for each of `PROPERTIES` a list of facts, the
same for two runs exactly if nothing was changed by a bit. Whatever raises gives the exception as its fact, so
that a model that can't be pickled must fail to be pickled in the same way when it is watched.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import io
import pickle
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

PROPERTIES = (
    "loss",
    "outputs",  # of every module call: types, structure, values
    "objects",  # forward got the caller's arguments, the caller got forward's result
    "gradients",
    "weights",
    "buffers",
    "optimizer",
    "chance",  # random states of torch, NumPy, Python
    "names",  # state_dict, named_modules, named_parameters, named_buffers
    "hooks",  # every hook dictionary, between steps and at the end
    "attributes",  # __dict__ of every module, once unwatched
    "deepcopy",
    "pickle",
    "save",  # torch.save
    "average",  # AveragedModel
)

SLOT = "_compiled_call_impl"
Build = Callable[[], tuple[nn.Module, Callable[[Any], Any]]]


@dataclass
class Observed:
    """Facts by property; `files` are pickles by name, `trained` says whether there was a backward."""

    facts: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in PROPERTIES})
    files: dict[str, bytes] = field(default_factory=dict)
    trained: bool = False

    def differences(self, other: Observed) -> dict[str, str]:
        """By property, the first fact that is not the same."""
        found = {}
        for name in PROPERTIES:
            mine, theirs = self.facts[name], other.facts[name]
            for at, (one, two) in enumerate(zip(mine, theirs, strict=False)):
                if one != two:
                    found[name] = f"fact {at}: {one!r:.300} is not {two!r:.300}"
                    break
            else:
                if len(mine) != len(theirs):
                    found[name] = f"{len(mine)} facts, not {len(theirs)}"
        return found


def train(
    build: Build,
    watch: Callable[[nn.Module], Any] | None = None,
    unwatch: Callable[[], Any] = lambda: None,
    *,
    steps: int = 3,
    copied: bool = True,
    after: Callable[[nn.Module, Callable[[Any], Any]], Any] = lambda model, run: None,
) -> Observed:
    """`steps` steps of stochastic gradient descent. `watch(model)` is called before the first, `after(model,
    run)` behind the last, then `unwatch()`. Without `copied` nothing is known of copies."""
    seen = Observed()
    fact = seen.facts
    random.seed(0)
    np.random.seed(0)
    model, run = build()
    if watch is not None:
        watch(model)
    if copied:
        copies(seen, model, "before")
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trainable or [torch.zeros(1)], lr=0.05, momentum=0.9)
    average = attempt(lambda: AveragedModel(model)) if copied else None
    for step in range(steps):
        with following_calls(model, fact["outputs"], fact["objects"]):
            loss = run(model)
        if step == 1 and copied:
            copies(seen, model, "between forward and backward")
        fact["loss"].append(fingerprint(loss))
        if isinstance(loss, Tensor) and loss.requires_grad:
            seen.trained = True
            fact["gradients"].append(attempt(loss.backward))
            gradients = [(name, fingerprint(p.grad)) for name, p in model.named_parameters()]
            fact["gradients"].append(gradients)
            optimizer.step()
            optimizer.zero_grad()
        fact["weights"].append([(name, fingerprint(p)) for name, p in model.named_parameters()])
        fact["buffers"].append([(name, fingerprint(b)) for name, b in model.named_buffers()])
        fact["optimizer"].append(fingerprint(optimizer.state_dict()))
        fact["chance"].append(chance())
        fact["names"].append(names(model))
        fact["hooks"].append(hooks(model))
        if isinstance(average, AveragedModel):
            fact["average"].append(attempt(lambda: average.update_parameters(model)))
            fact["average"].append(fingerprint(average.state_dict()))
            fact["average"].append(hooks(average))
        else:
            fact["average"].append(average)
    if copied:
        copies(seen, model, "after")
    after(model, run)
    unwatch()
    fact["hooks"].append(hooks(model))
    fact["names"].append(names(model))
    fact["attributes"].append(attributes(model))
    return seen


def attempt(action: Callable[[], Any]) -> Any:
    """The result, or the type and text of the exception."""
    try:
        return action()
    except Exception as error:
        # Addresses of objects differ between runs.
        return type(error).__name__, str(error).split(" at 0x")[0]


# --- Fingerprints ------------------------------------------------------------------------------------


def fingerprint(value: Any, depth: int = 0) -> Any:
    """A small value that is equal only for values of the same types with the same bits."""
    if isinstance(value, Tensor):
        return type(value).__name__, *tensor_bits(value)
    if depth > 12:
        return type(value).__name__
    if isinstance(value, Mapping):
        items: Any = ((str(key), fingerprint(item, depth + 1)) for key, item in value.items())
        return type(value).__name__, *items
    if isinstance(value, (list, tuple, deque)):
        return type(value).__name__, *(fingerprint(item, depth + 1) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value)]
        return type(value).__name__, *(
            (name, fingerprint(getattr(value, name), depth + 1)) for name in fields
        )
    if isinstance(value, np.ndarray):
        return "ndarray", value.dtype.str, value.shape, value.tobytes()
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return type(value).__name__


def tensor_bits(tensor: Tensor) -> tuple[Any, ...]:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "transformed", tuple(tensor.shape), tensor.dtype
    with torch._C.DisableTorchFunction():
        tensor = tensor.detach()
        if tensor.is_nested:
            return "nested", *(tensor_bits(part) for part in tensor.unbind())
        if tensor.layout == torch.sparse_coo:
            return "sparse", tensor_bits(tensor._indices()), tensor_bits(tensor._values())
        if tensor.layout == torch.sparse_csr:
            parts = tensor.crow_indices(), tensor.col_indices(), tensor.values()
            return "rows", *(tensor_bits(part) for part in parts)
        if tensor.device.type == "meta":
            return "meta", tuple(tensor.shape), tensor.stride(), tensor.dtype
        if tensor.is_quantized:
            return "quantized", tensor.q_scale(), tensor_bits(tensor.int_repr())
        plain = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
        data = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        bits = hashlib.blake2b(data, digest_size=8).hexdigest()
        return tensor.dtype, tuple(tensor.shape), tensor.stride(), bits


def chance() -> tuple[Any, ...]:
    numbers = np.random.get_state(legacy=False)["state"]
    stream = hashlib.blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=8).hexdigest()
    return stream, hash(random.getstate()), numbers["pos"], numbers["key"].tobytes()


def names(model: nn.Module) -> tuple[Any, ...]:
    return (
        list(model.state_dict()),
        [(name, type(module).__name__) for name, module in model.named_modules()],
        [name for name, _ in model.named_parameters()],
        [name for name, _ in model.named_buffers()],
    )


def hooks(model: nn.Module) -> list[Any]:
    """How many hooks of each kind each module has."""
    found: list[Any] = []
    for path, module in model.named_modules():
        kinds = [name for name in vars(module) if name.endswith(("_hooks", "_with_kwargs", "_always_called"))]
        found.append((path, [(name, len(vars(module)[name])) for name in sorted(kinds)]))
    return found


def attributes(model: nn.Module) -> list[Any]:
    """What is set on each module. torch leaves out its slot for compiled calls when it copies a module, but
    classes with a `__getstate__` of their own (torch's RNNs) copy it; None there is what the class says."""
    return [
        (path, sorted(name for name in vars(module) if (name, vars(module)[name]) != (SLOT, None)))
        for path, module in model.named_modules()
    ]


# --- Copies ------------------------------------------------------------------------------------------


def copies(seen: Observed, model: nn.Module, moment: str) -> None:
    """Copies in each way, what is in them, and what loading them gives."""
    seen.facts["deepcopy"].append(attempt(lambda: described(copy.deepcopy(model))))

    def pickled() -> Any:
        seen.files[f"{moment}.pickle"] = pickle.dumps(model)
        return described(pickle.loads(seen.files[f"{moment}.pickle"]))

    def saved() -> Any:
        file = io.BytesIO()
        torch.save(model, file)
        seen.files[f"{moment}.pt"] = file.getvalue()
        return described(torch.load(io.BytesIO(file.getvalue()), weights_only=False))

    seen.facts["pickle"].append(attempt(pickled))
    seen.facts["save"].append(attempt(saved))


def described(model: nn.Module) -> tuple[Any, ...]:
    return fingerprint(model.state_dict()), hooks(model), attributes(model)


# --- Calls -------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Call:
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    same_arguments: bool | None = None
    result: Any = None


@contextmanager
def following_calls(model: nn.Module, outputs: list[Any], objects: list[Any]) -> Iterator[None]:
    """Notes each module call on both sides: in `__call__`, where its caller stands, and in `forward`. By the
    classes, since hooks would switch off fast paths. `outputs` gets what the caller got, `objects` whether
    forward was given the very objects of the caller and the caller that of forward."""
    stack: list[_Call] = []
    original = nn.Module.__call__

    def called(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        call = _Call(self, args, kwargs)
        stack.append(call)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            outputs.append((type(self).__name__, type(error).__name__))
            raise
        finally:
            stack.remove(call)
        outputs.append((type(self).__name__, fingerprint(result)))
        objects.append((type(self).__name__, call.same_arguments, call.result is result))
        return result

    def inside(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def wrapper(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            call = next((c for c in reversed(stack) if c.module is self and c.same_arguments is None), None)
            if call is None:  # `.forward()` called directly, or by a subclass
                return forward(self, *args, **kwargs)
            call.same_arguments = (
                list(kwargs) == list(call.kwargs)
                and len(args) == len(call.args)
                and all(one is two for one, two in zip(args, call.args, strict=True))
                and all(one is two for one, two in zip(kwargs.values(), call.kwargs.values(), strict=True))
            )
            call.result = forward(self, *args, **kwargs)
            return call.result

        return wrapper

    classes = {type(m) for m in model.modules() if not isinstance(m, torch.jit.ScriptModule)}
    # Decided for all before the first is patched: a subclass would else take its base's wrapper.
    own = {kind: kind.__dict__.get("forward") for kind in classes}
    wrappers = {kind: inside(kind.forward) for kind in classes}
    try:
        for kind, wrapper in wrappers.items():
            kind.forward = wrapper
        nn.Module.__call__ = called
        yield
    finally:
        nn.Module.__call__ = original
        for kind, forward in own.items():
            if forward is None:
                del kind.forward
            else:
                kind.forward = forward
