"""The tests under each combination of versions that is said to work. Needs hours, and some 6 GB of disk,
because PyPI's wheels of torch bring CUDA along.

python scripts/matrix.py                     all combinations
python scripts/matrix.py 3.10                those of that Python
python scripts/matrix.py --tests tests/test_cli.py

Each combination has its virtual environment below build/matrix for as long as its tests run; with --keep it
stays there, and the next run takes it as it is. One line for each combination says what came out; what can't
be tried here (no such Python, no such wheel) is said, not skipped in silence, and counts as a failure with
--strict.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "matrix"

# What depends on versions: hooks into torch, trainings of every kind, event files, servers. No browser, no
# trainers, nothing that only waits.
TESTS = (
    "cases_*",
    "checkpoint",
    "cli",
    "end_to_end",
    "gradients*",
    "imports",
    "modes_compile*",
    "modes_distributed",
    "modes_lifetime",
    "modes_transforms",
    "modes_verify",
    "modes_watching",
    "plugin",
    "plugin_series",
    "reader",
    "report",
    "scaler",
    "serve",
    "server*",
    "structure",
    "structure_walk",
    "surroundings*",
    "values*",
    "versions",
)

NEEDED = ("hypothesis", "packaging", "pytest>=8.2", "scikit-learn>=1.3", "tqdm", "transformers>=4.46")


# The newest that pip finds here: which one that is, is said with what came out.
NEWEST = "newest"


@dataclass(frozen=True)
class Combination:
    python: str
    torch: str
    tensorboard: str
    more: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"python {self.python}, torch {self.torch}, tensorboard {self.tensorboard}"

    @property
    def place(self) -> Path:
        """Where its virtual environment is."""
        return PLACE / self.name.replace(", ", "-").replace(" ", "")


# TensorBoard before 2.21 needs pkg_resources, which setuptools 82 no longer has.
_OLD = ("setuptools<81",)

# Tests that speak of what torch 2.6 does not have: the text of BatchNorm, float4, fully_shard on a CPU. And
# what can't be kept there: torch.export of a watched model fails (docs/troubleshooting.md), and what sees
# operators, a dispatch mode around the training or a wrapper of a tensor, sees calls of detach on a logged
# step, which torch adds wherever there is a mode.
_NEWER = (
    "tests/test_end_to_end.py::test_the_graph_has_exactly_the_edges_of_the_forward",
    "tests/test_modes_distributed.py",
    "tests/test_modes_transforms.py::test_tracing_a_watched_model_gives_what_it_gives_unwatched",
    "tests/test_surroundings.py::test_modes_around_the_training[dispatch mode]",
    "tests/test_surroundings_classes.py::test_tensors_with_operators_of_their_own_are_asked_nothing",
    "tests/test_surroundings_readers.py::test_exporting_a_watched_model",
    "tests/test_values.py::test_what_is_not_recorded_says_why[pairs of four bits]",
)

COMBINATIONS = (
    Combination("3.10", "2.6.0", "2.17.0", ("numpy<2", *_OLD), _NEWER),
    Combination("3.11", "2.13.0", "2.20.0", _OLD),
    Combination("3.11", "2.13.0", "2.21.0"),
    Combination("3.12", "2.6.0", "2.17.1", _OLD, _NEWER),
    Combination("3.12", "2.14.1", "2.20.0", _OLD),
    Combination("3.13", NEWEST, "2.21.0"),
)


class Impossible(Exception):
    """This machine can't try the combination; the text says why."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("python", nargs="*", help="only these versions of Python")
    parser.add_argument("--tests", nargs="+", help="what pytest is given")
    parser.add_argument("--keep", action="store_true", help="leave the virtual environments for the next run")
    parser.add_argument("--strict", action="store_true", help="what can't be tried is a failure, too")
    options = parser.parse_args()
    tests = options.tests or [test for name in TESTS for test in matching(f"tests/test_{name}.py")]
    lines, failed = [], False
    for combination in COMBINATIONS:
        if options.python and combination.python not in options.python:
            continue
        try:
            python = environment(combination)
            passed = run(python, tests, combination.without)
            outcome = f"{'passed' if passed else 'FAILED'} ({installed(python)})"
            failed |= not passed
        except Impossible as error:
            outcome = f"not tried: {error}"
            failed |= options.strict
        if not options.keep:
            shutil.rmtree(combination.place, ignore_errors=True)
        lines.append(f"{combination.name}: {outcome}")
        print(lines[-1], flush=True)
    print("\n".join(["", "All of them:", *lines]))
    return int(failed or not lines)


def matching(pattern: str) -> list[str]:
    paths = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(pattern))]
    if not paths:
        raise FileNotFoundError(f"{pattern} matches no file: TESTS is out of date")
    return paths


def environment(combination: Combination) -> Path:
    """The Python of the combination's virtual environment, with everything installed."""
    python = combination.place / "bin" / "python"
    stamp = combination.place / ".complete"
    if not stamp.exists():
        shutil.rmtree(combination.place, ignore_errors=True)
        subprocess.run([interpreter(combination.python), "-m", "venv", combination.place], check=True)
        torch = "torch" if combination.torch == NEWEST else f"torch=={combination.torch}"
        versions = (torch, f"tensorboard=={combination.tensorboard}")
        install(python, "--editable", str(ROOT), *versions, *combination.more, *NEEDED)
        stamp.touch()
    return python


def interpreter(version: str) -> str:
    """A Python of that version: on the path, or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}.*/bin/python{version}"))]
    for candidate in found:
        if (
            candidate
            and subprocess.run([candidate, "-c", "import venv"], capture_output=True).returncode == 0
        ):
            return candidate
    raise Impossible(f"there is no Python {version}")


def install(python: Path, *packages: str) -> None:
    # Most modules of torch are never imported here: compiling them all takes longer than it saves.
    options = ["--quiet", "--no-compile", "--disable-pip-version-check"]
    command = [python, "-m", "pip", "install", *options, *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "ERROR" in line), "pip failed")
        raise Impossible(f"{' '.join(packages)}: {reason}")


def installed(python: Path) -> str:
    """What the environment holds of the packages whose versions matter."""
    program = (
        "from importlib.metadata import version\n"
        "names = ('torch', 'tensorboard', 'numpy', 'transformers')\n"
        "print(', '.join(f'{name} {version(name)}' for name in names))"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(python: Path, tests: list[str], without: tuple[str, ...]) -> bool:
    """Whether the tests pass, but for those `without`. Their output goes where ours goes."""
    # Newer and older packages warn about each other; what fails is what counts here.
    options = ["-q", "-p", "no:cacheprovider", "-W", "default", "--durations=10"]
    options += ["--continue-on-collection-errors"]
    options += [f"--deselect={test}" for test in without]
    command = [python, "-m", "pytest", *options, *tests]
    return subprocess.run(command, cwd=ROOT, stdout=sys.stdout, stderr=sys.stdout).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
