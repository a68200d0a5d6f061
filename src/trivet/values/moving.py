"""For programs that come from joblib's ``Memory`` or diskcache: what they call, kept by Trivet.

Change the import, and the program runs as before, with keys and values as `memo` has them. What was
kept elsewhere is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, overload

from trivet.cache import Cache, Hit, Lease
from trivet.entries import Descriptor
from trivet.keys import Key
from trivet.values.codec import Values
from trivet.values.decorator import memo
from trivet.values.forms import form_of
from trivet.values.keys import FUNCTION, SPACE
from trivet.values.memoise import Memo

R = TypeVar("R")
_CODEC = Values()
_MISSING = object()


class Memory:
    """As ``joblib.Memory``.

    Args:
        location: the cache folder; with None nothing is kept.
        verbose: taken and not used.
    """

    def __init__(self, location: str | Path | None = None, verbose: int = 0) -> None:
        self.store = Cache(memory_bytes=0) if location is None else Cache.open(location)
        self._tag = "joblib.Memory"

    @overload
    def cache(self, func: Callable[..., R], ignore: Sequence[str] = ()) -> Memo[..., R]: ...
    @overload
    def cache(
        self, func: None = None, ignore: Sequence[str] = ()
    ) -> Callable[[Callable[..., R]], Memo[..., R]]: ...
    def cache(self, func: Any = None, ignore: Sequence[str] | None = None) -> Any:
        """Memoise a function; as a decorator also without a function. See `memo`."""
        decorate = memo(self.store, ignore=ignore or (), tags=(self._tag,))
        return decorate if func is None else decorate(func)

    def eval(self, func: Callable[..., R], *args: Any, **named: Any) -> R:
        """The function's result, kept."""
        return self.cache(func)(*args, **named)

    def clear(self, warn: bool = True) -> None:
        """Forget the results of all functions that were memoised by a `Memory` in this folder."""
        self.store.invalidate(self._tag)


class DiskCache:
    """As ``diskcache.Cache``: a mapping on disk, shared by the processes of a host.

    Keys and values are plain data, arrays and tensors: see `Values`. There are no transactions,
    counters and queues, and no iteration, since keys are kept as what stands for them.

    Args:
        directory: the cache folder; None for the user's.
        size_limit: bytes on disk.
    """

    def __init__(self, directory: str | Path | None = None, size_limit: int = 1 << 30) -> None:
        self.store = Cache.open(directory, disk_bytes=size_limit)

    def set(
        self, key: object, value: object, expire: float | None = None, tag: str | None = None
    ) -> bool:
        """Keep ``value`` for ``expire`` seconds, in the place of what is kept. Returns True.

        Raises `Unkeyable` and TypeError for what can't be kept.
        """
        name = _key(key)
        while True:
            before, found = self._stored(name), self.store.get(name, _CODEC)
            old = found.descriptor if isinstance(found, Hit) else None
            # What is kept answers until there is something in its place.
            if self._put(name, value, expire, tag, old):
                if before is not None and self._stored(name) == before:
                    self.store.forget(name)  # it couldn't be written, and must not come back
                return True

    def add(
        self, key: object, value: object, expire: float | None = None, tag: str | None = None
    ) -> bool:
        """Keep ``value`` if nothing is kept under ``key``; whether it is."""
        return self._put(_key(key), value, expire, tag, None)

    def _stored(self, name: Key) -> bytes | None:
        raw = None if self.store.store is None else self.store.store.read(name.digest)
        return None if raw is None else bytes(raw)

    def _put(
        self,
        name: Key,
        value: object,
        expire: float | None,
        tag: str | None,
        old: Descriptor | None,
    ) -> bool:
        tags = () if tag is None else (tag,)
        found = self.store.acquire(name, _CODEC, tags=tags, replacing=old)
        if not isinstance(found, Lease):
            return False
        with found as lease:
            lease.commit(value, lifetime=expire)
        return True

    def get(self, key: object, default: Any = None) -> Any:
        """What is kept."""
        found = self.store.get(_key(key), _CODEC)
        return found.value if isinstance(found, Hit) else default

    def pop(self, key: object, default: Any = None) -> Any:
        """What was kept, and is no more."""
        found = self.get(key, default)
        self.delete(key)
        return found

    def delete(self, key: object) -> bool:
        """Forget; whether something was kept."""
        return self.store.forget(_key(key))

    def evict(self, tag: str) -> None:
        """Forget all that was kept with ``tag``."""
        self.store.invalidate(tag)

    def memoize(
        self, expire: float | None = None, tag: str | None = None, ignore: Sequence[str] = ()
    ) -> Callable[[Callable[..., R]], Memo[..., R]]:
        """Memoise a function. See `memo`."""
        return memo(self.store, ignore=ignore, lifetime=expire, tags=() if tag is None else (tag,))

    def __getitem__(self, key: object) -> Any:
        found = self.get(key, _MISSING)
        if found is _MISSING:
            raise KeyError(key)
        return found

    def __setitem__(self, key: object, value: object) -> None:
        self.set(key, value)

    def __delitem__(self, key: object) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    def close(self) -> None:
        """Close the folder."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _key(key: object) -> Key:
    return Key(SPACE, {FUNCTION: "DiskCache", "arguments": form_of(key)})
