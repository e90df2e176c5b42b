"""A model and a function that makes its loss in; whether watching changes its training by a bit out."""

from __future__ import annotations

import copy
import hashlib
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .arguments import require_whole
from .capture.leaves import result_leaves
from .capture.private import beneath, quiet
from .schema import Fault
from .writer import ExplorerWriter

Trace = list[tuple[int, str, bytes]]
"""What a training did, in order: step, name, digest of the value."""

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Difference(NamedTuple):
    """The first thing that two trainings do not have in common."""

    step: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} at step {self.step}"


@dataclass(frozen=True)
class Report:
    """What `verify` found.

    `verdict`: "identical": everything compared is bitwise the same with and without watching.
    "different": `difference` is the first thing that is not. "not deterministic": two trainings without
    watching already differ, first in `difference`, so nothing can be said.
    `compared` counts values (tensors, random states) per training, `recorded` the steps that the watch
    wrote, `faults` what it could not record.
    """

    verdict: Literal["identical", "different", "not deterministic"]
    steps: int
    compared: int
    recorded: int
    difference: Difference | None = None
    faults: list[Fault] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        return self.verdict == "identical"

    def __str__(self) -> str:
        if self.verdict == "identical":
            text = (
                f"identical: {self.compared} values over {self.steps} steps, {self.recorded} of them recorded"
            )
        elif self.verdict == "different":
            text = f"different: watching changes {self.difference}"
        else:
            text = (
                f"not deterministic: two trainings without watching differ in {self.difference}. Try "
                "torch.use_deterministic_algorithms(True), and a batch_fn that depends on its arguments alone"
            )
        return text + "".join(
            f"\nnot recorded: {f.place} of {f.path or 'the model'}: {f.error}" for f in self.faults
        )


def verify(
    model: nn.Module,
    batch_fn: Callable[[nn.Module, int], Any],
    *,
    steps: int = 3,
    optimizer: MakeOptimizer | None = None,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Train copies of `model` with and without watching, and compare them bit by bit.

        verify(model, lambda model, step: criterion(model(inputs[step]), labels[step]))

    batch_fn: function(model, step) that runs the forward and returns the loss, a tensor with one element;
        or a pair of the loss and anything else that is to be compared. It is called with copies of
        the model; what it does must depend on nothing but its arguments and the global random numbers.
    steps: how many training steps.
    optimizer: makes the optimizer from parameters. Default: SGD with momentum.
    seed: of the random numbers that every training starts from, -2**63 to 2**64 - 1 as torch takes it.
    options: those of `watch`. Default: log_freq=1, so that each step is recorded.

    Compared at every step: outputs of the model, the loss, gradients, parameters, buffers, the state of the
    optimizer and of the random numbers of torch, numpy and Python; at the end, the attributes of all
    modules. `model`, the random numbers and all else are left as they are. ValueError names a wrong argument.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"verify: model={model!r} is not a torch.nn.Module")
    if not callable(batch_fn):
        raise ValueError(f"verify: batch_fn={batch_fn!r} is not a function(model, step)")
    require_whole("verify", "steps", steps, 1)
    require_whole("verify", "seed", seed, -(2**63), 2**64 - 1)
    if optimizer is not None and not callable(optimizer):
        raise ValueError(f"verify: optimizer={optimizer!r} is not a function(parameters) -> Optimizer")
    make = optimizer or _sgd
    options = {"log_freq": 1, **options}
    with _random_numbers_kept(), torch.enable_grad(), tempfile.TemporaryDirectory() as folder:
        plain, again, watched = (
            _Training(copy.deepcopy(model), batch_fn, make, steps, seed) for _ in range(3)
        )
        plain.run()
        again.run()
        with ExplorerWriter(folder) as writer:
            watch = writer.watch(watched.model, **options)
            watched.run()
            writer.unwatch(watched.model)
            recorded, faults = watch.recorded, watch.faults.list()
    difference = _first_difference(plain.trace, again.trace)
    if difference is not None:
        return Report("not deterministic", steps, len(plain.trace), recorded, difference, faults)
    difference = _first_difference(plain.trace, watched.trace)
    wanted, left = _attributes(plain.model), _attributes(watched.model)
    if difference is None and wanted != left:
        path = next(path for path in (*wanted, *left) if wanted.get(path) != left.get(path))
        difference = Difference(steps, f"the attributes of module {path!r}")
    verdict: Literal["identical", "different"] = "identical" if difference is None else "different"
    return Report(verdict, steps, len(plain.trace), recorded, difference, faults)


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


class _Training:
    """Trains a model and writes down digests of what it does: (step, name, digest)."""

    def __init__(
        self,
        model: nn.Module,
        batch_fn: Callable[[nn.Module, int], Any],
        make: MakeOptimizer,
        steps: int,
        seed: int,
    ) -> None:
        self.model = model
        self.trace: Trace = []
        self._batch_fn = batch_fn
        self._make = make
        self._steps = steps
        self._seed = seed
        self._step = 0

    def run(self) -> None:
        torch.manual_seed(self._seed)
        np.random.seed(self._seed % 2**32)
        random.seed(self._seed)
        # A hook of the user's kind, in watched and plain trainings alike.
        handle = self.model.register_forward_hook(self._returned, always_call=False)
        # Lazy modules have their parameters after the first forward only.
        lazy = any(nn.parameter.is_lazy(parameter) for parameter in self.model.parameters())
        optimizer = None if lazy else self._optimizer()
        try:
            for step in range(self._steps):
                self._step = step
                loss = self._forward()
                if loss.requires_grad:
                    loss.backward()  # type: ignore[no-untyped-call]
                optimizer = optimizer or self._optimizer()
                self._note_all("gradient of", ((n, p.grad) for n, p in self.model.named_parameters()))
                if optimizer is not None:
                    optimizer.step()
                self._note_all("parameter", self.model.named_parameters())
                self._note_all("buffer", self.model.named_buffers())
                for name, state in _random_states():
                    self._note(f"random numbers of {name}", state)
                if optimizer is not None:
                    self._note_all("optimizer state", _leaves("", optimizer.state_dict()))
                    optimizer.zero_grad()
        finally:
            handle.remove()

    def _optimizer(self) -> torch.optim.Optimizer | None:
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        made = self._make(trained) if trained else None
        if trained and not isinstance(made, torch.optim.Optimizer):
            raise ValueError(f"verify: optimizer returned {made!r}, not a torch.optim.Optimizer")
        return made

    def _forward(self) -> Tensor:
        result = self._batch_fn(self.model, self._step)
        loss, *rest = result if isinstance(result, tuple) and result else (result,)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            what = (
                f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            )
            raise ValueError(f"verify: batch_fn returned {what}, not a loss of one element")
        self._note("the loss", loss)
        self._note_all("result", _leaves("", rest))
        return loss

    def _returned(self, module: nn.Module, args: Any, result: Any) -> None:
        self._note("type of the output", type(result).__qualname__)
        self._note_all("output", ((leaf.name, leaf.tensor) for leaf in result_leaves(result).tensors))

    def _note_all(self, kind: str, values: Iterable[tuple[str, Any]]) -> None:
        for name, value in values:
            self._note(f"{kind} {name}".strip(), value)

    def _note(self, name: str, value: Any) -> None:
        self.trace.append((self._step, name, _digest(value)))


def _first_difference(one: Trace, other: Trace) -> Difference | None:
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            return Difference(mine[0], mine[1])
    if len(one) != len(other):
        longer = one if len(one) > len(other) else other
        step, name, _ = longer[min(len(one), len(other))]
        return Difference(step, name)
    return None


def _digest(value: Any) -> bytes:
    """A short hash of type, shape and bits of a tensor, or of the text of anything else."""
    seen = hashlib.blake2b(digest_size=16)
    if isinstance(value, Tensor):
        seen.update(f"{type(value).__qualname__} {value.dtype} {value.requires_grad}".encode())
        with quiet():
            for part in _plain_parts(beneath(value)):
                seen.update(f"{tuple(part.shape)}".encode())
                flat = part.detach().cpu().contiguous().reshape(-1)
                seen.update(flat.view(torch.uint8).numpy().tobytes())
    elif isinstance(value, (tuple, list)):
        for item in value:
            seen.update(_digest(item))
    elif isinstance(value, np.ndarray):
        seen.update(value.tobytes())
    else:
        seen.update(repr(value).encode())
    return seen.digest()


def _plain_parts(tensor: Tensor) -> Iterator[Tensor]:
    """Strided tensors that together hold the bits of any tensor."""
    to_local = getattr(tensor, "to_local", None)
    if to_local is not None:
        yield from _plain_parts(to_local())
    elif is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from _plain_parts(getattr(tensor, name))
    elif tensor.is_nested:
        for part in tensor.unbind():
            yield from _plain_parts(part)
    elif tensor.layout == torch.sparse_coo:
        yield tensor._indices()
        yield tensor._values()
    elif tensor.layout != torch.strided:
        yield tensor.to_dense()
    elif tensor.is_quantized:
        yield tensor.int_repr()
    elif nn.parameter.is_lazy(tensor) or tensor.device.type == "meta":
        return
    else:
        yield tensor.resolve_conj().resolve_neg()


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}".lstrip("."), item)
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            yield from _leaves(f"{name}[{position}]", item)
    else:
        yield name, value


def _attributes(model: nn.Module) -> dict[str, list[tuple[str, str]]]:
    """Names of the attributes of each module, with the contents of its hook dictionaries."""
    return {
        path: [
            (name, re.sub("0x[0-9a-f]+", "", repr(value)) if "hooks" in name else "")
            for name, value in vars(module).items()
        ]
        for path, module in model.named_modules()
    }


def _random_states() -> Iterator[tuple[str, Any]]:
    yield "torch", torch.get_rng_state()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for number, state in enumerate(torch.cuda.get_rng_state_all()):
            yield f"torch on cuda:{number}", state
    if torch.backends.mps.is_available():
        yield "torch on mps", torch.mps.get_rng_state()
    yield "numpy", np.random.get_state()
    yield "Python", random.getstate()


@contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """Puts every global stream of random numbers back where it was."""
    cuda = None
    with_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    cpu, of_numpy, of_python = torch.get_rng_state(), np.random.get_state(), random.getstate()
    if with_cuda:
        cuda = torch.cuda.get_rng_state_all()
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if mps is not None:
            torch.mps.set_rng_state(mps)
        np.random.set_state(of_numpy)
        random.setstate(of_python)
