"""What the index holds: sealed bytes, or a pointer to files; and how each entry is used."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from trivet.entries import HEAD_SIZE, Descriptor, head_length, peek
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.stores.host.disk import read_prefix

_FIRST_READ = 16 << 10
INLINE_LIMIT = 32 << 10
_MARK = 0  # first byte of a pointer; sealed bytes that begin with it are kept in a file
_OBJECT, _ARTIFACT = b"\0F", b"\0A"
_POINTER = struct.Struct("<2s8sQ")
_USES = struct.Struct("<IIdQf")
_FRONT = struct.Struct("<IId")
_CHECK = struct.Struct("<I")
_MOST = 0xFFFFFFFF
_HOUR = 3600.0


class Pointer(msgspec.Struct, frozen=True):
    """Where an entry's files are.

    ``sealed`` is the sealed manifest of an artifact, empty for a large value; ``size`` counts all
    bytes.
    """

    nonce: bytes
    size: int
    sealed: bytes
    is_artifact: bool

    def encode(self) -> bytes:
        """The record."""
        kind = _ARTIFACT if self.is_artifact else _OBJECT
        return _POINTER.pack(kind, self.nonce, self.size) + self.sealed


def is_inline(sealed: bytes | memoryview) -> bool:
    """Whether sealed bytes are kept in the index itself."""
    return 0 < len(sealed) <= INLINE_LIMIT and sealed[0] != _MARK


def pointer(record: bytes) -> Pointer | None:
    """The pointer in a record; None when the record is the sealed bytes. Raises `CorruptEntry`."""
    if record and record[0] != _MARK:
        return None
    if len(record) < _POINTER.size:
        raise CorruptEntry("a pointer of the index is too short")
    kind, nonce, size = _POINTER.unpack_from(record)
    if kind not in (_OBJECT, _ARTIFACT):
        raise CorruptEntry("a pointer of the index has no known kind")
    return Pointer(nonce, size, record[_POINTER.size :], kind == _ARTIFACT)


def where_is(record: bytes | None) -> Pointer | None:
    """Like `pointer`; a damaged pointer reads as sealed bytes, which it then fails to be."""
    if record is None:
        return None
    try:
        return pointer(record)
    except CorruptEntry:
        return None


def record_size(record: bytes) -> int:
    """Bytes that an entry occupies, files included; what the budget counts."""
    found = where_is(record)
    return found.size if found is not None else len(record)


class NewEntry(NamedTuple):
    """One entry for `HostStore.write_many`. ``facts`` is the descriptor that is in ``sealed``."""

    digest: bytes
    sealed: bytes
    facts: Descriptor


class Uses(NamedTuple):
    """What eviction knows of an entry: uses, seconds since the epoch, bytes, seconds to compute."""

    frequency: int
    last: float
    size: int
    cost: float
    group: str

    def encode(self) -> bytes:
        """The record; it begins with a checksum."""
        front = _USES.pack(0, min(self.frequency, _MOST), self.last, self.size, self.cost)
        body = front[4:] + self.group.encode()
        return _CHECK.pack(_check(body)) + body

    @classmethod
    def decode(cls, raw: bytes) -> Uses | None:
        """None when the record is damaged."""
        if len(raw) < _USES.size:
            return None
        check, frequency, last, size, cost = _USES.unpack_from(raw)
        if check != _check(raw[4:]):
            return None
        return cls(frequency, last, size, cost, raw[_USES.size :].decode())

    @staticmethod
    def added(raw: bytes, count: int, last: float) -> bytes | None:
        """A record with ``count`` more uses, the last at ``last``; None when it is damaged."""
        if len(raw) < _USES.size or _CHECK.unpack_from(raw)[0] != _check(raw[4:]):
            return None
        _, frequency, before = _FRONT.unpack_from(raw)
        frequency = min(frequency + count, _MOST)
        body = _FRONT.pack(0, frequency, max(before, last))[4:] + raw[_FRONT.size :]
        return _CHECK.pack(_check(body)) + body

    @classmethod
    def of(cls, sealed: bytes | memoryview, size: int, now: float) -> Uses:
        """One use, of an entry whose descriptor is in ``sealed`` (if it can be read)."""
        try:
            _, facts = peek(sealed)
        except (CorruptEntry, IncompatibleEntry):
            return cls(1, now, size, 0.0, "")
        return cls(1, now, size, facts.cost, facts.group)


def _check(body: bytes) -> int:
    return xxh3_64_intdigest(body) & 0xFFFFFFFF


def worth(uses: Uses, now: float) -> float:
    """What keeping an entry is worth: the least is evicted first.

    Seconds of compute saved per byte, as in GreedyDual-Size-Frequency (Cherkasova, 1998), with age
    in place of its inflation value: the value halves an hour after the last use, falls to a third
    after two, and so on. Ageing needs no state that processes would have to share.
    """
    age = max(now - uses.last, 0.0)
    cost = max(uses.cost, 1e-3)  # an unknown cost still orders by size and use
    return uses.frequency * cost / max(uses.size, 1) / (1.0 + age / _HOUR)


def read_head(path: Path) -> bytes:
    """The first bytes of a file of sealed bytes, up to its payload at least."""
    head = read_prefix(path, _FIRST_READ)
    if len(head) >= HEAD_SIZE and head_length(head) > len(head):
        head = read_prefix(path, head_length(head))
    return head
