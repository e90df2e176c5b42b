"""HTTP in front of `Backend`: checks a request, calls, responds. Reads only; never imports torch.

All routes are relative to `data/plugin/torchexplorer/`. They answer GET and HEAD, 400 with a text that names
a wrong parameter, 404 for an unknown run, model, node or step, 422 for records that can't be shown.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from tensorboard import errors, plugin_util
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request, Response

from tensorboard_torchexplorer import schema_json
from tensorboard_torchexplorer.backend import Backend
from tensorboard_torchexplorer.cache import Cache
from tensorboard_torchexplorer.schema import HEALTH, PLUGIN_NAME, ROOT_ID, VERSION
from tensorboard_torchexplorer.source import ProviderSource, Source

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

DEFAULT_LIMIT = 1000
MAX_LIMIT = 100_000
MAX_STEP = 1 << 62
ANSWER_CACHE_BYTES = 32 << 20

_NOT_BUILT = b"""export function render() {
  document.body.textContent =
    'The TorchExplorer tab is not built: run "npm ci && npm run build" in frontend/.'
}
"""

_log = logging.getLogger(__name__)

_Made = tuple[bytes, str]
"""Content and content type."""

_Answer = tuple[str, Callable[[], _Made]]
"""A token, which changes when the answer does, and how to make it."""

_Route = Callable[[Source, Request], _Answer]


class TorchExplorerPlugin(base_plugin.TBPlugin):
    """The plugin as TensorBoard sees it."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: Any) -> None:
        self._provider = context.data_provider
        self._backend = Backend()
        self._answers: Cache[_Made] = Cache(ANSWER_CACHE_BYTES)

    def get_plugin_apps(self) -> dict[str, Any]:
        routes: dict[str, _Route] = {
            "/runs": self._runs,
            "/steps": self._steps,
            "/graph": self._graph,
            "/series": self._series,
            "/health": self._health,
            "/search": self._search,
        }
        apps: dict[str, Any] = {
            path: Request.application(partial(self._respond, route)) for path, route in routes.items()
        }
        # What a client asks for never becomes a path.
        for path, script in _scripts().items():
            apps[path] = Request.application(partial(self._respond_script, script))
        return apps

    def is_active(self) -> bool:
        """Asked only while TensorBoard sees none of our records; with some, it knows by itself."""
        return False

    def frontend_metadata(self) -> Any:
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="TorchExplorer")

    # --- Routes: each unpacks its parameters and says how to make the answer. ---

    def _runs(self, source: Source, request: Request) -> _Answer:
        """`runs`: schema.Runs."""
        body = schema_json.dumps(self._backend.runs(source))
        return hashlib.sha256(body).hexdigest(), lambda: (body, "application/json")

    def _steps(self, source: Source, request: Request) -> _Answer:
        """`steps?run&model`: schema.Steps."""
        run, model = _text(request, "run"), _text(request, "model")
        token, _ = self._backend.token(source, run, model)
        return token, lambda: _json(self._backend.steps(self._backend.open(source, run, model)))

    def _graph(self, source: Source, request: Request) -> _Answer:
        """`graph?run&model[&node]`: schema.Level; with `whole=1`: schema.Graph."""
        run, model = _text(request, "run"), _text(request, "model")
        node = _text(request, "node", default=ROOT_ID)
        whole = _text(request, "whole", default="0")
        if whole not in ("0", "1"):
            raise errors.InvalidArgumentError(f"whole: expected 0 or 1, got {whole[:200]!r}")
        token, _ = self._backend.token(source, run, model)

        def make() -> _Made:
            opened = self._backend.open(source, run, model)
            return _json(self._backend.graph(opened) if whole == "1" else self._backend.level(opened, node))

        return token, make

    def _series(self, source: Source, request: Request) -> _Answer:
        """`series?run&model&node[&limit]`: the bytes that schema.SeriesAnswer describes."""
        run, model, node = (_text(request, name) for name in ("run", "model", "node"))
        limit = _whole(request, "limit", 2, MAX_LIMIT, DEFAULT_LIMIT)
        assert limit is not None
        token, _ = self._backend.token(source, run, model)

        def make() -> _Made:
            opened = self._backend.open(source, run, model)
            return self._backend.series(source, opened, node, limit), "application/octet-stream"

        return token, make

    def _health(self, source: Source, request: Request) -> _Answer:
        """`health?run&model&stat[&step]`: schema.Health at the last logged step up to `step`."""
        run, model, stat = (_text(request, name) for name in ("run", "model", "stat"))
        if stat not in HEALTH:
            raise errors.InvalidArgumentError(
                f"stat: expected one of {', '.join(HEALTH)}, got {stat[:200]!r}"
            )
        step = _whole(request, "step", 0, MAX_STEP, None)
        token, _ = self._backend.token(source, run, model)
        return token, lambda: _json(
            self._backend.health(source, self._backend.open(source, run, model), stat, step)
        )

    def _search(self, source: Source, request: Request) -> _Answer:
        """`search?run&model&q`: schema.Matches."""
        run, model, query = (_text(request, name) for name in ("run", "model", "q"))
        if len(query) > 1000:
            raise errors.InvalidArgumentError(f"q: expected at most 1000 characters, got {len(query)}")
        token, _ = self._backend.token(source, run, model)
        return token, lambda: _json(self._backend.search(self._backend.open(source, run, model), query))

    # --- What all routes share ---

    def _respond(self, route: _Route, request: Request) -> WSGIApplication:
        if request.method not in ("GET", "HEAD"):
            return _wrong_method(request)
        source = ProviderSource(
            self._provider, plugin_util.context(request.environ), plugin_util.experiment_id(request.environ)
        )
        try:
            token, make = route(source, request)
            query = request.query_string.decode("latin-1")
            # Not the text itself: a query may be long, and a thousand long ones would be kept.
            key = hashlib.sha256(f"{VERSION} {source.experiment} {request.path}?{query}".encode()).hexdigest()
            tag = hashlib.sha256(f"{key} {token}".encode()).hexdigest()[:32]
            if tag in request.if_none_match:
                return _not_modified(tag)
            made = self._answers.get(key, tag)
            if made is None:
                made = make()
                self._answers.put(key, tag, made, len(made[0]) + 500)
        except errors.PublicError as error:
            # TensorBoard would answer the same; here also where another application serves the plugin.
            return _failure(request, error.http_code, str(error), error.headers)
        content, content_type = made
        response: Response = http_util.Respond(request, content, content_type)
        response.set_etag(tag)
        return response

    def _respond_script(self, script: bytes, request: Request) -> WSGIApplication:
        if request.method not in ("GET", "HEAD"):
            return _wrong_method(request)
        tag = hashlib.sha256(script).hexdigest()[:32]
        if tag in request.if_none_match:
            return _not_modified(tag)
        response: Response = http_util.Respond(request, script, "text/javascript")
        response.set_etag(tag)
        return response


def _json(value: Any) -> _Made:
    return schema_json.dumps(value), "application/json"


def _text(request: Request, name: str, *, default: str | None = None) -> str:
    """A parameter's only value. Raises InvalidArgumentError if it is missing or given twice."""
    try:
        values = request.args.getlist(name)
    except UnicodeDecodeError:
        raise errors.InvalidArgumentError("the query is not UTF-8") from None
    if len(values) > 1:
        raise errors.InvalidArgumentError(f"{name}: given {len(values)} times")
    if values:
        return values[0]
    if default is None:
        raise errors.InvalidArgumentError(f"{name}: this parameter is required")
    return default


def _whole(request: Request, name: str, low: int, high: int, default: int | None) -> int | None:
    text = _text(request, name, default="")
    if not text and name not in request.args:
        return default
    # int() would also take "1_0", " 7 " and digits of other scripts.
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise errors.InvalidArgumentError(
            f"{name}: expected a whole number from {low} to {high}, got {text[:200]!r}"
        )
    return int(text)


def _failure(request: Request, code: int, text: str, headers: Iterable[tuple[str, str]] = ()) -> Response:
    response: Response = http_util.Respond(request, text, "text/plain", code=code, headers=list(headers))
    return response


def _wrong_method(request: Request) -> Response:
    text = f"{request.method[:20]} is not allowed, only GET and HEAD"
    return _failure(request, 405, text, [("Allow", "GET, HEAD")])


def _not_modified(tag: str) -> WSGIApplication:
    """An answer 304. Not a werkzeug Response, which leaves out the Content-Type that TensorBoard demands of
    every response (with a warning now, with an error later)."""
    headers = [
        ("ETag", f'"{tag}"'),
        ("Content-Type", "application/octet-stream"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-cache, must-revalidate"),
    ]

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("304 Not Modified", headers)
        return []

    return application


def _scripts() -> dict[str, bytes]:
    """The scripts of the built tab by route: `/index.js`, and `/extras-<hash>.js`, which it loads later."""
    static = resources.files("tensorboard_torchexplorer").joinpath("static")
    scripts = {"/index.js": _NOT_BUILT}
    for file in static.iterdir() if static.is_dir() else ():
        if file.name == "index.js" or file.name.startswith("extras-"):
            scripts[f"/{file.name}"] = file.read_bytes()
    return scripts
