"""Remembered digests of unchanged files, kept in the cache itself."""

from __future__ import annotations

from typing import Protocol

from trivet.cache import Cache, Hit, Lease
from trivet.codecs import Bytes
from trivet.keys import Key

_SPACE = "memo/1"
_CODEC = Bytes()


class Memo(Protocol):
    """Where digests are remembered between processes. Losing one costs time, nothing else."""

    def get(self, key: bytes) -> bytes | None:
        """What was put under ``key``, or None."""

    def put(self, key: bytes, value: bytes) -> None:
        """Remember ``value``; may be dropped at any time."""


class CacheMemo:
    """A `Memo` in the space ``memo/1`` of a cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def get(self, key: bytes) -> bytes | None:
        """What was put under ``key``, or None."""
        found = self._cache.get(Key(_SPACE, {"key": key}), _CODEC)
        return found.value if isinstance(found, Hit) else None

    def put(self, key: bytes, value: bytes) -> None:
        """Remember ``value`` in the place of what was there."""
        name = Key(_SPACE, {"key": key})
        found = self._cache.acquire(name, _CODEC, wait=0.0)
        if isinstance(found, Hit) and found.value != value:
            self._cache.forget(name)
            found = self._cache.acquire(name, _CODEC, wait=0.0)
        if isinstance(found, Lease):
            found.commit(value)
