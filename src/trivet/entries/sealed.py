"""The sealed entry: one byte layout for disk, wire and bundle.

Little-endian, version 1::

    0   8   magic  b"TRIVET\\r\\n"     (a text-mode copy breaks it visibly)
    8   2   format version
    10  2   reserved, zero
    12  4   length of the key
    16  4   length of the descriptor
    20  4   reserved, zero
    24  8   length of the payload
    32  16  XXH3-128 of bytes 0..32, key, descriptor
    48  16  XXH3-128 of the payload
    64  32  BLAKE3 of bytes 0..32, key, descriptor, payload
    96      key (canonical), descriptor, payload

Two checksums, so that the head can be trusted before the body is touched. XXH3 is checked on every
read; BLAKE3 where an entry changes hands (`unseal(..., cryptographic=True)`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from blake3 import blake3
from xxhash import xxh3_128_digest

from trivet.entries.descriptor import Descriptor
from trivet.errors import CorruptEntry, IncompatibleEntry

MAGIC = b"TRIVET\r\n"
VERSION = 1
HEAD_SIZE = 96
_FRONT = struct.Struct("<8sHHIIIQ")
_FRONT_SIZE = _FRONT.size
_MAX_KEY = 1 << 24
_MAX_DESCRIPTOR = 1 << 24


class Sealed(NamedTuple):
    """A sealed entry, opened: views into the buffer that was read, valid as long as it is."""

    key: memoryview
    descriptor: Descriptor
    payload: memoryview


def seal(key: bytes, descriptor: Descriptor, payload: bytes | bytearray | memoryview) -> bytes:
    """The sealed form of an entry. ``key`` is the key's canonical bytes."""
    facts = descriptor.encode()
    front = _FRONT.pack(MAGIC, VERSION, 0, len(key), len(facts), 0, len(payload))
    head = front + key + facts
    strong = blake3(head)
    strong.update(payload)
    checks = xxh3_128_digest(head) + xxh3_128_digest(payload) + strong.digest()
    return b"".join((front, checks, key, facts, payload))


def head_length(prefix: bytes | memoryview) -> int:
    """Bytes from the start to the payload, from the first `HEAD_SIZE` bytes (not yet verified)."""
    key_size, facts_size, _ = _front(memoryview(prefix))
    return HEAD_SIZE + key_size + facts_size


def peek(buffer: bytes | memoryview) -> tuple[memoryview, Descriptor]:
    """Key and descriptor, verified, from a buffer that holds at least the head.

    Raises `CorruptEntry` or `IncompatibleEntry`. The payload is not touched.
    """
    view = memoryview(buffer)
    key, facts, _ = _open_head(view)
    return key, Descriptor.decode(facts)


def unseal(buffer: bytes | memoryview, *, cryptographic: bool = False) -> Sealed:
    """Open and verify a whole sealed entry.

    Raises:
        CorruptEntry: a length or a checksum is not what was written.
        IncompatibleEntry: the format version is another one.
    """
    view = memoryview(buffer)
    key, facts, start = _open_head(view)
    payload = view[start:]
    if len(payload) != int.from_bytes(view[24:32], "little"):
        raise CorruptEntry("the payload is shorter or longer than its header says")
    if xxh3_128_digest(payload) != view[48:64]:
        raise CorruptEntry("the payload's checksum is wrong")
    if cryptographic:
        strong = blake3(view[:_FRONT_SIZE])
        strong.update(view[HEAD_SIZE:])
        if strong.digest() != view[64:96]:
            raise CorruptEntry("the entry's BLAKE3 digest is wrong")
    return Sealed(key, Descriptor.decode(facts), payload)


def _front(view: memoryview) -> tuple[int, int, int]:
    if len(view) < HEAD_SIZE:
        raise CorruptEntry(f"an entry has at least {HEAD_SIZE} bytes, got {len(view)}")
    magic, version, _, key_size, facts_size, _, payload_size = _FRONT.unpack_from(view)
    if magic != MAGIC:
        raise CorruptEntry("this is not a sealed entry: the magic bytes are wrong")
    if version != VERSION:
        raise IncompatibleEntry(
            f"the entry has format version {version}, this release reads {VERSION}"
        )
    if key_size > _MAX_KEY or facts_size > _MAX_DESCRIPTOR:
        raise CorruptEntry("the header's lengths are impossible")
    return key_size, facts_size, payload_size


def _open_head(view: memoryview) -> tuple[memoryview, memoryview, int]:
    key_size, facts_size, _ = _front(view)
    middle = HEAD_SIZE + key_size
    start = middle + facts_size
    if len(view) < start:
        raise CorruptEntry("the entry ends inside its head")
    if xxh3_128_digest(bytes(view[:_FRONT_SIZE]) + bytes(view[HEAD_SIZE:start])) != view[32:48]:
        raise CorruptEntry("the head's checksum is wrong")
    return view[HEAD_SIZE:middle], view[middle:start], start
