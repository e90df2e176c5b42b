"""A callback for the Hugging Face Trainer: a training in, its records in the event file of the trainer's own
TensorBoard report out.

    from tensorboard_torchexplorer.integrations.transformers import ExplorerCallback

    trainer = Trainer(model, TrainingArguments(report_to="tensorboard"), callbacks=[ExplorerCallback()], ...)
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from torch import nn
from torch.utils.tensorboard import SummaryWriter

from ..arguments import path_of
from ..instances import instances_of
from .watching import Part, Watching, own_writer

try:
    from transformers.integrations.integration_utils import TensorBoardCallback
    from transformers.trainer_callback import CallbackHandler, TrainerCallback
except ImportError as error:
    raise ImportError(
        "tensorboard_torchexplorer.integrations.transformers needs Transformers and what its Trainer needs: "
        "pip install transformers accelerate",
        name="transformers",
    ) from error


class ExplorerCallback(TrainerCallback):
    """Watches the model of a `Trainer`, on the process that reports.

    Steps are the trainer's `global_step`, also after a resume; the first batch of each `eval_freq`-th
    evaluation becomes the evaluation series (that of `eval_on_start` does not).

    logdir: write an event file of our own there. By default records go to the writer of the trainer's
        TensorBoardCallback (`report_to="tensorboard"`); without one, to a directory of their own in
        `runs` of the `output_dir`, named as Transformers would.
    epochs: the time axis is the epoch, with fractions, at which each step began.
    wandb_run: the run of `wandb.init()` to which to log as well, see `log_to_wandb`.
    eval_freq and all other options are those of `watch`; `optimizer` and `start_step` are the trainer's.

    TypeError names an option that does not exist, ValueError a wrong value.
    """

    def __init__(
        self,
        *,
        logdir: str | os.PathLike[str] | None = None,
        epochs: bool = False,
        eval_freq: int | None = 1,
        **options: Any,
    ) -> None:
        self._watching = Watching({"eval_freq": eval_freq, **options}, epochs)
        self._logdir = None if logdir is None else path_of("ExplorerCallback", "logdir", logdir)

    def on_train_begin(self, args: Any, state: Any, control: Any, **trained: Any) -> None:
        self._watching.end()  # of a training that has raised

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **trained: Any) -> None:
        # Not at the beginning of the training: TensorBoardCallback may come after us, and evaluations before.
        writes = state.is_world_process_zero
        if self._watching.begun or not (writes or self._watching.of_all_ranks):
            return
        model: nn.Module = trained["model"]
        part = Part(model, self._watching.name, None, state.global_step)

        def epoch(_: nn.Module, __: int) -> float:
            return float(state.epoch or 0.0)

        writer = self._writer(args, state, trained) if writes else None
        self._watching.begin(writer, [part], ("epoch", epoch))

    # The trainer's own callback closes its writer before we are told of the end.

    def on_evaluate(self, args: Any, state: Any, control: Any, **trained: Any) -> None:
        self._watching.flush()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **trained: Any) -> None:
        self._watching.flush()

    def on_train_end(self, args: Any, state: Any, control: Any, **trained: Any) -> None:
        self._watching.end()

    # --- where to ----------------------------------------------------------------------------------

    def _writer(self, args: Any, state: Any, trained: dict[str, Any]) -> SummaryWriter:
        reported = self._reported(trained)
        if self._logdir is not None:
            return own_writer(self._logdir, state.global_step, reported.log_dir if reported else None)
        if reported is not None:
            return reported
        directory = getattr(args, "logging_dir", None) or os.getenv("TENSORBOARD_LOGGING_DIR")
        if not directory:
            name = f"{time.strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}"
            directory = os.path.join(args.output_dir, "runs", name)
        return own_writer(os.path.expanduser(directory), state.global_step)

    def _reported(self, trained: dict[str, Any]) -> SummaryWriter | None:
        """The writer of the trainer's TensorBoardCallback. A callback isn't told of the trainer, so the list
        of callbacks that it is in is looked for among all objects."""
        for found in instances_of(CallbackHandler):
            if self in found.callbacks and all(
                getattr(found, name) is trained[name] for name in ("model", "train_dataloader")
            ):
                for callback in found.callbacks:
                    if isinstance(callback, TensorBoardCallback) and callback.tb_writer is not None:
                        writer: SummaryWriter = callback.tb_writer
                        return writer
        return None
