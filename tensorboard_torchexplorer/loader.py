"""The entry point that TensorBoard loads.

An exception here or in `fix_flags` would end the whole `tensorboard` command, so this module imports nothing
that might be missing, and everything heavy waits until `load`.
"""

from __future__ import annotations

import logging
from typing import Any

from tensorboard.plugins import base_plugin

PLUGIN_NAME = "torchexplorer"
"""`schema.PLUGIN_NAME`; a test keeps them equal. Not imported, so that a fault there costs only our tab."""

KEEP_ALL = 0

_log = logging.getLogger(__name__)


class TorchExplorerLoader(base_plugin.TBLoader):
    """Makes the plugin, and asks TensorBoard to keep all its records."""

    def fix_flags(self, flags: Any) -> None:
        """Otherwise TensorBoard keeps 10 records a tag, or 100 with its data server. What the user asks for
        with `--samples_per_plugin=torchexplorer=N` wins, unless it is no number of records at all: the data
        server refuses to start with a negative one, and the Python loader dies of it."""
        try:
            hints = flags.samples_per_plugin
            if hints is None:
                hints = flags.samples_per_plugin = {}
            asked = hints.setdefault(PLUGIN_NAME, KEEP_ALL)
            if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
                _log.warning(
                    "--samples_per_plugin=%s=%s: expected a whole number, 0 for all records; keeping all",
                    PLUGIN_NAME,
                    asked,
                )
                hints[PLUGIN_NAME] = KEEP_ALL
        except Exception:
            _log.warning("can't ask TensorBoard to keep all records of %s", PLUGIN_NAME, exc_info=True)

    def load(self, context: Any) -> Any:
        """The plugin; None, which TensorBoard takes for "not available", if it can't be made."""
        try:
            from tensorboard_torchexplorer.plugin import TorchExplorerPlugin

            return TorchExplorerPlugin(context)
        except Exception:
            _log.exception("the %s tab is not available", PLUGIN_NAME)
            return None
