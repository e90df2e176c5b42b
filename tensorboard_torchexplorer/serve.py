"""A log directory in, the address of a TensorBoard that shows it out. Never imports torch.

`launch` runs it in this process, for the command line. `serve` runs it in a process of its own, for a
training script: its requests then take no time of the training, and it ends with the script however that
ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
import webbrowser
from types import TracebackType
from typing import IO

from tensorboard_torchexplorer.arguments import path_of, require_whole

HOST = "127.0.0.1"
"""Nobody but this machine is served: a log directory may hold what is nobody else's business."""

_END_SECONDS = 10


def launch(logdir: str | os.PathLike[str], port: int = 0) -> str:
    """Start TensorBoard on `port` of this machine (0: a free one) in threads of this process.

    Returns the address that opens the TorchExplorer tab. Raises ValueError for a port or path that is none,
    OSError if it can't start, for one because the port is taken."""
    directory = path_of("serve", "logdir", logdir)
    require_whole("serve", "port", port, 0, 65535)
    from tensorboard import program

    server = program.TensorBoard()
    # A directory may have a name that begins like an option.
    server.configure(argv=["tensorboard", f"--logdir={directory}", "--host", HOST, "--port", str(port)])
    try:
        return f"{server.launch()}#torchexplorer"
    except program.TensorBoardServerException as error:
        raise OSError(f"TensorBoard can't start on port {port}: {error.msg}") from None


class Server:
    """A TensorBoard in a process of its own; `url` opens the TorchExplorer tab.

    It ends with `close()`, with the `with` block it is used in, or with this process. In a notebook that is
    the kernel."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self._process = process
        self._end = weakref.finalize(self, _end, process)
        self._end.atexit = True

    def close(self) -> None:
        """End the server. Closing twice is harmless."""
        self._end()

    def __repr__(self) -> str:
        return f"<TensorBoard at {self.url}>" if self._end.alive else "<TensorBoard, ended>"

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(logdir: str | os.PathLike[str], port: int = 0, *, browser: bool = False) -> Server:
    """Start TensorBoard on `logdir` in a process of its own, print its address, and with `browser` open it.

    `port` 0 takes a free one. Raises ValueError for a port or path that is none, OSError if TensorBoard can't
    start."""
    directory = path_of("serve", "logdir", logdir)
    require_whole("serve", "port", port, 0, 65535)
    process = subprocess.Popen(
        # Not -m: the package's name then comes from a module that runs as __main__.
        [sys.executable, "-c", f"from {__name__} import main; main()", directory, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Ctrl+C is for the training, which may catch it and go on. The second is the first's on Windows.
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    answer = json.loads(line) if line else {"error": f"it ended with code {process.wait()}"}
    if "error" in answer:
        _end(process)
        raise OSError(f"serve: {answer['error']}")
    server = Server(answer["url"], process)
    announce(server.url, browser=browser)
    return server


def announce(url: str, *, browser: bool) -> None:
    """Print the address, and with `browser` open it."""
    print(f"TorchExplorer: {url}", flush=True)
    if browser and not webbrowser.open(url):
        print("There is no browser to open it with.", file=sys.stderr)


def main() -> None:
    """The process that `serve` starts: prints {"url": ...} or {"error": ...}, and ends with its stdin."""
    logdir, port = sys.argv[1:]
    # What TensorBoard prints must not come before our line.
    answers, sys.stdout = sys.stdout, sys.stderr
    try:
        answer = {"url": launch(logdir, int(port))}
    except OSError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), file=answers, flush=True)
    if "url" in answer:
        _wait_for_the_end_of(sys.stdin)


def _wait_for_the_end_of(stream: IO[str]) -> None:
    while stream.read(1 << 16):
        pass


def wait() -> None:
    """Sleep until Ctrl+C."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
