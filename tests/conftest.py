"""What several test files use: golden files, and a real TensorBoard.

`pytest --update-golden` writes the golden files anew, and their diff is the review.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does.
settings.register_profile("torchexplorer", deadline=None)
settings.load_profile("torchexplorer")

# The models here are small: two threads wait for each other longer than they work. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"

# The files that take longest, many of them because they wait for processes of their own: they begin first, so
# that at the end of a run no worker of xdist is left alone with one of them.
LONG = [
    "neutral",
    "server",
    "faults",
    "examples",
    "server_cases",
    "notebook",
    "modes_compile",
    "integration_processes",
    "ranks",
    "packaging",
    "integration_lightning",
    "modes_processes",
    "integration_transformers",
    "modes_compile_steps",
    "server_resume",
    "cli",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ anew instead of comparing"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {TESTS / f"test_{name}.py": place for place, name in enumerate(LONG)}
    assert all(path.exists() for path in order), "LONG names a file that is not there"
    items.sort(key=lambda item: order.get(item.path, len(order)))


def pytest_collection_finish() -> None:
    """All that was imported until now stays. Each garbage collection, and the search for optimizers with each
    watch, would go through it again: half of the processor time of some files."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, Any], None]:
    """`golden(name, value)` asserts that a JSON value is the one in tests/golden/<name>.json."""

    def check(name: str, value: Any) -> None:
        path = GOLDEN / f"{name}.json"
        text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path.name} does not exist: run pytest --update-golden and read what it wrote"
        assert json.loads(text) == json.loads(path.read_text(encoding="utf-8"))

    return check


@pytest.fixture(scope="session")
def recorded_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory to read: `tests.plugin_records.write_runs`."""
    from tests.plugin_records import write_runs

    path = tmp_path_factory.mktemp("runs")
    write_runs(path)
    return path


@pytest.fixture
def held() -> Iterator[Any]:
    """A task for the thread beside the training, which waits there until the test lets it `go`."""
    from tests.background_records import Held

    task = Held()
    yield task
    task.go.set()


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """`serve(logdir, python=sys.executable, **environment)` starts `tensorboard-torchexplorer show` on a
    free port of 127.0.0.1 and gives the server's address, which ends in a slash, until the end of the test.
    """
    with ExitStack() as servers:

        def start(logdir: Path, python: str | Path = sys.executable, **environment: str) -> str:
            return servers.enter_context(_server(logdir, python, environment))

        yield start


@contextmanager
def _server(logdir: Path, python: str | Path, environment: dict[str, str]) -> Iterator[str]:
    command = [python, "-m", "tensorboard_torchexplorer", "show", str(logdir)]
    log = logdir.parent / f"{logdir.name}.server.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            cwd=logdir,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # Who starts tests in the background of a script passes on that Ctrl+C is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as server,
    ):
        try:
            line = server.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/(?=#torchexplorer)", line)
            assert address, f"show printed {line!r}\n{log.read_text()}"
            yield address[0]
        finally:
            server.send_signal(signal.SIGINT)
            try:
                assert server.wait(60) == 0
            finally:
                server.kill()  # else the end of the block would wait for ever


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """A worker of xdist has ended: print its table of neutrality in the summary, if it has made one."""
    found = getattr(node, "workeroutput", {}).get("neutral")
    if found is not None:
        from test_neutral import Table

        table = Table()
        table.rows, table.reasons = found
        node.config.pluginmanager.register(table)
