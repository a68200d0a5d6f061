"""The epochs of dependency tags, in a log of their own.

Not in the index: losing an epoch, or rolling one back, would make invalidated entries valid again.
The log is synced before an invalidation is reported, every record carries a checksum, and the
durable size is kept beside the generation. A log that is damaged or shorter than that is replaced
by one with a new *base*, the epoch of every tag without a record: entries with any tag are then
invalid, which is safe.

    0   8   magic b"TRIVEPO1"
    8   8   base, little-endian
    16  8   XXH3-64 of bytes 0..16
    24      records: 4 bytes length, 8 bytes XXH3-64 of the payload, payload
            (MessagePack [tag, epoch]); a later record of a tag replaces an earlier one
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from trivet.stores.host.disk import write_all, write_file
from trivet.stores.host.generation import Generation

_MAGIC = b"TRIVEPO1"
_HEADER = struct.Struct("<8sQ8s")
_FRONT = struct.Struct("<IQ")
_COMPACT_ABOVE = 1 << 16
_decode = msgspec.msgpack.Decoder(tuple[str, int], strict=True).decode


class Epochs:
    """The tags' epochs, as of the last change of the generation."""

    def __init__(
        self,
        path: Path,
        generation: Generation,
        temporary: Callable[[], Path],
        *,
        fresh: bool,
        read_only: bool,
    ) -> None:
        """``fresh``: the folder is new, so a missing log has lost nothing."""
        self._path = path
        self._generation = generation
        self._temporary = temporary
        self._read_only = read_only
        self._known: dict[str, int] = {}
        self._base = 0
        self._inode = self._end = 0
        if fresh and not read_only and not path.exists():
            with generation.exclusive():
                self._replace({}, 0)
        self._seen = generation.value
        if not self._load():
            self._start_over()
        if not read_only and self._end > generation.epochs_size:
            # A process died before it could tell the others what it had added.
            with generation.exclusive():
                generation.bump(epochs_size=max(self._end, generation.epochs_size))

    def current(self, tags: Iterable[str]) -> dict[str, int]:
        """The epoch of each tag."""
        seen = self._generation.value
        if seen != self._seen:
            if not self._load():
                self._start_over()
            self._seen = seen
        known, base = self._known, self._base
        return {tag: known.get(tag, base) for tag in tags}

    def raise_all(self, tags: Iterable[str]) -> dict[str, int]:
        """Increase each tag's epoch, durably; returns the new ones."""
        with self._generation.exclusive():
            # Before and after: whoever began under the old generation must not find it unchanged
            # once an epoch can be seen that was raised meanwhile.
            self._generation.bump()
            if not self._load():
                self._replace({}, self._next_base())
            raised = {tag: self._known.get(tag, self._base) + 1 for tag in tags}
            known = {**self._known, **raised}
            if self._size() != self._end or self._end > _COMPACT_ABOVE + 64 * len(known):
                self._replace(known, self._base)  # a torn tail is never cut in place
            else:
                self._append(raised)
            self._generation.bump(epochs_size=self._end)
        return raised

    def _append(self, raised: dict[str, int]) -> None:
        records = b"".join(_record(tag, epoch) for tag, epoch in raised.items())
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            write_all(descriptor, records)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._known.update(raised)
        self._end += len(records)

    def _replace(self, known: dict[str, int], base: int) -> None:
        front = _MAGIC + base.to_bytes(8, "little")
        records = b"".join(_record(tag, epoch) for tag, epoch in known.items())
        raw = front + xxh3_64_digest(front) + records
        write_file(self._path, raw, self._temporary())
        self._generation.bump(epochs_size=len(raw))
        self._known, self._base, self._end = dict(known), base, len(raw)
        self._inode = os.stat(self._path).st_ino

    def _start_over(self) -> None:
        if self._read_only:
            self._known, self._base = {}, self._next_base()
            return
        with self._generation.exclusive():
            if not self._load():
                self._replace({}, self._next_base())

    def _next_base(self) -> int:
        return max(time.time_ns(), self._base + 1, *self._known.values(), 0)

    def _size(self) -> int:
        return os.stat(self._path).st_size

    def _load(self) -> bool:
        """Read what was added; False when the log is missing, damaged or too short."""
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                start = self._end if inode == self._inode else 0
                file.seek(start)
                raw = file.read()
        except FileNotFoundError:
            return False
        known, base = (self._known, self._base) if start else ({}, _read_header(raw))
        if base is None:
            return False
        at, found = _read_records(raw, 0 if start else _HEADER.size)
        if start + at < self._generation.epochs_size:
            return False  # what lies behind a broken record was durable
        # New objects, so that a reader in another thread never sees half of a change.
        self._known, self._base, self._inode = {**known, **found}, base, inode
        self._end = start + at
        return True


def _record(tag: str, epoch: int) -> bytes:
    payload = msgspec.msgpack.encode((tag, epoch))
    return _FRONT.pack(len(payload), xxh3_64_intdigest(payload)) + payload


def _read_header(raw: bytes) -> int | None:
    if len(raw) < _HEADER.size:
        return None
    magic, base, check = _HEADER.unpack_from(raw)
    sound = magic == _MAGIC and check == xxh3_64_digest(raw[:16])
    return int(base) if sound else None


def _read_records(raw: bytes, at: int) -> tuple[int, dict[str, int]]:
    """Where the sound records end, and what they say."""
    found: dict[str, int] = {}
    while at + _FRONT.size <= len(raw):
        size, check = _FRONT.unpack_from(raw, at)
        payload = raw[at + _FRONT.size : at + _FRONT.size + size]
        if len(payload) != size or xxh3_64_intdigest(payload) != check:
            break
        tag, epoch = _decode(payload)
        found[tag] = epoch
        at += _FRONT.size + size
    return at, found
