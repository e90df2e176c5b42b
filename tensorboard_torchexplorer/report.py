"""Runs of a log directory in, one HTML file out that shows them in the tab, without a server or a network.

The page holds the tab itself and what the routes would answer, each answer compressed by itself so that a
browser unpacks only what is looked at. Never imports torch.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import secrets
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tensorboard_torchexplorer
from tensorboard_torchexplorer import schema_json
from tensorboard_torchexplorer.arguments import path_of, require_whole
from tensorboard_torchexplorer.backend import Backend
from tensorboard_torchexplorer.history import thinned
from tensorboard_torchexplorer.opened import Opened
from tensorboard_torchexplorer.reader import FileSource, model_of
from tensorboard_torchexplorer.schema import (
    HEALTH,
    REPORT_ID,
    Health,
    ModelEntry,
    ReportHead,
    ReportModel,
    RunEntry,
    Runs,
)

STEPS = 400
"""As many steps of a history as a panel of the tab is wide in pixels, about."""

_DIGITS = 6
"""Significant digits of a statistic: the records hold less than three, and the tab shows three, which are to
be the same as without this."""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tensorboard-torchexplorer {version}">
<title>{title}</title>
<script type="application/octet-stream" id="{id}">{records}</script>
</head>
<body>
<noscript>This report draws its pictures with JavaScript, which is off here.</noscript>
<script type="text/plain" id="licenses">
{licenses}
</script>
<script type="module">{script}</script>
</body>
</html>
"""

# Nothing may be fetched from anywhere, and only the one script may run. The pictures are made by the page.
_POLICY = "default-src 'none'; script-src 'sha256-{digest}'; img-src data: blob:; base-uri 'none'"


def export(
    logdir: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    runs: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    steps: int = STEPS,
) -> int:
    """Write a report of what was recorded below `logdir` to `path`; how many bytes it has.

    runs, models: names or globs of those to take; None takes all.
    steps: of longer histories that many steps are kept, evenly chosen, first and last among them.

    A run that is still being written is taken as far as it is. The file appears at once and whole.

    Raises FileNotFoundError where one of the directories does not exist, ValueError where there is nothing to
    report or an argument is wrong.
    """
    target = Path(path_of("export", "path", path))
    if target.is_dir():
        raise ValueError(f"export: path={str(target)!r} is a directory, not a file in one")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"export: path={str(target)!r}: there is no directory {str(target.parent)!r}")
    text = page(logdir, runs=runs, models=models, steps=steps)
    # With the rights of an ordinary file, so not by `tempfile`.
    scratch = target.with_name(f".{target.name[:50]}.{secrets.token_hex(6)}")
    try:
        with open(scratch, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(scratch, target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return target.stat().st_size


def page(
    logdir: str | os.PathLike[str],
    *,
    runs: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    steps: int = STEPS,
) -> str:
    """The HTML text that `export` writes. Raises what it raises."""
    directory = path_of("export", "logdir", logdir)
    require_whole("export", "steps", steps, 2)
    source = FileSource(directory)
    backend = Backend()
    known = _chosen(backend.runs(source).runs, _names("runs", runs), _names("models", models))
    if not known:
        problems = [f"; {run}: {text}" for run, texts in source.problems.items() for text in texts]
        raise ValueError(f"export: logdir={directory!r} holds no records{''.join(problems)}")
    parts = _Parts()
    found = [
        _model(parts, backend, source, run, entry.name, steps)
        for run, entries in known
        for entry in entries
        if not entry.problem
    ]
    # "." is the directory itself. A report travels, so it says which that was.
    own = os.path.basename(os.path.abspath(directory)) or "run"
    names = {run: own if run == "." and own not in dict(known) else run for run, _ in known}
    head = ReportHead(
        Runs([RunEntry(names[run], entries) for run, entries in known]),
        [replace(model, run=names[model.run]) for model in found],
        [len(part) for part in parts.packed],
    )
    title = names[known[0][0]] if len(known) == 1 else own
    return _html(parts.body(head), f"TorchExplorer: {title}")


class _Parts:
    """Answers, each compressed by itself."""

    def __init__(self) -> None:
        self.packed: list[bytes] = []

    def add(self, answer: bytes) -> int:
        """The number of the new part."""
        self.packed.append(zlib.compress(answer, 9))
        return len(self.packed) - 1

    def body(self, head: ReportHead) -> bytes:
        packed = zlib.compress(schema_json.dumps(head), 9)
        return b"".join([len(packed).to_bytes(4, "little"), packed, *self.packed])


def _model(
    parts: _Parts, backend: Backend, source: FileSource, run: str, name: str, steps: int
) -> ReportModel:
    opened = backend.open(source, run, name)
    view, ran, trained = opened.view, opened.ran(), len(opened.steps.infos["train"])
    ids = [node.id for node in view.graph.nodes]
    return ReportModel(
        run=run,
        model=name,
        steps=parts.add(schema_json.dumps(backend.steps(opened))),
        search=parts.add(schema_json.dumps(view.searchable)),
        health=[parts.add(schema_json.dumps(answers)) for answers in _health(source, opened, steps)],
        ids=ids,
        levels=[parts.add(schema_json.dumps(view.level(index, ran, trained))) for index in range(len(ids))],
        series=[parts.add(backend.series(source, opened, id, steps)) for id in ids],
    )


def _health(source: FileSource, opened: Opened, steps: int) -> list[list[Health]]:
    """For each statistic what the route would answer at (at most `steps` of) the logged steps."""
    history = model_of(source, opened).history(opened.steps.main)
    table = history.health()
    kept = [int(step) for step in history.steps]
    chosen = thinned(kept, steps)
    columns = np.searchsorted(kept, chosen)
    # One walk over the nodes for all steps and statistics: [nodes, steps, statistics].
    own = table[columns].transpose(1, 0, 2)
    worst = opened.view.worst(own)
    finite = np.where(np.isfinite(table), table, np.nan).reshape(-1, len(HEALTH))
    low, high = np.fmin.reduce(finite, initial=np.nan), np.fmax.reduce(finite, initial=np.nan)
    nodes = list(range(len(own)))
    return [
        [
            Health(
                stat=stat,
                step=step,
                nodes=nodes,
                own=_numbers(own[:, column, which]),
                worst=_numbers(worst[:, column, which]),
                low=_numbers(low)[which],
                high=_numbers(high)[which],
            )
            for column, step in enumerate(chosen)
        ]
        for which, stat in enumerate(HEALTH)
    ]


def _numbers(values: npt.NDArray[np.float32]) -> list[float | None]:
    finite = np.isfinite(values).tolist()
    return [
        float(f"{value:.{_DIGITS}g}") if known else None
        for value, known in zip(values.tolist(), finite, strict=True)
    ]


def _chosen(
    entries: Sequence[RunEntry], runs: Sequence[str] | None, models: Sequence[str] | None
) -> list[tuple[str, list[ModelEntry]]]:
    """The runs and models that are wanted. Raises ValueError for a name that none has."""
    taken = _matching("runs", [entry.name for entry in entries], runs)
    names = [model.name for entry in entries if entry.name in taken for model in entry.models]
    shown = _matching("models", list(dict.fromkeys(names)), models)
    found = [
        (entry.name, [model for model in entry.models if model.name in shown])
        for entry in entries
        if entry.name in taken
    ]
    return [(run, of_run) for run, of_run in found if of_run]


def _matching(argument: str, known: Sequence[str], wanted: Sequence[str] | None) -> set[str]:
    if wanted is None:
        return set(known)
    found: set[str] = set()
    for name in wanted:
        # A name may hold what a glob would take for a pattern.
        matches = [name] if name in known else [each for each in known if fnmatchcase(each, name)]
        if not matches:
            raise ValueError(f"export: {argument}={name!r} is none of {', '.join(map(repr, known))}")
        found.update(matches)
    return found


def _names(argument: str, names: Any) -> list[str] | None:
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else []
    if not listed or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"export: {argument}={names!r} is not a name or several names")
    return listed


def _html(body: bytes, title: str) -> str:
    # As it can stand inside of a page.
    script = _safe(_static("report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _PAGE.format(
        policy=_POLICY.format(digest=digest),
        version=tensorboard_torchexplorer.__version__,
        # A lone surrogate, which a file name may hold, can't be written.
        title=html.escape(title.encode("utf-8", "replace").decode()),
        id=REPORT_ID,
        records=base64.b64encode(body).decode(),
        licenses=_safe(_static("THIRD_PARTY_LICENSES.md")),
        script=script,
    )


def _static(name: str) -> str:
    """A file of the built tab. Raises FileNotFoundError where it is not built."""
    file = resources.files("tensorboard_torchexplorer").joinpath("static", name)
    if not file.is_file():
        raise FileNotFoundError(
            f"tensorboard_torchexplorer/static/{name} is not built: run npm run build in frontend/"
        )
    return file.read_text("utf-8")


def _safe(text: str) -> str:
    """The text as it can stand in a script element. Only these three would end it or change how it is read;
    in a string of JavaScript both forms mean the same."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("<script", "\\x3cscript")
