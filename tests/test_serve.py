"""TensorBoard started by us, in this process or in one of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import torch
from torch import nn

from tensorboard_torchexplorer import ExplorerWriter
from tensorboard_torchexplorer.serve import HOST
from tests.tensorboard_server import PLUGIN, Server


def record(writer: ExplorerWriter, steps: int = 2) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with writer.watch(model, "net", log_freq=1):
        for _ in range(steps):
            model(torch.ones(4, 3)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    writer.flush()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status == 200
    except OSError:  # it refuses, or is ending
        return False


def test_a_writer_serves_what_it_records(tmp_path, capfd):
    with ExplorerWriter(tmp_path) as writer:
        record(writer)
        with writer.serve() as server:
            base, hash_mark, tab = server.url.partition("#")
            client = Server(base, server._process, tmp_path)
            client.wait_for_steps(".", "net", 1)
            shown = client.plugin("steps", run=".", model="net")["train"]
            listing = client.get(PLUGIN + "index.js").status

    assert (base[:17], hash_mark + tab) == ("http://127.0.0.1:", "#torchexplorer")
    assert shown == [0, 1]
    assert listing == 200
    assert f"TorchExplorer: {server.url}\n" in capfd.readouterr().out
    assert not answers(base)
    assert repr(server) == "<TensorBoard, ended>"
    server.close()


def test_a_server_ends_with_a_process_that_is_killed(tmp_path):
    code = (
        "from tensorboard_torchexplorer.serve import serve\n"
        f"server = serve({str(tmp_path)!r})\n"
        "print(server._process.pid, flush=True)\n"
        "import time; time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        url, pid = process.stdout.readline().split()[1], int(process.stdout.readline())
        assert answers(url)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    deadline = time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)

    assert not alive(pid)
    assert not answers(url)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ctrl_c_for_the_training_does_not_reach_the_server(tmp_path):
    with ExplorerWriter(tmp_path) as writer, writer.serve() as server:
        assert os.getpgid(server._process.pid) != os.getpgid(0)


def test_a_port_that_is_taken_is_named(tmp_path):
    with ExplorerWriter(tmp_path) as writer, socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        taken = other.getsockname()[1]

        with pytest.raises(OSError, match=rf"serve: TensorBoard can't start on port {taken}: .*in use"):
            writer.serve(taken)


@pytest.mark.parametrize("port", [-1, 65536, "6006", True, 1.5])
def test_a_port_that_is_none_is_refused(port, tmp_path):
    with ExplorerWriter(tmp_path) as writer, pytest.raises(ValueError, match=f"serve: port={port!r} is not"):
        writer.serve(port)
