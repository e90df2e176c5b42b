"""The public names, each loaded when it is first asked for.

TensorBoard imports this package through the plugin's entry point, and a TensorBoard server may run
where there is no torch, or where loading it would only cost seconds and memory. So nothing here may
import torch before a name that needs it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorboard_torchexplorer.capture.attachments import attach
    from tensorboard_torchexplorer.reader import read
    from tensorboard_torchexplorer.recorder import Watch
    from tensorboard_torchexplorer.selftest import Report, verify
    from tensorboard_torchexplorer.wandb_log import log_to_wandb
    from tensorboard_torchexplorer.writer import ExplorerWriter, unwatch_model, watch_model

__version__ = "0.1.0"

# A public name may not be that of a module here: importing the module would replace the function.
_HOMES = {
    "ExplorerWriter": "writer",
    "Report": "selftest",
    "Watch": "recorder",
    "attach": "capture.attachments",
    "log_to_wandb": "wandb_log",
    "read": "reader",
    "unwatch_model": "writer",
    "verify": "selftest",
    "watch_model": "writer",
}

__all__ = [
    "ExplorerWriter",
    "Report",
    "Watch",
    "__version__",
    "attach",
    "log_to_wandb",
    "read",
    "unwatch_model",
    "verify",
    "watch_model",
]


def __getattr__(name: str) -> Any:
    """The public object `name`, from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
