"""Remembered digests of unchanged files, kept in the cache itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from trivet.cache import Cache, Hit, Lease
from trivet.codecs import Bytes
from trivet.events import MissReason
from trivet.keys import Key

_SPACE = "memo/1"
_CODEC = Bytes()
# Seconds. Longer than it takes to read any model that is not far larger than memory; whoever is
# still at it then is stopped or stuck, and reading beside them does no harm.
_WAIT = 60.0


class Memo(Protocol):
    """Where digests are remembered between processes. Losing one costs time, nothing else."""

    def get(self, key: bytes) -> bytes | None:
        """What was put under ``key``, or None."""

    def put(self, key: bytes, value: bytes) -> None:
        """Remember ``value``; may be dropped at any time."""

    def turn(self, key: bytes) -> AbstractContextManager[None]:
        """Before computing what ``key`` has no value for: wait while somebody else does.

        Look again within it. It keeps nobody out for good, so two may compute at the same time.
        Whoever is in it must wait for nothing that others hold, other turns included.
        """


class CacheMemo:
    """A `Memo` in the space ``memo/1`` of a cache.

    A turn is waited for ``wait`` seconds, among the threads and processes that use the cache. Where
    nothing can be locked, as in a read-only folder, nobody waits for another process.
    """

    def __init__(self, cache: Cache, wait: float = _WAIT) -> None:
        self._cache = cache.host_only  # what is remembered are inodes and times of this machine
        self._wait = wait

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

    @contextmanager
    def turn(self, key: bytes) -> Iterator[None]:
        """The lease on a key under which nothing is kept: it only says whose turn it is.

        Who had to wait goes on without it. What they waited for is there now; or it can't be kept,
        or the one before has failed or died, and then one after the other would take longer than
        all at once.
        """
        name = Key(_SPACE, {"turn": key})
        held = self._cache.acquire(name, _CODEC, wait=0.0)
        if isinstance(held, Lease) and held.reason is MissReason.WAIT_TIMEOUT:
            held.abandon()
            held = self._cache.acquire(name, _CODEC, wait=self._wait)
            if isinstance(held, Lease):
                held.abandon()
        try:
            yield
        finally:
            # Without the error, if there is one: the others make their own experience.
            if isinstance(held, Lease):
                held.abandon()
