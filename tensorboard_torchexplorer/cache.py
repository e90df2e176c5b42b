"""A small cache that forgets what was used longest ago, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Values by key, each valid for one token. For several threads; `size`s are estimates of the caller."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._entries: OrderedDict[Hashable, tuple[str, Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, token: str) -> Value | None:
        """The value stored with the same token."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry[0] != token:
                return None
            self._entries.move_to_end(key)
            return entry[1]

    def stale(self, key: Hashable) -> Value | None:
        """The value whatever its token, to build the next one on."""
        with self._lock:
            entry = self._entries.get(key)
            return entry[1] if entry else None

    def put(self, key: Hashable, token: str, value: Value, size: int) -> None:
        """Stores a value, and forgets others if they no longer fit. One larger than the cache isn't kept."""
        with self._lock:
            old = self._entries.pop(key, None)
            self._used -= old[2] if old else 0
            if size > self._limit:
                return
            self._entries[key] = (token, value, size)
            self._used += size
            while self._used > self._limit:
                _, (_, _, freed) = self._entries.popitem(last=False)
                self._used -= freed

    @property
    def used(self) -> int:
        return self._used
