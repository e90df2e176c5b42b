"""The distribution: metadata, requirements, the TensorBoard entry point and the built tab.

`static/` is committed, so installing needs no Node. Where it is missing (a checkout in which
someone cleared it), `build_py` makes it with npm, or says that it can't.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
PACKAGE = HERE / "tensorboard_torchexplorer"


def version() -> str:
    """`__version__` of the package, read as text: importing it here would need what it requires."""
    found = re.search(r'^__version__ = "([^"]+)"$', (PACKAGE / "__init__.py").read_text("utf-8"), re.M)
    if found is None:
        raise RuntimeError("tensorboard_torchexplorer/__init__.py has no line '__version__ = \"...\"'")
    return found[1]


def long_description() -> str:
    """The README for a page that has neither its pictures nor the files it leads to, such as PyPI's: without
    the former, and with the names of the latter. Links within the page and to the web stay."""

    def named(link: re.Match[str]) -> str:
        return link["text"] if link["text"] == link["file"] else f"{link['text']} ({link['file']})"

    text = (HERE / "README.md").read_text("utf-8")
    elsewhere = r"\((?!https?://|#)(?P<file>[^)\s#]+)[^)\s]*\)"
    text = re.sub(rf"^!\[[^\]]*\]{elsewhere}\n\n", "", text, flags=re.M)
    return re.sub(rf"\[(?P<text>[^\]]+)\]{elsewhere}", named, text)


class BuildWithTab(build_py):
    """`build_py` that won't make a package without its tab."""

    def run(self) -> None:
        if not (PACKAGE / "static" / "index.js").exists():
            npm = shutil.which("npm")
            if npm is None:
                raise RuntimeError(
                    "tensorboard_torchexplorer/static/index.js is missing; building it needs npm"
                )
            for command in (["ci"], ["run", "build"]):
                subprocess.run([npm, *command], cwd=HERE / "frontend", check=True)
        super().run()


EXAMPLES = ["accelerate>=1.1", "lightning>=2.2", "scikit-learn>=1.3", "tqdm", "transformers>=4.46"]
DEV = [
    "build",
    "hypothesis",
    "ipykernel",
    "mypy>=1.14",
    "nbclient",
    "packaging",
    "pytest>=8.2",
    "pytest-xdist",
    "ruff>=0.9",
    "setuptools>=77",
    "twine",
    "wandb",
]

setup(
    name="tensorboard-torchexplorer",
    version=version(),
    description="A TensorBoard tab that shows what happens inside a PyTorch model while it trains",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "tensorboard_torchexplorer/static/THIRD_PARTY_LICENSES.md"],
    keywords=["pytorch", "tensorboard", "visualization", "histogram", "gradient", "deep learning"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Framework :: PyTorch",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Visualization",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["tensorboard_torchexplorer", "tensorboard_torchexplorer.*"]),
    package_data={"tensorboard_torchexplorer": ["py.typed", "static/*"]},
    # MANIFEST.in is for the sdist alone; a wheel holds what package_data names.
    include_package_data=False,
    python_requires=">=3.10",
    install_requires=["torch>=2.6", "tensorboard>=2.17", "numpy", "werkzeug"],
    extras_require={"examples": EXAMPLES, "dev": [*DEV, *EXAMPLES]},
    entry_points={
        "console_scripts": ["tensorboard-torchexplorer = tensorboard_torchexplorer.cli:main"],
        "tensorboard_plugins": ["torchexplorer = tensorboard_torchexplorer.loader:TorchExplorerLoader"],
    },
    cmdclass={"build_py": BuildWithTab},
    zip_safe=False,
)
