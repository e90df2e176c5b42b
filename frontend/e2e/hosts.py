"""TensorBoard where it is met in practice, for hosts.spec.ts: under a path prefix, behind a proxy that strips
another, in a frame on a page of another origin; with hundreds of runs, some of them in trouble.

Prints one line of JSON: `prefix` and `proxy` lead to the same TensorBoard, `notebook` and `stranger` to a
page with a frame, on the same site as TensorBoard but of another origin, and on another site. Then it obeys
one word a line on stdin and prints `done` after each: `stop` and `start` end and start TensorBoard behind
the proxy, `run` writes the run "later", `step` logs one more step of it. Ends with stdin.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import events
from tests import record_graphs, records
from tests.tensorboard_server import tensorboard_server

RUNS = 300
PREFIX = "/team/board"
STRIPPED = "/user/me/proxy/6006"
KEPT_HEADERS = ("content-type", "content-encoding", "content-security-policy", "cache-control", "etag")


class Proxy(ThreadingHTTPServer):
    """Passes what lies under `STRIPPED` on to `upstream`, less that prefix. /notebook has an empty frame."""

    daemon_threads = True
    upstream = ""


class Passing(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        if self.path == "/notebook":
            page = b"<title>Notebook</title><iframe width=1200 height=800></iframe>"
            self._answer(200, {"content-type": "text/html"}, page)
        elif self.path.startswith(STRIPPED + "/"):
            self._pass(self.server.upstream.rstrip("/") + self.path[len(STRIPPED) :])
        else:
            self._answer(404, {"content-type": "text/html"}, b"<h1>not behind this proxy</h1>")

    def do_POST(self) -> None:
        self.do_GET()

    def _pass(self, address: str) -> None:
        kept = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        sent = self.rfile.read(int(self.headers.get("content-length", 0))) if self.command == "POST" else None
        request = urllib.request.Request(address, sent, kept, method=self.command)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, headers, body = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, headers, body = error.code, error.headers, error.read()
        except OSError:
            self._answer(502, {"content-type": "text/html"}, b"<h1>Bad gateway</h1>")
            return
        found = {name: headers[name] for name in KEPT_HEADERS if headers[name]}
        self._answer(status, found, body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing: the tests' own output is enough."""


def troubled(logdir: Path) -> None:
    """Runs that lost records and a rank, that stopped before their first step, and of a newer format."""
    run = records.Run(record_graphs.small())
    lost = replace(run.record(0), info=replace(run.record(0).info, dropped=4, ranks=2, missing=[2]))
    for name, record in (("lossy", lost), ("no step yet", None), ("newer", lost)):
        with SummaryWriter(logdir / name) as writer:
            values = events.graph_values(run.graph) + (events.step_values(record) if record else [])
            for value in values if name == "newer" else []:
                value.metadata.plugin_data.content = b'{"version": 7}'
            writer._get_file_writer().add_summary(Summary(value=values), 0)


def main() -> None:
    with ExitStack() as opened:
        logdir = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        with SummaryWriter(logdir / "a first") as writer:
            records.write(writer, records.Run(record_graphs.resnet()), range(5))
            writer.add_scalar("loss", 1, 0)
        for number in range(RUNS):
            with SummaryWriter(logdir / f"sweep/{number:03}") as writer:
                records.write(writer, records.Run(record_graphs.small()), range(2))
        troubled(logdir)
        proxy = Proxy(("127.0.0.1", 0), Passing)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        opened.callback(proxy.shutdown)
        running = opened.enter_context(ExitStack())

        def start() -> None:
            server = running.enter_context(tensorboard_server(logdir, extra=[f"--path_prefix={PREFIX}"]))
            server.wait_for_steps("sweep/299", "model", 1)
            proxy.upstream = server.url

        start()
        later = records.Run(record_graphs.small(), seed=3)
        steps = count()
        live: SummaryWriter | None = None
        origin = f"127.0.0.1:{proxy.server_port}"
        addresses = {
            "prefix": proxy.upstream,
            "proxy": f"http://{origin}{STRIPPED}/",
            "notebook": f"http://{origin}/notebook",
            "stranger": f"http://localhost:{proxy.server_port}/notebook",
        }
        print(json.dumps(addresses), flush=True)
        for line in sys.stdin:
            command = line.strip()
            if command == "stop":
                running.close()
            elif command == "start":
                start()
            elif command == "run":
                live = opened.enter_context(SummaryWriter(logdir / "later"))
                records.write(live, later, [next(steps)])
            elif command == "step" and live is not None:
                records.write(live, later, [next(steps)], graph=False)
            else:
                raise SystemExit(f"cannot {command!r}")
            if live is not None:
                live.flush()
            print("done", flush=True)


if __name__ == "__main__":
    main()
