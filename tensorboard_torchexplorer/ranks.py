"""Samples of other ranks in; on the rank that writes, records that hold those of all.

Nothing here is a collective, and nothing happens on the training thread: a rank that does not write hands its
packed samples to the job's own key-value store (the one the process group was made with) from its record
thread, and the record thread of the rank that writes picks them up. Each operation on the store is one
short request that waits for no other rank: a key is asked for before it is read, and only the reader ever
deletes one. So ranks can't block each other, whatever batches they skip, and a step that is not logged costs
nothing. What does not arrive in time is missing from the record, which says which ranks it lacks.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch.distributed as dist

from .assemble import Finished
from .capture.surroundings import NotObserved
from .faults import Faults
from .pooling import Key, Part, part_of, pooled
from .schema import Module
from .slots import Slot

PATIENCE_SECONDS = 10.0
"""How long a record waits for the ranks that are still in its step; after that, for a rank that was late, not
at all until something comes from it again."""

CHUNK_BYTES = 4 << 20
"""Of a value in the store, whose server takes 8 MiB."""

MAX_BYTES = 64 << 20
MAX_WAITING = 8
"""Parts of a rank that lie in the store unread; while there are as many, it sends none."""

_SAME = "Does it watch, too, with ranks='all' and the same options (start_step, where it is not 0)?"
_ENDED = -1
_joined: Counter[str] = Counter()
"""How often this process has joined, by model."""


def join(model: str, faults: Faults) -> Sender | Gatherer | None:
    """This process's side of the exchange about a model of that name, the same number of times on all ranks.
    None where there is only one rank."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return None
    # Private, but there since torch 1.8, and no other connection is known to work.
    from torch.distributed.distributed_c10d import _get_default_store

    prefix = f"torchexplorer/{_joined[model]}/{model}"
    _joined[model] += 1
    if dist.get_rank():
        return Sender(_get_default_store(), f"{prefix}/{dist.get_rank()}")
    return Gatherer(_get_default_store(), prefix, dist.get_world_size(), faults)


class Sender:
    """The side of a rank that does not write. All but the constructor is for the record thread."""

    def __init__(self, store: Any, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._sent = 0

    def send(self, finished: Finished, modules: Sequence[Module]) -> None:
        """Hand over what was sampled in a step. Raises what the store raises."""
        part = part_of(finished, modules)
        self._put(finished.phase, finished.info.step, part)

    def end(self) -> None:
        """Nothing more will come."""
        self._put("train", _ENDED, Part({}, {}, [], [], False))

    def _put(self, phase: str, step: int, part: Part) -> None:
        if self._sent >= MAX_WAITING and self._store.check([self._key(self._sent - MAX_WAITING)]):
            return
        size = sum(values.nbytes for values in part.buffers)
        refused = size if size > MAX_BYTES else 0
        if refused:
            part = part._replace(slots={}, buffers=[])
        slots = [[*key, its] for key, its in part.slots.items()]
        lengths = [len(values) for values in part.buffers]
        head = json.dumps([phase, step, refused, slots, part.shards, part.ran, lengths, part.wide])
        chunks = _cut(b"".join(values.tobytes() for values in part.buffers))
        texts = _cut(head.encode())
        for number, chunk in enumerate([*chunks, *texts]):
            self._store.set(f"{self._key(self._sent)}/{number}", chunk)
        # Last, since it says that the rest is there.
        self._store.set(self._key(self._sent), f"{len(chunks)} {len(texts)}")
        self._sent += 1

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number}"


class _Peer:
    """A rank that sends: how much of it was `read` and how much `used`, what is kept of it by phase and step,
    its latest step, whether it has ended, and whether it was late."""

    def __init__(self) -> None:
        self.read = 0
        self.used = 0
        self.kept: dict[tuple[str, int], tuple[Part, int]] = {}
        self.latest = -1
        self.ended = False
        self.late = False


class Gatherer:
    """The side of the rank that writes. All but the constructor is for the record thread."""

    def __init__(self, store: Any, prefix: str, world: int, faults: Faults) -> None:
        self._store = store
        self._prefix = prefix
        self._peers = {rank: _Peer() for rank in range(1, world)}
        self._faults = faults

    def gathered(self, finished: Finished, modules: Sequence[Module]) -> Finished:
        """The step with the samples of all ranks that are in it."""
        of = (finished.phase, finished.info.step)
        deadline = time.monotonic() + PATIENCE_SECONDS
        parts: list[Part] = []
        missing: list[int] = []
        for rank, peer in self._peers.items():
            part = self._wait(rank, peer, of, deadline)
            if part is None:
                missing.append(rank)
            else:
                parts.append(part)
        whole, unknown = pooled(finished, parts, modules)
        for owner in unknown:
            self._faults.report(owner, "values of other ranks", NotObserved("rank 0 has never run it"))
        return replace(whole, info=replace(whole.info, missing=missing, faults=self._faults.list()))

    def _wait(self, rank: int, peer: _Peer, of: tuple[str, int], deadline: float) -> Part | None:
        step = of[1]
        pause = 0.001
        while True:
            self._read(rank, peer)
            found = peer.kept.pop(of, None)
            peer.kept = {key: value for key, value in peer.kept.items() if key[1] >= step}
            if found is not None:
                peer.used += 1
                part, refused = found
                if refused:
                    self._report(rank, f"its samples are {refused >> 20} MiB; choose a smaller sample_n")
                return None if refused else part
            if peer.latest > step and not peer.used:
                self._report(rank, f"its steps are others than here. {_SAME}")
            if peer.ended or peer.late or peer.latest > step:
                return None
            if time.monotonic() > deadline:
                peer.late = True
                self._report(rank, f"nothing came for step {step}. {_SAME}")
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _report(self, rank: int, text: str) -> None:
        self._faults.report("", f"values of rank {rank}", NotObserved(text))

    def _read(self, rank: int, peer: _Peer) -> None:
        """All that has arrived."""
        while True:
            key = f"{self._prefix}/{rank}/{peer.read}"
            if not self._store.check([key]):
                return
            chunks, texts = map(int, self._store.get(key).split())
            names = [f"{key}/{number}" for number in range(chunks + texts)]
            found = [self._store.get(name) for name in names]
            for name in [key, *names]:
                self._store.delete_key(name)
            peer.read += 1
            peer.late = False
            head = json.loads(b"".join(found[chunks:]))
            phase, step, refused, slots, shards, ran, lengths, wide = head
            if step == _ENDED:
                peer.ended = True
                continue
            values = np.frombuffer(b"".join(found[:chunks]), np.float32)
            buffers = np.split(values, np.cumsum(lengths[:-1])) if lengths else []
            by_key = {Key(*entry[:-1]): [_slot(slot) for slot in entry[-1]] for entry in slots}
            peer.kept[phase, step] = Part(by_key, shards, ran, buffers, wide), refused
            peer.latest = max(peer.latest, step)


def _cut(data: bytes) -> list[bytes]:
    return [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def _slot(values: list[Any]) -> Slot:
    *numbers, (low, high) = values
    return Slot._make([*numbers, (low, high)])
