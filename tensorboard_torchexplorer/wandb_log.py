"""What a writer records into a run of Weights & Biases as well: the statistics of each module as ordinary
metrics, and the report as HTML. The only module that knows wandb.

Metrics are called `<model>/<module>/<statistic>`, for example `GPT/blocks.0.mlp/gradient`, over
`<model>/step`; those of evaluation `<model>/eval/<module>/<statistic>`. The statistics are those of
`schema.HEALTH`.

wandb keeps one row of metrics for each of its own steps, and refuses rows before the newest. A row of ours
would make it refuse those of a training that counts more slowly, epochs say. So what we log joins the row
that is open: the one that the training's next `log()` completes, or where it logs with a `step` the one of
its last step. Of several records in one row the last one stays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorboard_torchexplorer import events
from tensorboard_torchexplorer.arguments import require_whole, require_writer
from tensorboard_torchexplorer.background import Background, Listener, background_of
from tensorboard_torchexplorer.columns import column
from tensorboard_torchexplorer.record_file import flush_file
from tensorboard_torchexplorer.schema import HEALTH, ROOT_ID, Phase

REPORT_KEY = "torchexplorer/report"


def log_to_wandb(
    writer: Any, run: Any, *, report_every: int | None = None, own_rows: bool = False
) -> WandbLog:
    """Log what `writer` (a SummaryWriter) records from now on to `run` (of `wandb.init()`) as well.

    report_every: log the report after every so many records too. It is made from all that the writer's
        directory holds, so ever more of it is read: choose a large number. None: only at `close`.
    own_rows: a row of wandb for each record, for a run to which nobody else logs.

    Call it before `watch`, and `close` what it returns when the writer is closed. Errors of wandb never reach
    the training: they become one warning, and nothing more is logged. Raises ImportError without wandb,
    ValueError for a wrong argument.
    """
    require_writer("log_to_wandb", writer)
    log = WandbLog(run, report_every=report_every, own_rows=own_rows)
    log.attach(writer)
    return log


class WandbLog:
    """The connection of a writer to a run. Made by `log_to_wandb`."""

    def __init__(self, run: Any, *, report_every: int | None = None, own_rows: bool = False) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ImportError("wandb_run needs wandb: pip install wandb") from error
        if not (callable(getattr(run, "log", None)) and callable(getattr(run, "define_metric", None))):
            raise ValueError(f"wandb_run={run!r} is not a run of wandb.init()")
        if report_every is not None:
            require_whole("log_to_wandb", "report_every", report_every, 1)
        if not isinstance(own_rows, bool):
            raise ValueError(f"log_to_wandb: own_rows={own_rows!r} is not True or False")
        self._html = wandb.Html
        self._run = run
        self._report_every = report_every
        self._own_rows = own_rows
        self._names: dict[str, list[str]] = {}
        self._records = 0
        self._thread: Background | None = None
        self._listener = Listener("wandb", self._record)

    def attach(self, writer: Any) -> None:
        """Log what `writer` records from now on, until `close`."""
        self._records, self._names = 0, {}
        self._directory: str = writer.log_dir if hasattr(writer, "log_dir") else writer.logdir
        self._thread = background_of(writer)
        self._thread.listeners.append(self._listener)

    def close(self) -> None:
        """Log the report of all that was recorded, and nothing any more after that."""
        thread, self._thread = self._thread, None
        # It is gone where wandb failed before.
        if thread is not None and self._listener in thread.listeners:
            thread.listeners.remove(self._listener)
            if self._records:
                thread.tell(self._listener.name, self._log_report)

    # --- On the record thread ---

    def _record(self, writer: Any, values: Sequence[Any], step: int) -> None:
        """Called with the values of each record once they are written."""
        for value in values:
            tag = events.parse_tag(value.tag)
            if tag is not None and tag.part == "graph":
                self._define(tag.model, value.tensor.tensor_content)
            elif tag is not None and tag.part == "health" and tag.phase is not None:
                self._log_statistics(tag.model, tag.phase, value.tensor.tensor_content, step)
                self._records += 1
                if self._report_every is not None and self._records % self._report_every == 0:
                    flush_file(writer)
                    self._log_report()

    def _define(self, model: str, payload: bytes) -> None:
        if model not in self._names and "*" not in model:  # in a name it would be a pattern
            self._run.define_metric(f"{model}/step", hidden=True)
            self._run.define_metric(f"{model}/*", step_metric=f"{model}/step")
        ids = column(events.decode_graph(payload).nodes, "id")
        self._names[model] = ["" if id == ROOT_ID else id.replace("/", ".") for id in ids]

    def _log_statistics(self, model: str, phase: Phase, payload: bytes, step: int) -> None:
        names = self._names.get(model)
        if names is None:
            raise RuntimeError(f"log_to_wandb was called after model {model!r} was first recorded")
        health = events.decode_health(payload)
        known = ~np.isnan(health)
        metrics: dict[str, Any] = {f"{model}/step": step}
        for name, numbers, is_known in zip(names, health.tolist(), known.tolist(), strict=False):
            for statistic, number, there in zip(HEALTH, numbers, is_known, strict=True):
                if there:
                    parts = (model, "" if phase == "train" else phase, name, statistic)
                    metrics["/".join(filter(None, parts))] = number
        self._run.log(metrics, commit=self._own_rows)

    def _log_report(self) -> None:
        from tensorboard_torchexplorer.report import page

        html = page(os.fspath(self._directory), runs=["."])
        # As it is: wandb would add a style sheet of its own, which the page's policy forbids anyway.
        self._run.log({REPORT_KEY: self._html(html, inject=False)}, commit=self._own_rows)
