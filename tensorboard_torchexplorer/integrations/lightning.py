"""A Lightning callback: a fit in, its records in the event file of the fit's own TensorBoardLogger out.

    from tensorboard_torchexplorer.integrations.lightning import ExplorerCallback

    trainer = Trainer(callbacks=[ExplorerCallback(log_freq=100)])

Works with `lightning` and with `pytorch_lightning`, whichever the training uses.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.tensorboard import SummaryWriter

from ..arguments import path_of
from .watching import Part, Watching, free_version, own_writer


def _libraries() -> list[Any]:
    """The Lightning modules to work with: those already imported, else all that are installed."""
    names = [("lightning", "lightning.pytorch"), ("pytorch_lightning", "pytorch_lightning")]
    installed = [module for package, module in names if find_spec(package) is not None]
    if not installed:
        raise ImportError(
            "tensorboard_torchexplorer.integrations.lightning needs Lightning: pip install lightning",
            name="lightning",
        )
    return [import_module(name) for name in [n for n in installed if n in sys.modules] or installed]


_LIBRARIES = _libraries()
_BASES: tuple[Any, ...] = tuple(library.Callback for library in _LIBRARIES)
_TENSORBOARD = tuple(import_module(f"{library.__name__}.loggers").TensorBoardLogger for library in _LIBRARIES)
_STEPS = ("training_step", "validation_step")


class ExplorerCallback(*_BASES):  # type: ignore[misc]  # Lightning may be absent where types are checked
    """Watches the LightningModule of a fit, on the rank that writes.

    What is recorded is the training step as a whole: the graph's inputs are those of `training_step`, its
    nodes the modules that it calls, in whatever way. The first validation batch of each `eval_freq`-th round
    becomes the evaluation series; the sanity check does not count as one. Steps are the trainer's
    `global_step`, also after a resume. With manual optimization each child module that an optimizer trains is
    watched as a model of its own, whose steps are those of its optimizer.

    module: watch only this submodule, or these, by path (`"net"`), as models of their own.
    logdir: write an event file of our own there. By default records go to the trainer's TensorBoardLogger;
        where it has none, to `torchexplorer` in the directory of its first logger, else to
        `torchexplorer/version_<n>` in `default_root_dir`.
    epochs: the time axis is the epoch, with fractions, at which each step began.
    wandb_run: the run of `wandb.init()` to which to log as well, see `log_to_wandb`.
    eval_freq and all other options are those of `watch`; `optimizer` and `start_step` are the trainer's.

    Nothing is recorded with `fast_dev_run`, nor by `validate`, `test` and `predict`. TypeError names an
    option that does not exist, ValueError a wrong value, that of `module` when the fit begins.
    """

    def __init__(
        self,
        *,
        module: str | Iterable[str] | None = None,
        logdir: str | os.PathLike[str] | None = None,
        epochs: bool = False,
        eval_freq: int | None = 1,
        **options: Any,
    ) -> None:
        super().__init__()
        self._watching = Watching({"eval_freq": eval_freq, **options}, epochs)
        paths = (module,) if isinstance(module, str) else tuple(module or ())
        for path in paths:
            if not isinstance(path, str):
                raise ValueError(f"ExplorerCallback: module={path!r} is not the path of a submodule")
        if self._watching.name is not None and len(paths) > 1:
            raise ValueError(
                f"ExplorerCallback: name={self._watching.name!r} can't be that of {len(paths)} modules"
            )
        self._paths = paths
        self._logdir = None if logdir is None else path_of("ExplorerCallback", "logdir", logdir)
        self._rerouted = _Rerouted()

    @property
    def state_key(self) -> str:
        """See Lightning's `Callback.state_key`: two of these with different modules may share a trainer."""
        return f"{type(self).__name__}{[*self._paths, self._watching.name]}"

    def state_dict(self) -> dict[str, Any]:
        """The next step of each watch, for checkpoints."""
        return {"steps": self._watching.steps_now()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._watching.steps = dict(state_dict["steps"])

    # --- hooks -----------------------------------------------------------------------------------

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._end()
        writes = trainer.is_global_zero
        if trainer.fast_dev_run or not (writes or self._watching.of_all_ranks):
            return
        parts = list(self._parts(trainer, pl_module))
        writer = self._writer(trainer) if writes else None
        self._watching.begin(writer, parts, ("epoch", _epoch_of(trainer)))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._end()

    # --- what to watch, and where to ---------------------------------------------------------------

    def _parts(self, trainer: Any, pl_module: Any) -> Iterator[Part]:
        if self._paths:
            for path in self._paths:
                yield self._part(trainer, _submodule(pl_module, path), self._watching.name or path or None)
            return
        if pl_module.automatic_optimization:
            root = self._rerouted.begin(pl_module)
            yield Part(root, self._watching.name, None, trainer.global_step)
            return
        trained = [
            (name, child) for name, child in pl_module.named_children() if _optimizers_of(trainer, child)
        ]
        for name, child in trained:
            yield self._part(trainer, child, name)
        if not trained:
            yield self._part(trainer, pl_module, self._watching.name)

    def _part(self, trainer: Any, module: nn.Module, name: str | None) -> Part:
        """A module whose steps are those of the one optimizer that trains it, if there is one."""
        optimizers = _optimizers_of(trainer, module)
        step = trainer.global_step
        if step and len(trainer.optimizers) > 1:
            # The trainer counts the steps of all optimizers together.
            step = self._watching.steps.get(name or type(module).__name__, step // len(trainer.optimizers))
        return Part(module, name, optimizers[0] if len(optimizers) == 1 else None, step)

    def _writer(self, trainer: Any) -> SummaryWriter:
        loggers = list(trainer.loggers)
        ours = next((logger for logger in loggers if isinstance(logger, _TENSORBOARD)), None)
        if self._logdir is not None:
            return own_writer(self._logdir, trainer.global_step, ours and ours.log_dir)
        if ours is not None:
            writer: SummaryWriter = ours.experiment
            return writer
        directory = next((logger.log_dir for logger in loggers if logger.log_dir), None)
        if directory is not None:
            return own_writer(os.path.join(directory, "torchexplorer"), trainer.global_step)
        root = os.path.join(trainer.default_root_dir, "torchexplorer")
        return own_writer(free_version(root), trainer.global_step)

    def _end(self) -> None:
        self._watching.end()
        self._rerouted.end()


def _submodule(pl_module: nn.Module, path: str) -> nn.Module:
    try:
        return pl_module.get_submodule(path)
    except AttributeError as error:
        names = ", ".join(name for name, _ in pl_module.named_children())
        kind = type(pl_module).__name__
        raise ValueError(
            f"ExplorerCallback: module={path!r} is no submodule of {kind}, which has {names}"
        ) from error


def _optimizers_of(trainer: Any, module: nn.Module) -> list[Optimizer]:
    """The optimizers of the trainer that hold a parameter of the module."""
    mine = {id(parameter) for parameter in module.parameters()}
    return [
        optimizer
        for optimizer in trainer.optimizers
        if any(id(parameter) in mine for group in optimizer.param_groups for parameter in group["params"])
    ]


def _epoch_of(trainer: Any) -> Callable[[nn.Module, int], float]:
    """A `time_log` function: the epoch, with the share of its batches that are done. It does not keep the
    trainer alive."""
    reference = weakref.ref(trainer)

    def epoch(model: nn.Module, step: int) -> float:
        now = reference()
        if now is None:
            return float("nan")
        batches = now.num_training_batches
        done = now.fit_loop.epoch_loop.batch_progress.current.completed
        return float(now.current_epoch + (min(done / batches, 1.0) if 0 < batches < float("inf") else 0.0))

    return epoch


# --- The training step as the forward of a module -------------------------------------------------


class _Rerouted:
    """Leads calls of a LightningModule's steps through a module that can be watched.

    A trainer calls `training_step` as a plain method, and that calls the children directly or by way of
    `forward`. So a module is made that has the same children, parameters and buffers, and whose forward is
    the step; between `begin` and `end` it stands in front of the steps of the instance. Copies do nothing.
    """

    def __init__(self) -> None:
        self._placed: list[tuple[nn.Module, str, _Step, Any]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"_placed": []}

    def begin(self, pl_module: Any) -> nn.Module:
        """The module to watch."""
        kind = type(pl_module)
        # Names of arguments are read from the class; what runs is put on the instance.
        root: nn.Module = type(kind.__name__, (nn.Module,), {"forward": kind.training_step})()
        for name in ("_modules", "_parameters", "_buffers"):
            root.__dict__[name] = pl_module.__dict__[name]
        for name in _STEPS:
            before = pl_module.__dict__.get(name)
            step = _Step(pl_module, getattr(pl_module, name), root)
            pl_module.__dict__[name] = step
            self._placed.append((pl_module, name, step, before))
        return root

    def end(self) -> None:
        """Leave the LightningModule as it was."""
        while self._placed:
            pl_module, name, step, before = self._placed.pop()
            if pl_module.__dict__.get(name) is step:
                if before is None:
                    del pl_module.__dict__[name]
                else:
                    pl_module.__dict__[name] = before


class _Step:
    """A step of a LightningModule, called as the forward of `root`. Copies are the plain step."""

    def __init__(self, pl_module: nn.Module, step: Callable[..., Any], root: nn.Module) -> None:
        functools.update_wrapper(self, step)
        # Lightning looks through one wrapper for the signature, and whether the step is overridden.
        self.__wrapped__ = getattr(step, "__wrapped__", step)
        self._step = step
        self._pl_module = weakref.ref(pl_module)
        self._root = root

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        pl_module = self._pl_module()
        self._root.training = pl_module is not None and pl_module.training
        self._root.__dict__["forward"] = self._step
        return self._root(*args, **kwargs)

    def __reduce__(self) -> Any:
        return _itself, (self._step,)


def _itself(step: Callable[..., Any]) -> Callable[..., Any]:
    return step
