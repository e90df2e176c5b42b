"""The report file: what it holds against what the routes answer, and that nothing can break out of it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from tensorboard_torchexplorer import ExplorerWriter, report, schema_json
from tensorboard_torchexplorer.backend import Backend
from tensorboard_torchexplorer.cli import main
from tensorboard_torchexplorer.reader import FileSource
from tensorboard_torchexplorer.report import export, page
from tensorboard_torchexplorer.schema import HEALTH, REPORT_ID
from tests import record_graphs, records
from tests.test_serve import record

HOSTILE = "<script>alert(1)<!--'\"&\u202e"


class Page(HTMLParser):
    """The elements of a page as a browser reads them: tag, attributes, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), ""))
        self._ended = False

    def handle_endtag(self, tag):
        self._ended = True

    def handle_data(self, data):
        if self.elements and not self._ended:
            tag, attributes, text = self.elements[-1]
            self.elements[-1] = (tag, attributes, text + data)

    def the(self, tag: str, **attributes: str) -> str:
        """The text of the only such element."""
        (text,) = (
            text for found, own, text in self.elements if found == tag and attributes.items() <= own.items()
        )
        return text


@dataclass
class Held:
    """The records in a page."""

    head: dict[str, Any]
    parts: list[bytes]

    @classmethod
    def of(cls, text: str) -> Held:
        body = base64.b64decode(Page(text).the("script", id=REPORT_ID), validate=True)
        at = 4 + int.from_bytes(body[:4], "little")
        head = json.loads(zlib.decompress(body[4:at]))
        parts = []
        for length in head["parts"]:
            parts.append(zlib.decompress(body[at : at + length]))
            at += length
        assert at == len(body)
        return cls(head, parts)

    def model(self, run: str, model: str) -> dict[str, Any]:
        return next(m for m in self.head["models"] if (m["run"], m["model"]) == (run, model))

    def json(self, part: int) -> Any:
        return json.loads(self.parts[part])


@pytest.fixture(scope="module")
def logdir(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("runs")
    records.demo(directory, 30)
    return directory


def plain(answer: Any) -> Any:
    return json.loads(schema_json.dumps(answer))


@pytest.mark.parametrize(
    ("run", "model"),
    [
        ("resnet18/first", "resnet18"),
        ("resnet18/second", "resnet18"),
        ("several models", records.ODD_NAMES[5]),
    ],
)
def test_it_holds_what_the_routes_answer(run, model, logdir):
    source, backend = FileSource(logdir), Backend()
    opened = backend.open(source, run, model)
    held = Held.of(page(logdir, steps=12))
    found = held.model(run, model)

    assert held.head["runs"] == plain(backend.runs(source))
    assert held.json(found["steps"]) == plain(backend.steps(opened))
    assert found["ids"] == [node.id for node in opened.view.graph.nodes]
    for node, level, series in zip(found["ids"], found["levels"], found["series"], strict=True):
        assert held.json(level) == plain(backend.level(opened, node))
        assert held.parts[series] == backend.series(source, opened, node, 12)
    assert held.json(found["search"]) == plain(opened.view.searchable)


def test_it_holds_the_statistics_of_the_steps_it_keeps(logdir):
    source, backend = FileSource(logdir), Backend()
    opened = backend.open(source, "resnet18/first", "resnet18")
    held = Held.of(page(logdir, steps=12))
    parts = held.model("resnet18/first", "resnet18")["health"]
    answers = {name: held.json(part) for name, part in zip(HEALTH, parts, strict=True)}

    for name in HEALTH:
        assert [answer["step"] for answer in answers[name]] == [0, 3, 5, 8, 11, 13, 16, 18, 21, 24, 26, 29]
        for answer in answers[name][::5]:
            whole = plain(backend.health(source, opened, name, answer["step"]))
            for key in ("own", "worst", "low", "high"):
                # None becomes NaN.
                mine, theirs = (np.array(part.pop(key), np.float64) for part in (answer, whole))
                np.testing.assert_allclose(mine, theirs, rtol=1e-5)
            assert answer == whole
    assert None in answers["parameter"][1]["own"]


def test_only_the_tab_may_run_in_it_and_nothing_may_be_fetched(logdir):
    text = page(logdir)
    found = Page(text)
    (policy,) = (own["content"] for tag, own, _ in found.elements if tag == "meta" and "http-equiv" in own)
    script = found.the("script", type="module")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert set(rules) == {"default-src", "script-src", "img-src", "base-uri"}
    assert "unsafe" not in policy
    assert not re.search(r"""(src|href)=["']""", text[: text.index("<body>")])
    scripts = [own["type"] for tag, own, _ in found.elements if tag == "script"]
    assert scripts == ["application/octet-stream", "text/plain", "module"]


def test_the_licenses_of_what_is_in_the_tab_go_with_it(logdir):
    licenses = Page(page(logdir)).the("script", id="licenses")

    for package in ("preact", "@preact/signals", "@preact/signals-core"):
        assert f"\n## {package} - " in licenses
    assert "Permission is hereby granted" in licenses


def test_names_cannot_break_out(tmp_path):
    directory = tmp_path / HOSTILE / "run"
    with SummaryWriter(directory) as writer:
        records.write(writer, records.Run(record_graphs.small("</script>" + HOSTILE)), range(2))
    single = page(directory)
    found = Page(single)

    assert [tag for tag, _, _ in found.elements].count("script") == 3
    assert HOSTILE in Page(page(tmp_path)).the("title")
    assert Held.of(single).head["models"][0]["model"] == "</script>" + HOSTILE


def test_a_script_that_holds_markup_stays_one_script(logdir, monkeypatch, tmp_path):
    static = tmp_path / "static"
    static.mkdir()
    (static / "THIRD_PARTY_LICENSES.md").write_text("none")
    (static / "report.js").write_text('const a = "</script><script><!--"', "utf-8")
    monkeypatch.setattr(report.resources, "files", lambda package: tmp_path)

    assert Page(page(logdir)).the("script", type="module") == r'const a = "<\/script>\x3cscript><\!--"'

    (static / "report.js").unlink()
    with pytest.raises(FileNotFoundError, match=r"static/report.js is not built: run npm run build"):
        page(logdir)


def test_runs_and_models_are_chosen_by_name_or_glob(logdir):
    def chosen(**options: Any) -> list[tuple[str, str]]:
        held = Held.of(page(logdir, steps=2, **options))
        runs = held.head["runs"]["runs"]
        found = [(model["run"], model["model"]) for model in held.head["models"]]
        assert found == [(run["name"], model["name"]) for run in runs for model in run["models"]]
        return found

    both = [("several models", name) for name in sorted([records.ODD_NAMES[5], "vqvae"])]
    assert chosen(runs="several models") == both
    assert chosen(runs=["resnet18/*"]) == [(f"resnet18/{n}", "resnet18") for n in ("first", "second")]
    assert chosen(models=["vqvae"]) == [("several models", "vqvae")]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"runs": ["nothing"]}, r"runs='nothing' is none of 'resnet18/first', 'resnet18/second', 'several"),
        ({"models": ["nothing"]}, "models='nothing' is none of 'resnet18', "),
        ({"runs": ["resnet18/first"], "models": ["vqvae"]}, "models='vqvae' is none of 'resnet18'$"),
        ({"runs": [1]}, r"runs=\[1\] is not a name"),
        ({"steps": 1}, "steps=1 is not a whole number from 2 on"),
        ({"steps": True}, "steps=True is not"),
    ],
)
def test_wrong_arguments_are_named(options, problem, logdir):
    with pytest.raises(ValueError, match=f"^export: {problem}"):
        page(logdir, **options)


def test_a_run_that_goes_on_is_taken_as_far_as_it_is(tmp_path):
    with SummaryWriter(tmp_path / "run") as writer:
        records.write(writer, records.Run(record_graphs.small()), range(4))
        writer.flush()
        (file,) = (tmp_path / "run").iterdir()
        file.write_bytes(file.read_bytes()[:-5])
        held = Held.of(page(tmp_path / "run"))

    assert held.json(held.model("run", "model")["steps"])["train"] == [0, 1, 2]


def test_without_records_it_says_why(tmp_path):
    with pytest.raises(ValueError, match=f"export: logdir='{tmp_path}' holds no records$"):
        page(tmp_path)
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"123")
    with pytest.raises(ValueError, match=r"holds no records; \.: events.out.tfevents.1.host: ends within"):
        page(tmp_path)
    with pytest.raises(FileNotFoundError, match="logdir: there is no directory"):
        page(tmp_path / "missing")


def test_a_model_that_cannot_be_shown_says_why(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        records.write(writer, records.Run(record_graphs.small("whole")), range(2))
        records.write(writer, records.Run(record_graphs.small("no graph")), range(2), graph=False)
    held = Held.of(page(tmp_path))
    (run,) = held.head["runs"]["runs"]

    assert {model["name"]: model["problem"] for model in run["models"]} == {
        "whole": "",
        "no graph": "no graph was recorded",
    }
    assert [model["model"] for model in held.head["models"]] == ["whole"]


def test_the_file_appears_whole_or_not_at_all(logdir, tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("before")
    os.chmod(tmp_path, 0o700)
    with monkeypatch.context() as patched:
        patched.setattr(report.os, "replace", lambda source, target: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(logdir, target)

    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert target.read_text() == "before"
    before = os.umask(0o027)
    try:
        assert export(logdir, target) == target.stat().st_size
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_writer_exports_what_it_recorded_so_far(tmp_path):
    with ExplorerWriter(tmp_path / "mine") as writer, ExplorerWriter(tmp_path / "mine" / "other") as other:
        record(other)
        record(writer, steps=3)
        size = writer.export_report(tmp_path / "report.html")
        held = Held.of((tmp_path / "report.html").read_text("utf-8"))

    assert size == (tmp_path / "report.html").stat().st_size
    assert [(model["run"], model["model"]) for model in held.head["models"]] == [("mine", "net")]
    assert held.json(held.model("mine", "net")["steps"])["train"] == [0, 1, 2]


def test_the_command_exports(logdir, tmp_path, capsys):
    target = tmp_path / "out.html"
    arguments = ["export", str(logdir), "-o", str(target), "--run", "resnet18/*", "--steps", "5"]

    assert main(arguments) == 0
    assert capsys.readouterr().out == f"Wrote {target}, {target.stat().st_size / 1e6:.1f} MB\n"
    assert len(Held.of(target.read_text("utf-8")).head["models"]) == 2
    assert main(["export", str(tmp_path / "missing")]) == 1
    assert "error: logdir: there is no directory" in capsys.readouterr().err
