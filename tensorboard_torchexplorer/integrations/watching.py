"""What the callbacks of all trainers share: options of `watch` in, watches of one training put on and
taken off."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import nn
from torch.optim import Optimizer
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer.arguments import require_name
from tensorboard_torchexplorer.background import background_of
from tensorboard_torchexplorer.options import TimeLog, validated
from tensorboard_torchexplorer.recorder import Watch
from tensorboard_torchexplorer.wandb_log import WandbLog
from tensorboard_torchexplorer.writer import ExplorerWriter, unwatch_model, watch_model

_FOUND_BY_THE_CALLBACK = ("writer", "model", "optimizer", "start_step")


class Part(NamedTuple):
    """A module to watch: its name in the tab (None: its class), the optimizer whose steps count (None: any),
    and the number of its first step."""

    module: nn.Module
    name: str | None
    optimizer: Optimizer | None
    start_step: int


class Watching:
    """The watches of one training, from `begin` to `end`.

    `options` are those of `watch` but for what the trainer knows, and `wandb_run`, to which the records of
    each training are logged as well (see `log_to_wandb`); `epochs` asks for the trainer's epoch as time axis.
    TypeError names an option that does not exist, ValueError a wrong value. Copies and pickles
    keep the options and watch nothing.
    """

    def __init__(self, options: dict[str, Any], epochs: bool) -> None:
        known = [
            name for name in inspect.signature(watch_model).parameters if name not in _FOUND_BY_THE_CALLBACK
        ]
        wandb_run = options.pop("wandb_run", None)
        self._wandb = None if wandb_run is None else WandbLog(wandb_run)
        for option in options:
            if option not in known:
                raise TypeError(
                    f"ExplorerCallback: there is no option {option!r}; there are {', '.join(known)}"
                )
        name = options.get("name")
        require_name("ExplorerCallback", name)
        if not isinstance(epochs, bool):
            raise ValueError(f"ExplorerCallback: epochs={epochs!r} is not True or False")
        if epochs and options.get("time_log") is not None:
            raise ValueError("ExplorerCallback: epochs=True and time_log are both time axes, choose one")
        validated(**{key: value for key, value in options.items() if key != "name"})
        self.name: str | None = name
        self.options = {key: value for key, value in options.items() if key != "name"}
        self.epochs = epochs
        self.steps: dict[str, int] = {}
        """The next step of each watch, by name, as of when it ended."""
        self._writer: SummaryWriter | None = None
        self._watches: list[Watch] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "steps": self.steps_now(), "_writer": None, "_watches": [], "_wandb": None}

    @property
    def begun(self) -> bool:
        return bool(self._watches)

    @property
    def of_all_ranks(self) -> bool:
        """Whether ranks that don't write are to watch as well."""
        return self.options.get("ranks") == "all"

    def begin(self, writer: SummaryWriter | None, parts: Iterable[Part], epoch: TimeLog) -> None:
        """Watch `parts` with `writer` (None on ranks that don't write); `epoch` is the time axis if the
        trainer's epochs were asked for."""
        self.end()
        if writer is not None and getattr(writer, "file_writer", writer) is None:
            writer._get_file_writer()  # an earlier fit has closed it
        self._writer = writer
        if self._wandb is not None and writer is not None:
            self._wandb.attach(writer)
        options = {**self.options, **({"time_log": epoch} if self.epochs else {})}
        for part in parts:
            self._watches.append(
                watch_model(
                    writer,
                    part.module,
                    part.name,
                    optimizer=part.optimizer,
                    start_step=part.start_step,
                    **options,
                )
            )

    def flush(self) -> None:
        """Have all that was recorded so far written: trainers close their writers before we are told."""
        if self._writer is not None:
            background_of(self._writer).flush()

    def end(self) -> None:
        """Unwatch, write what is left, and close the writer if it is ours."""
        if not self.begun:
            return
        self.steps = self.steps_now()
        for watch in self._watches:
            model = watch.model
            if model is not None:
                unwatch_model(self._writer, model)
        self.flush()
        if isinstance(self._writer, ExplorerWriter):
            self._writer.close()
        if self._wandb is not None:
            self._wandb.close()
        self._writer, self._watches = None, []

    def steps_now(self) -> dict[str, int]:
        """The next step of each watch, by name."""
        return {**self.steps, **{watch.name: watch.step for watch in self._watches}}


def own_writer(directory: str, start_step: int, taken: str | None = None) -> ExplorerWriter:
    """A writer of our own, not in the directory `taken` by that of the trainer. Of a training that resumes
    there, steps that are trained again replace the old ones."""
    if taken is not None and os.path.abspath(directory) == os.path.abspath(taken):
        raise ValueError(
            f"ExplorerCallback: logdir={directory!r} is where the trainer's own event file lies, and of two "
            "in one directory TensorBoard reads one. Without logdir, records go into the trainer's"
        )
    return ExplorerWriter(directory, purge_step=start_step or None)


def free_version(directory: str) -> str:
    """The first `version_<n>` in `directory` that does not exist yet."""
    number = 0
    while os.path.exists(os.path.join(directory, f"version_{number}")):
        number += 1
    return os.path.join(directory, f"version_{number}")
