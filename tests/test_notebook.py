"""Notebooks, executed by a real Jupyter kernel."""

from __future__ import annotations

import html
import json
import re
import stat
import sys
import urllib.request
from pathlib import Path

import pytest

from tensorboard_torchexplorer import ExplorerWriter, read
from tests.chromium import look_at, needs_chromium
from tests.test_report import Page
from tests.test_serve import record

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

MODEL = """
import torch
from torch import nn
from tensorboard_torchexplorer import ExplorerWriter

model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = ExplorerWriter("runs/first")
"""

TRAIN = """
writer.watch(model, log_freq=1)
for _ in range(2):
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def execute(directory: Path, *cells: str) -> list[list[dict]]:
    """The outputs of each cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(directory)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    return [cell.outputs for cell in notebook.cells]


@needs_chromium
def test_a_cell_may_run_again_and_show_embeds_the_report(tmp_path):
    outputs = execute(tmp_path, MODEL, TRAIN, TRAIN, "writer.show(height=500)", TRAIN, "writer.close()")
    model = read(tmp_path / "runs")["first"]["Sequential"]

    assert outputs[1] == outputs[2] == outputs[4] == []
    assert model.history().steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(model.graph.nodes) == 3
    (shown,) = outputs[3]
    frame = tmp_path / "output.html"
    frame.write_text(shown["data"]["text/html"], "utf-8")
    ((tag, attributes, _),) = Page(frame.read_text("utf-8")).elements
    assert (tag, attributes["sandbox"]) == ("iframe", "allow-scripts allow-downloads")
    assert "height: 500px" in attributes["style"]
    # A browser shows the DOM of the outer page only, so look at what the frame holds.
    inner = tmp_path / "inner.html"
    inner.write_text(html.unescape(attributes["srcdoc"]), "utf-8")
    look = look_at(inner.as_uri(), tmp_path / "profile")
    assert '<span class="node-title">0</span>' in look.dom
    assert look.console == []


def test_the_magic_of_tensorboard_shows_the_tab(tmp_path, monkeypatch):
    """With the kernel's own Python as the `tensorboard` command, which need not be on the path."""
    command = tmp_path / "tensorboard"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tensorboard.main "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TENSORBOARD_BINARY", str(command))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ask = """
import json, urllib.request
from tensorboard import manager
(info,) = manager.get_all()
url = f"http://127.0.0.1:{info.port}/"
print(urllib.request.urlopen(url + "data/plugins_listing").read().decode())
"""
    end = "import os, signal; os.kill(info.pid, signal.SIGTERM)"
    cells = [MODEL, TRAIN, "writer.flush()", "%load_ext tensorboard", "%tensorboard --logdir runs --port 0"]
    *_, shown, listing, _ = execute(tmp_path, *cells, ask, end)

    assert any("iframe" in str(output) for output in shown)
    assert json.loads(listing[0]["text"])["torchexplorer"]["tab_name"] == "TorchExplorer"


def test_a_server_of_a_notebook_ends_with_its_kernel(tmp_path):
    (*_, served) = execute(tmp_path, MODEL, "server = writer.serve()")
    (address,) = re.findall(r"http://[^#]+", served[0]["text"])

    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=60)


def test_outside_of_a_notebook_it_says_what_to_do(tmp_path):
    with ExplorerWriter(tmp_path) as writer:
        record(writer)
        with pytest.raises(RuntimeError, match=r"elsewhere use serve\(\) or export_report\(path\)"):
            writer.show()


@pytest.mark.parametrize("height", [0, True, "500", 1.5])
def test_a_height_that_is_none_is_refused(height, tmp_path):
    with ExplorerWriter(tmp_path) as writer:
        record(writer)
        with pytest.raises(ValueError, match=f"show: height={height!r} is not"):
            writer.show(height=height)


def test_without_ipython_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    with ExplorerWriter(tmp_path) as writer:
        record(writer)
        with pytest.raises(ImportError, match="pip install ipython"):
            writer.show()
