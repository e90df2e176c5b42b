"""Wheel and sdist: what is in them, and that everything works from the wheel alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import tensorboard
import torch

import tensorboard_torchexplorer

ROOT = Path(__file__).parent.parent
PACKAGE = Path("tensorboard_torchexplorer")


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """The sdist of the sources, and the wheel that is built from it. From a copy, because building leaves
    files behind."""
    copy = tmp_path_factory.mktemp("sources")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "Makefile"):
        shutil.copy(ROOT / name, copy)
    for name in ("README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    skipped = shutil.ignore_patterns("__pycache__", "node_modules", "dist", "test-results")
    for name in (PACKAGE, "benchmarks", "docs", "examples", "frontend", "scripts", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=skipped)
    python("-m", "build", "--no-isolation", "--skip-dependency-check", ".", cwd=copy)
    return copy / "dist"


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """A directory that holds what the wheel installs, and nothing else."""
    directory = tmp_path_factory.mktemp("site")
    pip("install", "--no-deps", str(wheel), "--target", str(directory), cwd=directory)
    return directory


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """`bin/` of a virtual environment that holds only the wheel, and sees torch and TensorBoard where they
    are installed already."""
    directory = tmp_path_factory.mktemp("environment")
    python("-m", "venv", "--without-pip", str(directory), cwd=directory)
    binaries = directory / "bin"
    pip("--python", str(binaries / "python"), "install", "--no-deps", str(wheel), cwd=directory)
    (packages,) = directory.glob("lib/python*/site-packages")
    # Directories that are named so are searched, but no .pth file in them is read: not that of the checkout.
    shared = {str(Path(module.__file__).parent.parent) for module in (tensorboard, torch)}
    (packages / "shared.pth").write_text("\n".join(sorted(shared)))
    return binaries


def pip(*arguments: str, cwd: Path) -> None:
    python("-m", "pip", "--quiet", "--disable-pip-version-check", *arguments, cwd=cwd)


def python(*arguments: str, cwd: Path) -> None:
    run = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_wheel_holds_the_package_with_its_tab_and_nothing_else(wheel):
    files = [
        path for path in (ROOT / PACKAGE).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}

    assert packed == {str(path.relative_to(ROOT)): path.read_bytes() for path in files}
    assert packed["tensorboard_torchexplorer/static/index.js"]


def test_c86_the_wheel_says_its_version_and_needs_four_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    needs = {need.split(">")[0] for need in metadata.get_all("Requires-Dist") if "extra ==" not in need}

    assert metadata["Version"] == tensorboard_torchexplorer.__version__
    assert needs == {"torch", "tensorboard", "numpy", "werkzeug"}


def test_c86_tensorboard_shows_the_tab_of_an_installed_wheel(site, serve, tmp_path):
    address = serve(tmp_path, PYTHONPATH=str(site))
    with urllib.request.urlopen(f"{address}data/plugin/torchexplorer/index.js", timeout=60) as answer:
        script = answer.read()

    assert script == (site / PACKAGE / "static" / "index.js").read_bytes()


def test_an_installed_wheel_is_found_before_the_sources(site, tmp_path):
    """Else the test before this one would be about the sources."""
    code = (
        "from importlib.metadata import entry_points\n"
        "(found,) = entry_points(group='tensorboard_plugins', name='torchexplorer')\n"
        "import sys; print(sys.modules[found.load().__module__].__file__)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert Path(run.stdout.strip()) == site / PACKAGE / "loader.py"


def test_pypi_would_take_them(dist):
    python("-m", "twine", "check", "--strict", *map(str, dist.iterdir()), cwd=dist)


def test_the_page_on_pypi_has_no_links_to_files_that_are_not_there(wheel):
    """Its text is that of the README all the same, and its code unchanged."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        shown = Parser().parsestr(archive.read(name).decode()).get_payload()
    readme = (ROOT / "README.md").read_text("utf-8")
    fence = re.compile(r"^```.*?^```$", re.M | re.S)
    links = re.findall(r"\]\(([^)]*)\)", fence.sub("", shown))

    assert all(link.startswith(("https://", "#")) for link in links)
    assert "](docs/" in readme
    assert "![" not in shown
    assert fence.findall(shown) == fence.findall(readme)
    assert re.findall(r"^#+ .*", shown, re.M) == re.findall(r"^#+ .*", readme, re.M)
    assert "With pictures and what to look for: docs/heat-maps.md." in shown
    assert "\nRecords (docs/records.md) says " in shown


def test_the_licenses_of_the_bundled_javascript_are_in_both(dist, wheel):
    (sdist,) = dist.glob("*.tar.gz")
    name = "tensorboard_torchexplorer/static/THIRD_PARTY_LICENSES.md"
    with tarfile.open(sdist) as archive:
        (member,) = (found for found in archive.getnames() if found.endswith(f"/{name}"))
        in_sdist = archive.extractfile(member).read()
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = archive.read(name)
        beside = [found for found in archive.namelist() if re.search(r"\.dist-info/.*LICENSE", found)]

    dependencies = json.loads((ROOT / "frontend" / "package.json").read_text("utf-8"))["dependencies"]
    assert in_sdist == in_wheel
    for package in dependencies:
        assert f"\n## {package} - ".encode() in in_wheel
    assert {Path(found).name for found in beside} == {"LICENSE", "THIRD_PARTY_LICENSES.md"}


def test_the_sdist_can_build_the_tab_and_run_the_tests(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}

    assert {"frontend/package-lock.json", "frontend/src/index.ts", "tests/conftest.py", "Makefile"} <= inside
    assert not any("node_modules" in name or name.endswith(".pyc") for name in inside)


def test_the_demo_of_an_installed_wheel_leaves_a_run_that_the_tab_shows(environment, serve, tmp_path):
    command = environment / "tensorboard-torchexplorer"
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run = subprocess.run(
        [command, "demo", "--steps", "6", "--no-serve"],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found = subprocess.run(
        [environment / "python", "-c", "import tensorboard_torchexplorer as t; print(t.__file__)"],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(environment.parent)

    address = serve(tmp_path / "runs", python=environment / "python")
    deadline = time.monotonic() + 60
    while not (runs := answer(f"{address}data/plugin/torchexplorer/runs")["runs"]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    ((model,),) = [run["models"] for run in runs]
    assert (model["name"], model["steps"], model["problem"]) == ("ByteModel", 2, "")


def answer(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as response:
        return json.load(response)
