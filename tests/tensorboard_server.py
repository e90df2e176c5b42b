"""A real `tensorboard` process for tests, and the JSON it answers.

with tensorboard_server(logdir, load_fast="false") as server:
    server.get_json("data/plugin/torchexplorer/runs")
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = "data/plugin/torchexplorer/"
_ENTRY_POINT = "[tensorboard_plugins]\ntorchexplorer = tensorboard_torchexplorer.loader:TorchExplorerLoader\n"
_MAIN = "from tensorboard.main import run_main; run_main()"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """A running TensorBoard. `url` ends in a slash; paths are relative to it."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def get(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", **query: object
    ) -> Answer:
        """The answer, whatever its status."""
        url = self.url + path + ("?" + urllib.parse.urlencode(query) if query else "")
        request = urllib.request.Request(url, headers=headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return Answer(response.status, dict(response.headers), response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read())

    def get_json(self, path: str, **query: object) -> Any:
        """The JSON of an answer that must be 200."""
        answer = self.get(path, **query)
        assert answer.status == 200, (answer.status, answer.body[:500])
        return answer.json

    def plugin(self, route: str, **query: object) -> Any:
        """The JSON that a route of ours answers."""
        return self.get_json(PLUGIN + route, **query)

    def wait_for(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        """What `condition` returns once it is true."""
        deadline = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            assert time.monotonic() < deadline, f"not so after {seconds} s; log:\n{self.output()}"
            time.sleep(0.1)

    def wait_for_steps(self, run: str, model: str, last: int, seconds: float = 60) -> Any:
        """The entry of a model in `runs`, once its last logged step is `last`."""

        def entry() -> Any:
            for found in self.plugin("runs")["runs"]:
                for candidate in found["models"]:
                    if (found["name"], candidate["name"], candidate["last"]) == (run, model, last):
                        return candidate
            return None

        return self.wait_for(entry, seconds)

    def output(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def memory(self) -> int:
        """Resident bytes of TensorBoard and the processes it started."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._pids()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu(self) -> float:
        """Seconds of processor time they have used, which a busy machine does not change much."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._pids()]
        return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")

    def _pids(self) -> list[int]:
        pids = [self.process.pid]
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                text = status.read_text()
            except OSError:
                continue
            if re.search(rf"^PPid:\s*{self.process.pid}$", text, re.MULTILINE):
                pids.append(int(status.parent.name))
        return pids


@contextmanager
def tensorboard_server(
    logdir: Path | str | None,
    load_fast: str = "auto",
    extra: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    main: str = _MAIN,
) -> Iterator[Server]:
    """Starts TensorBoard on a free port and ends it. `load_fast` "false" takes the Python loader, "true"
    the data server; without a `logdir` give `--logdir_spec` in `extra`. `main` is the program to run, for
    tests that must prepare the process."""
    with tempfile.TemporaryDirectory() as scratch:
        variables = {**os.environ, **(environment or {}), "PYTHONUNBUFFERED": "1"}
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *_entry_point(Path(scratch)), *_python_path()])
        command = [sys.executable, "-c", main, "--port=0", "--host=127.0.0.1", f"--load_fast={load_fast}"]
        command += [f"--logdir={logdir}"] if logdir is not None else []
        log = Path(scratch) / "log.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--reload_interval=1", *extra], stdout=output, stderr=output, env=variables
            )
        try:
            yield Server(_address(process, log), process, log)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _entry_point(scratch: Path) -> list[str]:
    """A directory that registers the plugin, unless the package is installed and does so itself."""
    if any(entry.name == "torchexplorer" for entry in entry_points(group="tensorboard_plugins")):
        return []
    found = scratch / "tensorboard_torchexplorer_checkout-0.dist-info"
    found.mkdir()
    (found / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorboard-torchexplorer-checkout\nVersion: 0\n"
    )
    (found / "entry_points.txt").write_text(_ENTRY_POINT)
    return [str(scratch)]


def _python_path() -> list[str]:
    path = os.environ.get("PYTHONPATH")
    return [path] if path else []


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = re.search(r"(http://\S+:\d+/\S*) \(Press", log.read_text(errors="replace"))
        if found:
            return found[1].rstrip("/") + "/"
        if process.poll() is not None:
            raise RuntimeError(
                f"tensorboard ended with {process.returncode}:\n{log.read_text(errors='replace')}"
            )
        time.sleep(0.05)
    raise RuntimeError(f"tensorboard did not start:\n{log.read_text(errors='replace')}")
