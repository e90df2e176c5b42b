"""A SummaryWriter in, the same with `watch` out.

Everything is done by functions over "something that is a SummaryWriter", so that writers which others
make (Lightning's logger, the Hugging Face callback) can be used as well; `ExplorerWriter` is the same as
methods.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from . import versions
from .arguments import path_of, require_name, require_writer
from .background import background_of
from .capture.surroundings import writes_here
from .capture.wrappers import held_as
from .options import LOG, Patterns, TimeLog, validated
from .recorder import Ended, Watch

if TYPE_CHECKING:
    from .serve import Server
    from .wandb_log import WandbLog

_WATCHES: weakref.WeakKeyDictionary[SummaryWriter, dict[str, Watch]] = weakref.WeakKeyDictionary()
_ENDED: weakref.WeakKeyDictionary[SummaryWriter, dict[str, Ended]] = weakref.WeakKeyDictionary()


Writer = TypeVar("Writer", bound="ExplorerWriter")


class _Nowhere:
    """Stands for the writer of a rank that has none. It counts as closed."""

    file_writer = None
    purge_step = None


_NOWHERE: Any = _Nowhere()


def watch_model(
    writer: SummaryWriter | None,
    model: nn.Module,
    name: str | None = None,
    *,
    log: Iterable[str] = LOG,
    log_freq: int = 100,
    max_records: int | None = None,
    bins: int = 30,
    sample_n: int | None = 100,
    reject_outlier_proportion: float = 0.1,
    include: Patterns = None,
    exclude: Patterns = None,
    optimizer: torch.optim.Optimizer | None = None,
    time_log: TimeLog | None = None,
    eval_freq: int | None = None,
    exact: bool = False,
    root_input_grad: bool = False,
    compiled: str = "eager",
    start_step: int | None = None,
    ranks: str = "first",
) -> Watch:
    """Record `model` while it trains: its graph, and every `log_freq` steps a histogram of each
    input, output, parameter and gradient. Training is not changed by a bit.

    A step is one optimizer step that touches the model (`optimizer` or any that does), or where there
    is no optimizer one completed backward. Of a step with several forwards the first is recorded.
    Watching a model again replaces its watch and goes on with its steps; several models need several
    names (default: the class's).

    log: which kinds to record, of "io", "io_grad", "params", "params_grad".
    log_freq: every how many steps; step 0 is always recorded.
    max_records: a budget for runs of unknown length: after that many records the interval doubles, and
        again each time the number of steps does, so that a run a thousand times as long holds about
        six times the records. None: `log_freq` throughout.
    bins: bins of a histogram.
    sample_n: elements per tensor for bins, mean, std and share of zeros, of tensors of more than 1,024
        elements, smaller ones are taken whole; None: all. Extremes and
        counts of NaN and Inf are always those of the whole tensor.
    reject_outlier_proportion: share of the sampled values, farthest from the median, that is left out
        of the bins.
    include, exclude: a glob on module paths, a module class, a function(path, module) -> bool, or
        several of them: what to record. The rest stays in the graph, greyed.
    optimizer: the optimizer whose steps count. Default: all that hold a parameter of the model.
    time_log: ("epoch", function(model, step) -> float), a time axis of your own.
    eval_freq: record the first forward of every n-th evaluation round (forwards in eval mode or without
        gradients between two training steps). None: none, unless the model never trains.
    exact: mean, std and share of zeros of whole tensors instead of the sample.
    root_input_grad: also record gradients with respect to the model's own inputs.
    compiled: "eager": logged steps run uncompiled; "skip": of compiled models record parameters and
        their gradients only.
    start_step: number of the first step. Default: where an earlier watch of that name ended, or the
        writer's purge_step, or 0.
    ranks: of a distributed training, "first": record what the first rank sees; "all": pool samples of all
        ranks, each of which must then watch, with the same options. On ranks that do not write, `writer`
        may be None.

    Returns the watch, a context manager whose end is `unwatch`. ValueError names a wrong argument.
    """
    versions.check()
    if not isinstance(model, nn.Module):
        raise ValueError(f"watch: model={model!r} is not a torch.nn.Module")
    require_name("watch", name)
    options = validated(
        log=log,
        log_freq=log_freq,
        max_records=max_records,
        bins=bins,
        sample_n=sample_n,
        reject_outlier_proportion=reject_outlier_proportion,
        include=include,
        exclude=exclude,
        optimizer=_plain(optimizer),
        time_log=time_log,
        eval_freq=eval_freq,
        exact=exact,
        root_input_grad=root_input_grad,
        compiled=compiled,
        start_step=start_step if start_step is not None else 0,
        ranks=ranks,
    )
    if writer is None:
        if writes_here():
            raise ValueError("watch: writer=None is for the ranks that do not write, this one does")
        writer = _NOWHERE
    else:
        require_writer("watch", writer)
    outer, root = _unwrapped(model)
    watches = _WATCHES.setdefault(writer, {})
    for key, watch in list(watches.items()):
        if watch.model is None or watch.model is root or key == name:
            if watch.model is root and name is None:
                name = key  # watched again: goes on under its name
            _end(writer, key)
    name = name or _free_name(type(root).__name__, watches)
    ended = _ENDED.get(writer, {}).get(name)
    if start_step is None:
        first = ended.step if ended is not None else writer.purge_step or 0
        options = replace(options, start_step=first)
    watch = watches[name] = Watch(root, name, options, background_of(writer), ended, outer)
    # A writer that is gone must not leave its hooks behind.
    weakref.finalize(writer, _close, weakref.ref(watch)).atexit = False
    return watch


def _end(writer: SummaryWriter, name: str) -> None:
    watch = _WATCHES[writer].pop(name)
    watch.close()
    _ENDED.setdefault(writer, {})[name] = watch.ended


def _close(reference: weakref.ref[Watch]) -> None:
    watch = reference()
    if watch is not None:
        watch.close()


def unwatch_model(writer: SummaryWriter | None, model: nn.Module | None = None) -> None:
    """Stop recording `model`, or every model of `writer`, and leave the models as they were. One that is not
    watched is left alone. ValueError names an argument that is none of its kind."""
    if writer is not None:
        require_writer("unwatch", writer)
    if model is not None and not isinstance(model, nn.Module):
        raise ValueError(f"unwatch: model={model!r} is not a torch.nn.Module")
    owner = _NOWHERE if writer is None else writer
    watches = _WATCHES.get(owner, {})
    root = _unwrapped(model)[1] if model is not None else None
    for key, watch in list(watches.items()):
        if root is None or watch.model is root:
            _end(owner, key)
            if writer is None:
                _ENDED[_NOWHERE].pop(key)  # the next watch may be of another run


def _free_name(wanted: str, taken: dict[str, Watch]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted} {number}"
    return name


def _unwrapped(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The user's own module inside wrappers that only delegate to it, so that paths have no prefix. Before it
    the outermost of those around it whose names are part of no path, or the module itself."""
    outer = model
    while True:
        inner: Any = None
        if name := held_as(model):
            model = getattr(model, name)
            continue
        if isinstance(model, torch.nn.parallel.DistributedDataParallel) or (
            isinstance(model, torch.nn.DataParallel) and len(model.device_ids) <= 1
        ):
            inner = model.module
        elif type(model).__name__ == "_FabricModule":  # of Lightning Fabric, by name: it may not be installed
            inner = getattr(model, "_original_module", None)
        if inner is None:
            return outer, model
        outer = model = inner


def _plain(optimizer: torch.optim.Optimizer | None) -> torch.optim.Optimizer | None:
    """The optimizer whose hooks run, inside wrappers (Accelerate's, Lightning's) that only delegate to it."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    return optimizer


class ExplorerWriter(SummaryWriter):
    """A `torch.utils.tensorboard.SummaryWriter` that also records watched models for the TorchExplorer
    tab, into the same event file.

        with ExplorerWriter("runs/resnet18") as writer:
            writer.watch(model, log_freq=100)
            for x, y in loader: ...
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        *arguments: Any,
        wandb_run: Any = None,
        wandb_report_every: int | None = None,
        wandb_own_rows: bool = False,
        **options: Any,
    ) -> None:
        """Takes what a SummaryWriter takes. With `wandb_run`, the run of `wandb.init()`, the statistics of
        each module and at the end a report are logged there too; see `log_to_wandb` for the other two.
        ValueError names a `log_dir` that is no path, or a wrong argument of those."""
        self._wandb: WandbLog | None = None
        if wandb_run is not None:
            from .wandb_log import WandbLog

            self._wandb = WandbLog(wandb_run, report_every=wandb_report_every, own_rows=wandb_own_rows)
        # An empty one is none for a SummaryWriter.
        directory = None if log_dir in (None, "") else path_of("ExplorerWriter", "log_dir", log_dir)
        super().__init__(directory, *arguments, **options)
        if self._wandb is not None:
            self._wandb.attach(self)

    watch = watch_model
    unwatch = unwatch_model

    # That of SummaryWriter has no types: editors and type checkers would not know what a `with` block has.
    def __enter__(self: Writer) -> Writer:
        return self

    def serve(self, port: int = 0, *, browser: bool = False) -> Server:
        """Start TensorBoard on this writer's directory in a process of its own, print its address and with
        `browser` open it. `port` 0 takes a free one of this machine; others can't reach it.

        The server ends with its `close()` or with this process. Raises ValueError for a port that is none,
        OSError if TensorBoard can't start."""
        from .serve import serve

        return serve(self.log_dir, port, browser=browser)

    def export_report(
        self, path: str | os.PathLike[str], *, models: Iterable[str] | None = None, steps: int = 400
    ) -> int:
        """Write all that this writer's directory holds so far to one HTML file that shows it in the tab,
        without a server or a network; how many bytes it has. For `models` and `steps` see `report.export`.
        """
        from .report import export

        self.flush()
        return export(self.log_dir, path, runs=["."], models=models, steps=steps)

    def show(self, *, models: Iterable[str] | None = None, steps: int = 400, height: int = 720) -> None:
        """In a notebook: show that report in the output of the cell, `height` CSS pixels high. It is saved
        with the notebook. Raises ImportError without IPython, RuntimeError where there is no notebook."""
        from .notebook import display
        from .report import page

        self.flush()
        display(page(self.log_dir, runs=["."], models=models, steps=steps), height)

    def flush(self) -> None:
        """Write everything recorded and added so far to disk."""
        background_of(self).flush()
        super().flush()

    def close(self) -> None:
        """Unwatch all models, write everything, close the file."""
        unwatch_model(self)
        background_of(self).flush()
        super().close()
        if self._wandb is not None:
            self._wandb.close()
