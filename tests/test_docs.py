"""The README and docs/ against what they speak of: their code runs, and tables are complete."""

from __future__ import annotations

import inspect
import re
import socket
import types
from pathlib import Path

import pytest
import torch
import wandb
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tensorboard_torchexplorer
from tensorboard_torchexplorer import watch_model
from tensorboard_torchexplorer.plugin import TorchExplorerPlugin
from tensorboard_torchexplorer.schema import HEALTH, STATUS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Each read once: a page that is saved or checked out meanwhile is empty for a moment.
TEXTS = {page.stem: page.read_text("utf-8") for page in PAGES}
README = TEXTS["README"]


def blocks(language: str, page: str = "README") -> list[str]:
    """The code blocks of a page in `language`."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXTS[page], re.M | re.S)


def table(heading: str) -> dict[str, list[str]]:
    """The first table under `heading`: each row's first cell, without backquotes, to its other cells."""
    _, found, rest = README.partition(f"# {heading}\n")
    assert found, f"README.md, of {len(README)} characters, has no heading {heading!r}"
    section = re.split(r"^#+ ", rest, maxsplit=1, flags=re.M)[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in rows[1:]}


@pytest.fixture
def readers_names() -> dict[str, object]:
    """What a reader of the README has before the first block: a model and what trains it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(72, 10))
    return {
        "model": model,
        "loader": DataLoader(TensorDataset(torch.randn(12, 1, 8, 8), torch.randint(10, (12,))), batch_size=4),
        "criterion": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }


@pytest.mark.filterwarnings("ignore")  # of trainers
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_python_block_runs(page, readers_names, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wandb.teardown()  # it reads the environment once
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))  # as torchrun does
    for block in blocks("python", page.stem):
        above = TEXTS[page.stem].partition(block)[0].count("\n")  # an error shows its line
        exec(compile("\n" * above + block, str(page), "exec"), readers_names)

    assert list(tmp_path.rglob("events.out.tfevents.*")) or not blocks("python", page.stem)
    assert page.stem != "README" or "identical: " in capsys.readouterr().out


def test_every_make_command_is_a_target():
    named = set(re.findall(r"\bmake ([a-z]+)", README)) - {"test", "demo"}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))

    assert {"demo", "test"} <= targets
    assert named <= targets


def test_the_first_example_adds_two_lines_to_a_usual_loop():
    """The import and `watch`; a SummaryWriter and its scalars are there without us."""
    first, *_ = blocks("python")
    ours = [line for line in first.splitlines() if "explorer" in line.lower() or "watch" in line]

    assert len(ours) == 3
    assert ours[1] == 'with ExplorerWriter("runs/resnet18") as writer:'


def test_the_table_of_examples_is_complete():
    modules = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"command_line", "data"}

    assert set(table("Use")) == modules


def test_the_options_of_watch_are_documented_with_their_defaults():
    parameters = inspect.signature(watch_model).parameters
    actual = {name: repr(p.default) for name, p in parameters.items() if name not in ("writer", "model")}

    assert {name: cells[0].strip("`") for name, cells in table("Options of `watch`").items()} == actual


def test_the_table_of_routes_is_that_of_the_plugin():
    plugin = TorchExplorerPlugin(types.SimpleNamespace(data_provider=None))
    documented = {re.split(r"[?[]", route)[0] for cell in table("Routes") for route in cell.split("`, `")}
    served = {re.sub(r"^/extras-.*\.js$", "/extras-….js", route) for route in plugin.get_plugin_apps()}

    assert {f"/{route}" for route in documented} == served


@pytest.mark.parametrize("name", tensorboard_torchexplorer.__all__)
def test_every_public_name_is_documented(name):
    assert name == "__version__" or f"`{name}" in README or f" {name}(" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_pictures_of_a_page_lead_somewhere(page):
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXTS[page.stem]) if "://" not in link]

    assert [link for link in links if not (page.parent / link.partition("#")[0]).exists()] == []


def test_the_changelog_begins_with_the_version_or_with_what_is_unreleased():
    first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)

    assert first is not None
    assert first[1].startswith(("Unreleased", tensorboard_torchexplorer.__version__))


def test_every_reason_for_a_blank_panel_has_its_remedy():
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", TEXTS["troubleshooting"], re.M)

    assert [text for text, _ in rows if text in STATUS] == list(STATUS[1:])


def test_every_statistic_is_explained():
    assert re.findall(r"^\| [A-Z].*, `(\w+)` \|", TEXTS["heat-maps"], re.M) == list(HEALTH)
