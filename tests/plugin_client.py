"""The plugin's routes without a server: a log directory through TensorBoard's own data provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client, TestResponse

from tensorboard_torchexplorer.plugin import TorchExplorerPlugin
from tensorboard_torchexplorer.schema import ROW_FIELDS


class PluginClient:
    """Asks routes of a plugin; `provider` may be wrapped to misbehave."""

    def __init__(self, provider: Any) -> None:
        self.plugin = TorchExplorerPlugin(TBContext(data_provider=provider))
        self.apps = self.plugin.get_plugin_apps()

    def get(self, route: str, method: str = "GET", headers: Any = None, **query: Any) -> TestResponse:
        return self.open("/" + route, method=method, query_string=query, headers=headers)

    def open(self, path: str, **options: Any) -> TestResponse:
        return Client(self.apps[path]).open(path, **options)

    def json(self, route: str, **query: Any) -> Any:
        response = self.get(route, **query)
        assert response.status_code == 200, response.text
        return json.loads(response.data)

    def series(self, **query: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        response = self.get("series", **query)
        assert response.status_code == 200, response.text
        return parse_series(response.data)


class Loaded(PluginClient):
    """The plugin over a directory; `reload` reads what is new."""

    def __init__(self, logdir: Path, keep: int = 0, wrap: Any = lambda provider: provider) -> None:
        self.logdir = logdir
        self.multiplexer = EventMultiplexer(tensor_size_guidance={"torchexplorer": keep, "scalars": 1000})
        self.provider = MultiplexerDataProvider(self.multiplexer, str(logdir))
        super().__init__(wrap(self.provider))
        self.reload()

    def reload(self) -> None:
        self.multiplexer.AddRunsFromDirectory(str(self.logdir))
        self.multiplexer.Reload()


def parse_series(body: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The head of a `series` answer and its blocks, as schema.SeriesAnswer describes them."""
    length = int.from_bytes(body[:4], "little")
    head = json.loads(body[4 : 4 + length])
    start = 4 + length
    assert start % 8 == 0
    blocks = {}
    for block in head["blocks"]:
        assert block["offset"] % 8 == 0
        assert block["dtype"] in ("u1", "u4", "f4", "f8")
        count = int(np.prod(block["shape"]))
        blocks[block["name"]] = np.frombuffer(
            body, np.dtype(block["dtype"]).newbyteorder("<"), count, start + block["offset"]
        ).reshape(block["shape"])
    assert list(blocks) == [*(name for name, _ in ROW_FIELDS), "counts"]
    return head, blocks
