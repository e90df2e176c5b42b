from __future__ import annotations

import argparse
import logging
import subprocess
import sys

import pytest
from tensorboard.plugins.base_plugin import TBContext

from tensorboard_torchexplorer import loader, schema
from tensorboard_torchexplorer.loader import TorchExplorerLoader


def fixed(hints) -> argparse.Namespace:
    flags = argparse.Namespace(samples_per_plugin=hints)
    TorchExplorerLoader().fix_flags(flags)
    return flags


def test_the_name_is_the_schemas():
    assert loader.PLUGIN_NAME == schema.PLUGIN_NAME


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ({}, {"torchexplorer": 0}),
        (None, {"torchexplorer": 0}),
        ({"scalars": 5}, {"scalars": 5, "torchexplorer": 0}),
        ({"torchexplorer": 33}, {"torchexplorer": 33}),
        ({"torchexplorer": 0}, {"torchexplorer": 0}),
    ],
)
def test_all_records_are_kept_unless_the_user_says_otherwise(hints, expected):
    assert fixed(hints).samples_per_plugin == expected


@pytest.mark.parametrize("asked", [-1, "many", None, 1.5, True])
def test_a_number_that_would_break_a_loader_is_replaced_with_a_word(asked, caplog):
    with caplog.at_level(logging.WARNING):
        flags = fixed({"torchexplorer": asked})

    assert flags.samples_per_plugin == {"torchexplorer": 0}
    assert f"--samples_per_plugin=torchexplorer={asked}" in caplog.text


@pytest.mark.parametrize("flags", [argparse.Namespace(), argparse.Namespace(samples_per_plugin=7), None])
def test_flags_of_an_unknown_shape_do_not_end_tensorboard(flags, caplog):
    TorchExplorerLoader().fix_flags(flags)

    assert "can't ask TensorBoard to keep all records" in caplog.text


def test_it_loads_the_plugin():
    plugin = TorchExplorerLoader().load(TBContext())

    assert plugin.plugin_name == "torchexplorer"
    assert plugin.is_active() is False
    metadata = plugin.frontend_metadata()
    assert (metadata.es_module_path, metadata.tab_name) == ("/index.js", "TorchExplorer")
    assert set(plugin.get_plugin_apps()) >= {
        "/runs",
        "/steps",
        "/graph",
        "/series",
        "/health",
        "/search",
        "/index.js",
    }


def test_a_plugin_that_cannot_be_made_costs_the_tab_only(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "tensorboard_torchexplorer.plugin", None)

    assert TorchExplorerLoader().load(TBContext()) is None
    assert "the torchexplorer tab is not available" in caplog.text


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        (
            "loader",
            ["torch", "numpy", "tensorboard_torchexplorer.plugin", "tensorboard_torchexplorer.schema"],
        ),
        ("plugin", ["torch", "torchvision"]),
        ("reader", ["torch"]),
        ("background", ["torch"]),
    ],
)
def test_what_a_server_process_never_imports(module, absent):
    code = f"""if True:
        import sys, tensorboard_torchexplorer.{module} as module
        if {module!r} == "plugin":
            module.TorchExplorerPlugin(type("Context", (), {{"data_provider": None}})).get_plugin_apps()
        print([name for name in {absent!r} if name in sys.modules])
        """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
