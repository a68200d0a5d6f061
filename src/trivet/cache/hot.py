"""The hot set: which live values a process had, for the one that starts after it.

A snapshot is a file of digests in the cache folder. The values are in the host store, where they
are read, verified and judged as for any look-up.
"""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING

import msgspec
from xxhash import xxh3_128_digest

from trivet.cache.outcomes import Hit, Miss
from trivet.entries import peek
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreError
from trivet.events import MissReason
from trivet.keys import Key
from trivet.memory.footprint import ENTRY_BYTES
from trivet.stores.host.disk import make_folder, storage, write_file

if TYPE_CHECKING:
    from pathlib import Path

    from trivet.cache.tiers import Tiers
    from trivet.stores import FileStore

_MAGIC = b"TRIVETH\n"
_HEAD = len(_MAGIC) + 16  # and the XXH3-128 of the digests, which follow
_DIGEST_SIZE = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SPARE = 32  # a preload leaves one part in so many of the budget to what comes meanwhile


def snapshot(tiers: Tiers, name: str) -> int:
    """See `Cache.snapshot`."""
    store = tiers.store
    if store is None:
        return 0
    path = _path(store, name)
    digests = b"".join(digest for digest, _, _ in tiers.memory.items())
    staging = store.staging()
    with storage("write a snapshot"):
        make_folder(path.parent)
        raw = _MAGIC + xxh3_128_digest(digests) + digests
        write_file(path, raw, staging / name)
        os.rmdir(staging)
        os.rmdir(staging.parent)
    return len(digests) // _DIGEST_SIZE


def _path(store: FileStore, name: str) -> Path:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"a snapshot's name is of a-z, 0-9, '.', '_' and '-', got {name!r}")
    return store.root / "hot" / name


def _read(path: Path) -> list[bytes]:
    """The digests, the most valuable first. Raises `CorruptEntry`, `StoreError`, OSError."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise StoreError("there is no snapshot") from None
    digests = raw[_HEAD:]
    if raw[:_HEAD] != _MAGIC + xxh3_128_digest(digests) or len(digests) % _DIGEST_SIZE:
        raise CorruptEntry("the snapshot is damaged")
    return [digests[at : at + _DIGEST_SIZE] for at in range(0, len(digests), _DIGEST_SIZE)]


class PreloadProgress(msgspec.Struct, kw_only=True):
    """How far a preload is.

    Attributes:
        total: entries in the snapshot.
        done: of these, those that were looked at.
        kept: those that are in memory now.
        missing: those that the folder doesn't have any more, or that may not be used.
        unknown: those whose codec is not known.
        failed: those that their codec could not read; each is a `miss` event that says why.
        error: what the codec of the last of these raised; empty when there are none.
        finished: whether it has ended.
        why: why it ended before all were looked at; empty when it did not.
    """

    total: int = 0
    done: int = 0
    kept: int = 0
    missing: int = 0
    unknown: int = 0
    failed: int = 0
    error: str = ""
    finished: bool = False
    why: str = ""


class Preload:
    """Reads a hot set into memory, in a thread of its own. `Cache.preload` makes it."""

    def __init__(self, tiers: Tiers, name: str, most_bytes: int | None, seconds: float) -> None:
        budget = tiers.memory.budget
        self._tiers = tiers
        self._path = None if tiers.store is None else _path(tiers.store, name)
        self._limit = min(budget - budget // _SPARE, budget if most_bytes is None else most_bytes)
        self._until = tiers.clock.monotonic() + seconds
        self._stopped = False
        self._progress = PreloadProgress()
        self._thread = threading.Thread(target=self._run, name="trivet preload", daemon=True)
        self._thread.start()

    def progress(self) -> PreloadProgress:
        """How far it is."""
        return msgspec.structs.replace(self._progress)

    def wait(self, seconds: float | None = None) -> PreloadProgress:
        """Wait until it has ended, ``seconds`` at most."""
        self._thread.join(seconds)
        return self.progress()

    def stop(self) -> None:
        """End it, and wait until it has."""
        self._stopped = True
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        progress = self._progress
        try:
            digests = [] if self._path is None else _read(self._path)
            progress.total = len(digests)
            for digest in digests:
                progress.why = self._why_not()
                if progress.why:
                    return
                self._load(digest)
                progress.done += 1
        except (StoreError, CorruptEntry, OSError) as error:
            progress.why = str(error)
        finally:
            progress.finished = True

    def _why_not(self) -> str:
        """Why it has to end; empty when it may go on."""
        if self._stopped:
            return "stopped"
        if self._tiers.clock.monotonic() >= self._until:
            return "the time is up"
        return "memory is full" if self._tiers.memory.stats().size >= self._limit else ""

    def _load(self, digest: bytes) -> None:
        tiers, progress = self._tiers, self._progress
        assert tiers.store is not None
        raw = tiers.store.read(digest)
        if raw is None:
            progress.missing += 1
            return
        try:
            canonical, facts = peek(raw)
            key = Key.from_canonical(canonical)
        except (CorruptEntry, IncompatibleEntry):
            progress.missing += 1  # whoever asks for it has it set aside
            return
        codec = tiers.codecs.get(facts.codec)
        if codec is None:
            progress.unknown += 1
            return
        if tiers.memory.stats().size + len(raw) + ENTRY_BYTES > self._limit:
            return  # a smaller one may still find room
        try:
            found = tiers.look_host(key, codec)
        except (StoreError, OSError):
            raise
        except Exception as error:  # noqa: BLE001  of a codec; the others can be read all the same
            progress.failed += 1
            progress.error = f"codec {codec.id}: {type(error).__qualname__}: {error}"
            tiers.report_found(key, Miss(MissReason.INCOMPATIBLE, progress.error))
            return
        if isinstance(found, Hit):
            progress.kept += 1
        else:
            progress.missing += 1
