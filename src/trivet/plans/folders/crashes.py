"""How many programs in a row crashed with a kept folder."""

from __future__ import annotations

from contextlib import suppress

from trivet.cache import Cache, Hit, Lease
from trivet.codecs import MsgPack
from trivet.errors import TrivetError
from trivet.keys import Key

_NUMBER: MsgPack[int] = MsgPack(int)


class Crashes:
    """Counts, by the keys of folders, kept in ``cache``."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def add(self, folder: Key) -> int:
        """One more; returns how many there are now."""
        key = _key(folder)
        found = self._cache.get(key, _NUMBER)
        count = 1 + (found.value if isinstance(found, Hit) else 0)
        self.forget(folder)
        lease = self._cache.acquire(key, _NUMBER, wait=0.0)
        if isinstance(lease, Lease):
            lease.commit(count)
        return count

    def forget(self, folder: Key) -> None:
        """Start from zero; a read-only store never counted anything."""
        with suppress(TrivetError, OSError):
            self._cache.forget(_key(folder))


def _key(folder: Key) -> Key:
    return Key("folder-deaths/1", {"folder": folder.digest})
