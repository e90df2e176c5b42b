"""The wheel: what is in it, and that TensorBoard shows the tab from it alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import urllib.request
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import tensorboard_torchexplorer

ROOT = Path(__file__).parent.parent
PACKAGE = Path("tensorboard_torchexplorer")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of the sources, built from a copy, because building leaves files behind."""
    copy = tmp_path_factory.mktemp("sources")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / PACKAGE, copy / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", ".", "--no-build-isolation", "--wheel-dir", "dist", cwd=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """A directory that holds what the wheel installs, and nothing else."""
    directory = tmp_path_factory.mktemp("site")
    pip("install", str(wheel), "--target", str(directory), cwd=directory)
    return directory


def pip(command: str, *arguments: str, cwd: Path) -> None:
    quiet = ["--quiet", "--no-deps", "--disable-pip-version-check"]
    run = subprocess.run(
        [sys.executable, "-m", "pip", command, *quiet, *arguments], cwd=cwd, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_wheel_holds_the_package_with_its_tab_and_nothing_else(wheel):
    files = [
        path for path in (ROOT / PACKAGE).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}

    assert packed == {str(path.relative_to(ROOT)): path.read_bytes() for path in files}
    assert packed["tensorboard_torchexplorer/static/index.js"]


def test_the_wheel_says_its_version_and_needs_four_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    needs = {need.split(">")[0] for need in metadata.get_all("Requires-Dist") if "extra ==" not in need}

    assert metadata["Version"] == tensorboard_torchexplorer.__version__
    assert needs == {"torch", "tensorboard", "numpy", "werkzeug"}


def test_tensorboard_shows_the_tab_of_an_installed_wheel(site, serve, tmp_path):
    address = serve(tmp_path, PYTHONPATH=str(site))
    with urllib.request.urlopen(f"{address}data/plugin/torchexplorer/index.js", timeout=20) as answer:
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
