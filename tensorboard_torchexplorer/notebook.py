"""A report in, an output of a notebook's cell out."""

from __future__ import annotations

import html

from tensorboard_torchexplorer.arguments import require_whole

# The page may run its own script and hand over files. It shares nothing with the notebook around it.
_FRAME = (
    '<iframe title="TorchExplorer" sandbox="allow-scripts allow-downloads" srcdoc="{page}" '
    'style="width: 100%; height: {height}px; border: 1px solid #8888; border-radius: 6px"></iframe>'
)


def display(page: str, height: int) -> None:
    """Show the HTML text `page` in the output of the running cell, `height` CSS pixels high.

    Raises ImportError without IPython, RuntimeError outside of a notebook, ValueError for a height that is
    none."""
    require_whole("show", "height", height, 100, 10_000)
    try:
        import IPython
        import IPython.display
    except ImportError as error:
        raise ImportError("show needs a notebook, and that IPython: pip install ipython") from error
    if IPython.get_ipython() is None:
        raise RuntimeError("show works in a notebook; elsewhere use serve() or export_report(path)")
    frame = _FRAME.format(page=html.escape(page), height=height)
    shown = {"text/html": frame, "text/plain": "<TorchExplorer report>"}
    IPython.display.display(shown, raw=True)
