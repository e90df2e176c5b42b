"""Samples of one step from several ranks in, the samples of all in proportion to their sizes out."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .assemble import Finished
from .binning import slot_values
from .packed import Packed
from .record import ranges
from .sampling import Samples
from .schema import Module
from .slots import Slot, Taken

SHARDED = "sharded"
"""How the flag begins that says which part of a module's parameters a rank has."""


class Key(NamedTuple):
    """A series as any rank knows it: the id of its node or the path of its module, and as in
    `schema.Series`."""

    owner: str
    group: str
    kind: str
    position: int
    name: str


class Part(NamedTuple):
    """What one rank has sampled: the slots of each series, in `buffers` (float32, by number of the device);
    the flag of each module that is sharded, by path; the ids of the nodes that ran; and whether it holds
    float64 tensors."""

    slots: dict[Key, list[Slot]]
    shards: dict[str, str]
    ran: list[str]
    buffers: list[NDArray[np.float32]]
    wide: bool


def part_of(finished: Finished, modules: Sequence[Module]) -> Part:
    """What the rank that writes needs to know of a step: the values and gradients of tensors, and of those
    parameters of which each rank has its own part. All others are the same on every rank."""
    samples = finished.samples
    shards = _shards(modules)
    slots = {
        key: [samples.slots[number] for number in numbers]
        for index, numbers in _own(finished).items()
        if (key := _key(finished, index, modules)).group != "param" or key.owner in shards
    }
    ran = [finished.nodes[node].id for node in _nodes(finished.info.ran)]
    return Part(slots, shards, ran, samples.host(), samples.wide)


def pooled(finished: Finished, parts: Sequence[Part], modules: Sequence[Module]) -> tuple[Finished, set[str]]:
    """The step with the samples of `parts` beside its own, and the owners of those series in them that this
    rank does not know. Runs on the record thread."""
    if not parts:
        return finished, set()
    pool = _Pool(finished.samples)
    members = _own(finished)
    known = {_key(finished, index, modules): index for index in range(finished.series_count)}
    held = {owner: {flag} for owner, flag in _shards(modules).items()}
    number = {node.id: index for index, node in enumerate(finished.nodes[: finished.node_count])}
    ran = set(_nodes(finished.info.ran))
    unknown: set[str] = set()
    shared: set[int] = set()
    for part in parts:
        first = pool.add(part.buffers)
        # Of a shard that several ranks have, one counts.
        again = {owner for owner, flag in part.shards.items() if flag in held.setdefault(owner, set())}
        for owner, flag in part.shards.items():
            held[owner].add(flag)
        for key, its in part.slots.items():
            index = known.get(key)
            if index is None:
                unknown.add(key.owner)
            elif key.group != "param" or key.owner not in again:
                moved = (slot._replace(device=first + slot.device) for slot in its)
                members.setdefault(index, []).extend(pool.put(slot) for slot in moved)
                shared.add(index)
        ran |= {number[node] for node in part.ran if node in number}
    for index in shared:
        members[index] = pool.in_proportion(members[index])
    whole = replace(
        finished,
        info=replace(finished.info, ran=ranges(sorted(ran)), ranks=1 + len(parts)),
        sampled=array("q", members),
        numbers=array("q", [numbers[0] for numbers in members.values()]),
        several={at: numbers for at, numbers in enumerate(members.values()) if len(numbers) > 1},
        samples=pool.samples(finished.samples.wide or any(part.wide for part in parts)),
    )
    return whole, unknown


def _own(finished: Finished) -> dict[int, list[int]]:
    """The numbers of the slots of each series."""
    pairs = enumerate(zip(finished.sampled, finished.numbers, strict=True))
    return {index: list(finished.several.get(at, [number])) for at, (index, number) in pairs}


def _key(finished: Finished, index: int, modules: Sequence[Module]) -> Key:
    series = finished.series[index]
    owner = finished.nodes[series.node].id if series.node >= 0 else modules[series.module].path
    return Key(owner, series.group, series.kind, series.index, series.name)


def _shards(modules: Sequence[Module]) -> dict[str, str]:
    flags = {module.path: [flag for flag in module.flags if flag.startswith(SHARDED)] for module in modules}
    return {path: found[0] for path, found in flags.items() if found}


def _nodes(ran: Iterable[Sequence[int]]) -> Iterable[int]:
    """The indices in ranges, see `schema.StepInfo.ran`."""
    return (node for first, count in ran for node in range(first, first + count))


class _Pool:
    """The samples of a record, and more in buffers of their own."""

    def __init__(self, samples: Samples) -> None:
        self._slots = samples.slots.copy()
        self._host = samples.host()
        self._extra: list[NDArray[np.float32]] = []
        self._extra_end = 0

    def add(self, buffers: Sequence[NDArray[np.float32]]) -> int:
        """The number of the first of them."""
        self._host += buffers
        return len(self._host) - len(buffers)

    def put(self, slot: Slot) -> Taken:
        return self._slots.add(*slot[:-1], finite=slot.finite)

    def samples(self, wide: bool) -> Samples:
        """All of it."""
        extra = np.concatenate([np.zeros(0, np.float32), *self._extra])
        packed = [Packed(torch.from_numpy(values.copy()), None) for values in [*self._host, extra]]
        return Samples(self._slots, packed, wide)

    def in_proportion(self, numbers: list[Taken]) -> list[Taken]:
        """Slots with samples in proportion to the sizes of their tensors: as large a share of each as of that
        which was sampled least. What is known of the whole tensors stays."""
        slots = [self._slots[number] for number in numbers]
        if any(slot.implicit_zeros or not slot.samples for slot in slots):
            return numbers
        share = min(slot.samples / slot.size for slot in slots)
        counts = [max(1, round(share * slot.size)) for slot in slots]
        return [
            number if count >= slot.samples else self.put(self._thinned(slot, count))
            for number, slot, count in zip(numbers, slots, counts, strict=True)
        ]

    def _thinned(self, slot: Slot, count: int) -> Slot:
        """`count` of a slot's samples, drawn from a random stream of our own, in the last buffer."""
        samples = slot_values(self._host, slot)
        kept = samples[np.random.default_rng(slot.offset).choice(len(samples), count, replace=False)]
        if slot.extremes < 0:
            slot = self._with_whole(slot, samples)
        else:
            slot = slot._replace(
                extremes=self._moved(slot, slot.extremes, 2, slot.wide),
                counts=self._moved(slot, slot.counts, 5, slot.wide),
                moments=self._moved(slot, slot.moments, 3, slot.wide_moments),
            )
        # The last buffer is not there yet, but nothing more comes before it.
        return slot._replace(offset=self._keep(kept, slot.wide), samples=count, device=len(self._host))

    def _with_whole(self, slot: Slot, values: NDArray[np.float64]) -> Slot:
        """The slot with what the whole tensor, of these `values`, says."""
        finite = values[np.isfinite(values)]
        ends = (float(finite.min()), float(finite.max())) if finite.size else (math.nan, math.nan)
        with np.errstate(all="ignore"):
            mean = values.mean()
            moments = np.array([mean, np.linalg.norm(values - mean), np.count_nonzero(values)])
        return slot._replace(
            extremes=self._keep(np.array(ends), slot.wide),
            nan=int(np.isnan(values).sum()),
            posinf=int(np.isposinf(values).sum()),
            neginf=int(np.isneginf(values).sum()),
            finite=ends,
            moments=self._keep(moments, True),
            wide_moments=1,
        )

    def _moved(self, slot: Slot, place: int, count: int, wide: int) -> int:
        if place < 0:
            return place
        return self._keep_stored(self._host[slot.device][place : place + (2 * count if wide else count)])

    def _keep(self, values: NDArray[np.float64], wide: int) -> int:
        return self._keep_stored(values.view(np.float32) if wide else values.astype(np.float32))

    def _keep_stored(self, values: NDArray[np.float32]) -> int:
        """The place in the last buffer, an even one so that pairs are aligned."""
        place = self._extra_end
        self._extra.append(np.pad(values, (0, len(values) & 1)))
        self._extra_end += len(self._extra[-1])
        return place
