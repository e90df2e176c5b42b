"""Who imports whom. The directions keep TensorBoard's process free of torch, and capture free of files."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tensorboard_torchexplorer

NAME = "tensorboard_torchexplorer"
PACKAGE = Path(tensorboard_torchexplorer.__file__).parent

# What a module, or all of a subpackage, may reach of ours besides itself, through any number of imports.
MAY_REACH = {
    "schema": set(),
    "columns": set(),
    "schema_json": {"schema", "columns"},
    "rows": {"schema"},
    "events": {"schema", "schema_json", "columns", "rows"},
    "packed": set(),
    "slots": set(),
    "whole": {"schema"},
    "sampling": {"schema", "slots", "packed", "whole"},
    "capture": {"schema", "sampling", "slots", "packed", "whole"},
}

# What they never reach of others, in the same sense.
NEVER = {
    "schema": {"numpy", "torch", "tensorboard", "werkzeug"},
    "sampling": {"tensorboard", "werkzeug"},
    "capture": {"tensorboard", "werkzeug"},
    "events": {"torch"},
    "loader": {"torch"},
    "plugin": {"torch"},
    "reader": {"torch"},
    "report": {"torch"},
    "serve": {"torch"},
    "writer": {"werkzeug", "accelerate", "lightning", "pytorch_lightning", "transformers"},
}


def imported(tree: ast.AST, module: str) -> Iterator[str]:
    """Dotted names that the code of `module` imports anywhere, other than for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        else:
            yield from imported(node, module)


@cache
def import_graph(package: Path) -> dict[str, set[str]]:
    """Each module of `package` to what it imports: modules of the package, or first names of others."""
    files = {module_name(package, path): path for path in package.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        # Relative imports count from the directory, which for a package is its own name.
        inside = f"{module}.__init__" if path.stem == "__init__" else module
        names = set(imported(ast.parse(path.read_text("utf-8")), inside))
        own = {name if name in files else name.rpartition(".")[0] for name in names}
        graph[module] = {name for name in own if name in files}
        graph[module] |= {name.partition(".")[0] for name in names} - {package.name}
    return graph


def module_name(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def reached(graph: dict[str, set[str]], part: str) -> set[str]:
    """All that the module or subpackage `part` imports, directly or not."""
    inside = {module for module in graph if module == part or module.startswith(f"{part}.")}
    assert inside, f"there is no {part}"
    seen: set[str] = set()
    waiting = [*inside]
    while waiting:
        for name in graph.get(waiting.pop(), ()):
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return seen - inside


def part_of(module: str) -> str:
    """`capture` for tensorboard_torchexplorer.capture.calls, empty for the package's own __init__."""
    return module.partition(".")[2].partition(".")[0]


@pytest.mark.parametrize("part", MAY_REACH)
def test_imports_among_our_modules_go_one_way(part):
    names = reached(import_graph(PACKAGE), f"{NAME}.{part}")

    assert {part_of(name) for name in names if name.startswith(NAME)} - {""} <= MAY_REACH[part]


@pytest.mark.parametrize("part", NEVER)
def test_a_part_stays_free_of_what_it_must_not_need(part):
    assert not reached(import_graph(PACKAGE), f"{NAME}.{part}") & NEVER[part]


def test_the_entry_point_imports_nothing_that_may_be_missing():
    """At its top level, that is: an error there would end the whole `tensorboard` command."""
    tree = ast.parse((PACKAGE / "loader.py").read_text("utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = set(imported(tree, f"{NAME}.loader"))

    assert {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "tensorboard.plugins.base_plugin"
    }


def test_the_import_graph_has_no_cycle():
    graph = import_graph(PACKAGE)

    assert [module for module in graph if module in reached_through_others(graph, module)] == []


def reached_through_others(graph: dict[str, set[str]], module: str) -> set[str]:
    return set().union(*({name, *reached(graph, name)} for name in graph[module] if name in graph))


def test_the_probe_of_the_import_graph_sees_every_form_of_import(tmp_path):
    package = tmp_path / "sample"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "__init__.py").write_text("from .b import f\n")
    (package / "a.py").write_text("from .inner import f\n")
    (package / "inner" / "b.py").write_text("def f():\n    from sample import c\n")
    (package / "c.py").write_text("import torch.nn\n")
    (package / "d.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n")
    graph = import_graph(package)

    assert reached(graph, "sample.a") == {"sample.inner", "sample.inner.b", "sample.c", "torch"}
    assert reached(graph, "sample.d") == {"typing"}


def loaded_after(code: str) -> set[str]:
    """First names of the modules that a new Python has loaded once it ran `code`."""
    code += "\nimport sys\nprint(*{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_what_tensorboard_imports_does_not_import_torch():
    loaded = loaded_after(
        "from importlib.metadata import EntryPoint\n"
        f"EntryPoint('torchexplorer', '{NAME}.loader:TorchExplorerLoader', 'tensorboard_plugins').load()\n"
        f"import {NAME}.plugin"
    )

    assert NAME in loaded
    assert "torch" not in loaded


def test_the_probe_of_a_new_python_can_see_torch():
    assert "torch" in loaded_after(f"from {NAME} import ExplorerWriter")


# A training of one logged step, and what it imported since it began.
TRAINING = """
import sys, torch
from tensorboard_torchexplorer import ExplorerWriter

layers = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.randn(8, 4)).sum().backward()
optimizer.step()
before = set(sys.modules)
writer = ExplorerWriter(sys.argv[1])
writer.watch(model, log_freq=1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
writer.close()
print(sorted(set(sys.modules) - before))
"""


def test_a_step_imports_nothing(tmp_path):
    # It would take the time of the step that comes first, and memory of every training.
    command = [sys.executable, "-c", TRAINING, str(tmp_path)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == "[]"


def test_every_public_name_resolves_and_no_other_does():
    values = {name: getattr(tensorboard_torchexplorer, name) for name in tensorboard_torchexplorer.__all__}

    assert all(value is not None for value in values.values())
    assert set(values) <= set(dir(tensorboard_torchexplorer))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tensorboard_torchexplorer.nothing  # noqa: B018


def test_no_public_name_is_that_of_a_module():
    """Importing a submodule binds it in the package and would replace the function."""
    modules = {path.stem for path in PACKAGE.iterdir()}

    assert not modules & {name for name in tensorboard_torchexplorer.__all__ if name != "__version__"}
