"""Graphs and logged steps to the values of TensorBoard events, and stored bytes back. With `rows`, the only
module that knows bytes.

Tags, the model's name last so that it may hold any character:

    torchexplorer/graph/<model>             zlib JSON of `schema.Graph` in columns, again whenever it grew
    torchexplorer/eval/graph/<model>        the same of a process that has only evaluated so far
    torchexplorer/<phase>/rows.<k>/<model>  the rows of shard k, see `rows`
    torchexplorer/<phase>/health/<model>    one number per node and statistic, see `encode_health`
    torchexplorer/<phase>/index/<model>     zlib JSON of `schema.StepInfo`

All tags of a logged step belong in one event, in the order that `step_values` gives: TensorBoard's Python
loader makes values visible one by one, so whoever sees a step in `index`, the last, finds the rest.
Every value is a vector of bytes, which both loaders hand out unchanged.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_UINT8

from tensorboard_torchexplorer import schema, schema_json
from tensorboard_torchexplorer.columns import Ranges, column
from tensorboard_torchexplorer.rows import MAX_BINS, MAX_ROWS, DecodeError, Rows, encode_rows, row_dtype
from tensorboard_torchexplorer.schema_json import NewerVersionError

__all__ = [
    "DecodeError",
    "NewerVersionError",
    "StepRecord",
    "Tag",
    "decode_graph",
    "decode_health",
    "decode_info",
    "graph_tag",
    "graph_values",
    "parse_tag",
    "row_dtype",
    "step_tag",
    "step_values",
    "stored_version",
]

MAX_GRAPH_BYTES = 256 << 20
"""A graph may have this much JSON: some 500,000 invocations."""

MAX_INFO_BYTES = 4 << 20
MAX_RATIO = 200
"""So many times its bytes, and a megabyte, stored JSON may have: some thirty times where it is most alike."""

MAX_NODES = 1 << 20
MAX_HEALTH = 1 << 24
"""A health record may hold this many numbers: 16 statistics of as many nodes as there may be."""

MAX_SHARDS = 1 << 20

_GRAPH_VERSION = 2
"""Of a stored graph: 1 is `schema.Graph` as it stands, 2 has its long lists in columns, see `columns`."""

_HEALTH_HEADER = struct.Struct("<BBI")
_HEALTH_VERSION = 1
_PHASES: dict[str, schema.Phase] = {phase: phase for phase in schema.PHASES}
_TAG = re.compile(
    r"torchexplorer/(?:(graph|eval/graph)|(train|eval)/(index|health|rows\.(\d{1,7})))/(.*)", re.DOTALL
)


@dataclass(frozen=True)
class StepRecord:
    """All that is recorded of one logged step of a model.

    `health` is float32 [nodes of the graph, len(schema.HEALTH)], NaN where unknown. `shards` maps the
    shard numbers of `schema.Series` to arrays of `row_dtype(bins)`; a shard that is left out counts as
    NOT_RUN. `wide` keeps float64 statistics, for float64 models."""

    model: str
    phase: schema.Phase
    info: schema.StepInfo
    health: npt.NDArray[np.float32]
    shards: Mapping[int, Rows]
    wide: bool = False


class Tag(NamedTuple):
    """A parsed tag: `part` is "graph", "index", "health" or "rows"; that of a graph is told of no phase."""

    part: str
    phase: schema.Phase | None
    shard: int
    model: str


def step_values(record: StepRecord) -> list[Any]:
    """The `Summary.Value`s of a logged step: rows, health, index. Freshly made, for one event."""
    model, phase = record.model, record.phase
    values = [
        _value(step_tag(model, phase, "rows", shard), encode_rows(rows, wide=record.wide))
        for shard, rows in sorted(record.shards.items())
    ]
    values.append(_value(step_tag(model, phase, "health"), encode_health(record.health)))
    values.append(_value(step_tag(model, phase, "index"), encode_info(record.info)))
    return values


def graph_values(graph: schema.Graph, phase: schema.Phase = "train") -> list[Any]:
    """The `Summary.Value` of a graph; belongs before the values of the first step that needs it. `phase` is
    "eval" as long as the process has only evaluated."""
    return [_value(graph_tag(graph.model, phase), encode_graph(graph))]


def graph_tag(model: str, phase: schema.Phase = "train") -> str:
    """A process that evaluates an old step has a tag of its own: of one tag, TensorBoard forgets what was
    written before at that step and after it, and with it the graph that explains the training."""
    return f"torchexplorer/{'eval/' if phase == 'eval' else ''}graph/{_checked(model)}"


def step_tag(model: str, phase: schema.Phase, part: str, shard: int = 0) -> str:
    """The tag of one part ("index", "health" or "rows") of a model's logged steps."""
    part = f"rows.{shard}" if part == "rows" else part
    return f"torchexplorer/{phase}/{part}/{_checked(model)}"


def parse_tag(tag: str) -> Tag | None:
    """What a tag holds; None if it is not one of ours."""
    found = _TAG.fullmatch(tag)
    if not found:
        return None
    graph, phase, part, shard, model = found.groups()
    if graph:
        return Tag("graph", None, 0, model)
    if shard is not None:
        # `rows.007` would be a second name for `rows.7`.
        return Tag("rows", _PHASES[phase], int(shard), model) if shard == str(int(shard)) else None
    return Tag(part, _PHASES[phase], 0, model)


def stored_version(plugin_content: bytes) -> int:
    """The schema version in a tag's metadata; 0 where the metadata is not ours."""
    try:
        version = json.loads(plugin_content[:1000])["version"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return 0
    return version if isinstance(version, int) else 0


# --- Payloads ---


def encode_graph(graph: schema.Graph) -> bytes:
    return zlib.compress(schema_json.dumps_in_columns(graph, _GRAPH_VERSION), 1)


def decode_graph(payload: bytes) -> schema.Graph:
    """Raises DecodeError, or NewerVersionError for a graph of a later version."""
    graph = replace(_loads(schema.Graph, payload, MAX_GRAPH_BYTES, _GRAPH_VERSION), version=schema.VERSION)
    try:
        _check_graph(graph)
    except (DecodeError, IndexError) as error:
        raise DecodeError(f"the graph is damaged: {error}") from None
    return graph


def encode_info(info: schema.StepInfo) -> bytes:
    return zlib.compress(schema_json.dumps(info), 1)


def decode_info(payload: bytes) -> schema.StepInfo:
    """Raises DecodeError, or NewerVersionError for a record of a later version."""
    info = _loads(schema.StepInfo, payload, MAX_INFO_BYTES)
    end = 0
    for pair in info.ran:
        if len(pair) != 2 or pair[0] < end or pair[1] < 1 or sum(pair) > MAX_NODES:
            raise DecodeError("a step is damaged: `ran` has a range that can't be")
        end = sum(pair)
    return replace(info, ran=Ranges(info.ran))


def encode_health(health: npt.NDArray[np.float32]) -> bytes:
    """`health` [nodes, statistics] rounded to the upper 16 bits of a float32 (8 bits of precision: plenty
    for a colour). Statistics after statistics, as two byte planes each, deflated."""
    nodes, statistics = health.shape
    bits = np.ascontiguousarray(health, "<f4").view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    # Rounding must not turn the largest numbers into infinity, nor some NaN into a number.
    exponent = np.uint32(0x7F800000)
    overflow = ((rounded & 0x7F80) == 0x7F80) | ((bits & exponent) == exponent)
    kept = (bits >> 16).astype(np.uint16) | np.where(np.isnan(health), 0x40, 0).astype(np.uint16)
    upper = np.where(overflow, kept, rounded).astype("<u2")
    planes = np.ascontiguousarray(upper.T).reshape(statistics, nodes, 1).view(np.uint8).transpose(0, 2, 1)
    return _HEALTH_HEADER.pack(_HEALTH_VERSION, statistics, nodes) + zlib.compress(planes.tobytes(), 1)


def decode_health(payload: bytes) -> npt.NDArray[np.float32]:
    """float32 [nodes, statistics]. There may be more statistics than `schema.HEALTH` has names."""
    if len(payload) < _HEALTH_HEADER.size:
        raise DecodeError("a health record is cut off")
    version, statistics, nodes = _HEALTH_HEADER.unpack_from(payload)
    if version > _HEALTH_VERSION:
        raise NewerVersionError(f"health of format {version}, this version reads up to {_HEALTH_VERSION}")
    if version < 1 or nodes > MAX_NODES or nodes * statistics > MAX_HEALTH:
        raise DecodeError(f"no health record: version {version}, {statistics} statistics of {nodes} nodes")
    size = 2 * nodes * statistics
    data = _inflate(payload[_HEALTH_HEADER.size :], size)
    if len(data) != size:
        raise DecodeError("a health record has the wrong length")
    planes = np.frombuffer(data, np.uint8).reshape(statistics, 2, nodes)
    bits = planes[:, 0].astype(np.uint32) << 16 | planes[:, 1].astype(np.uint32) << 24
    return bits.view(np.float32).T


def _checked(model: str) -> str:
    try:
        model.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the model's name {model!r} is not valid Unicode") from None
    return model


def _value(tag: str, payload: bytes) -> Any:
    # Both loaders keep the metadata of a tag's first value only, and which value is the first is not ours
    # to say (records may be dropped, directories purged). So all have it, 40 bytes each.
    content = json.dumps({"version": schema.VERSION}).encode()
    plugin_data = SummaryMetadata.PluginData(plugin_name=schema.PLUGIN_NAME, content=content)
    metadata = SummaryMetadata(plugin_data=plugin_data, data_class=DATA_CLASS_TENSOR)
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=len(payload))])
    tensor = TensorProto(dtype=DT_UINT8, tensor_shape=shape, tensor_content=payload)
    return Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def _loads(
    kind: type[schema_json.Parsed], payload: bytes, limit: int, newest: int = schema.VERSION
) -> schema_json.Parsed:
    try:
        text = _inflate(payload, min(limit, (1 << 20) + MAX_RATIO * len(payload)))
        return schema_json.loads(kind, text, newest)
    except schema_json.ShapeError as error:
        raise DecodeError(str(error)) from None


def _inflate(payload: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(payload, limit + 1)
    except zlib.error as error:
        raise DecodeError(f"compressed data is damaged: {error}") from None
    if len(data) > limit:
        raise DecodeError(f"compressed data is larger than the {limit} bytes allowed here")
    if not inflater.eof:
        raise DecodeError("compressed data is cut off")
    return data


def _check_graph(graph: schema.Graph) -> None:
    """Raises DecodeError where an index leads nowhere, so that no reader needs to look again."""
    modules, nodes = len(graph.modules), len(graph.nodes)
    if not 1 <= graph.bins <= MAX_BINS:
        raise DecodeError(f"{graph.bins} bins")
    if not nodes or nodes > MAX_NODES:
        raise DecodeError(f"{nodes} nodes")
    ids, parents = column(graph.nodes, "id"), column(graph.nodes, "parent")
    if ids[0] != schema.ROOT_ID or parents[0] != -1:
        raise DecodeError("the first node is not the root")
    if len(set(ids)) != nodes:
        raise DecodeError("two nodes have the same id")
    _check_range("a node is of module", column(graph.nodes, "module"), 0, modules)
    _check_range("a node has parent", parents[1:], 0, nodes)
    _check_tree(parents)
    _check_range("an edge is of level", column(graph.edges, "level"), 0, nodes)
    for ends in (column(graph.edges, "source"), column(graph.edges, "target")):
        kinds, indices = column(ends, "kind"), column(ends, "index")
        _check_range("an edge ends at", indices, 0, MAX_NODES)
        inner = [index for kind, index in zip(kinds, indices, strict=True) if kind == "node"]
        _check_range("an edge ends at node", inner, 0, nodes)
    owners = (column(graph.series, "node"), column(graph.series, "module"))
    for node, module in zip(*owners, strict=True):
        if not (0 <= node < nodes and module == -1) and not (0 <= module < modules and node == -1):
            raise DecodeError(f"a series is of node {node} and module {module}")
    _check_range("a series lies in shard", column(graph.series, "shard"), 0, MAX_SHARDS)
    _check_range("a series lies in row", column(graph.series, "row"), 0, MAX_ROWS)
    _check_range("a series has index", column(graph.series, "index"), -1, schema_json.LARGEST)
    pairs = chain(*column(graph.modules, "extra"), *column(graph.nodes, "arguments"))
    if not set(map(len, pairs)) <= {2}:
        raise DecodeError("`extra` or `arguments` has an entry that is no pair")


def _check_range(what: str, values: Sequence[int], low: int, end: int) -> None:
    """Raises DecodeError unless all `values` are in [low, end)."""
    for extreme in (min(values, default=low), max(values, default=low)):
        if not low <= extreme < end:
            raise DecodeError(f"{what} {extreme}, which is not from {low} to {end - 1}")


def _check_tree(parents: Sequence[int]) -> None:
    """Raises DecodeError unless every node leads up to the first one, whose parent is -1."""
    children: dict[int, list[int]] = {}
    for index, parent in enumerate(parents):
        children.setdefault(parent, []).append(index)
    reached, open_nodes = 0, [0]
    while open_nodes:
        reached += 1
        open_nodes.extend(children.get(open_nodes.pop(), []))
    if reached != len(parents):
        raise DecodeError("a node is its own ancestor")
