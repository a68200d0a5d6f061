"""The sealed entry: one byte layout for disk, wire and bundle.

Little-endian, version 1::

    0   8   magic  b"TRIVET\\r\\n"     (a text-mode copy breaks it visibly)
    8   16  XXH3-128 of bytes 24 up to the payload: the head's checksum
    24  2   format version
    26  2   reserved, zero
    28  4   length of the key
    32  4   length of the descriptor
    36  4   reserved, zero
    40  8   length of the payload
    48  16  XXH3-128 of the payload
    64  32  BLAKE3 of bytes 24..64, key, descriptor, payload
    96      key (canonical), descriptor, payload

Two checksums, so that the head can be trusted before the body is touched. XXH3 is checked on every
read; BLAKE3 where an entry changes hands (`unseal(..., cryptographic=True)`).
"""

from __future__ import annotations

import struct

import msgspec
from blake3 import blake3
from xxhash import xxh3_128_digest

from trivet.entries.descriptor import Descriptor, decode
from trivet.errors import CorruptEntry, IncompatibleEntry

MAGIC = b"TRIVET\r\n"
VERSION = 1
HEAD_SIZE = 96
_FRONT = struct.Struct("<8s16sHHIIIQ16s32s")
_unpack = struct.Struct("<8s16sIIIIQ16s").unpack_from  # version and reserved as one number
_CHECKED = 24  # where the head's checksum begins to count
_STRONG = 64
_MAX_PART = 1 << 24  # of a key or a descriptor


class Sealed(msgspec.Struct, frozen=True, gc=False):
    """A sealed entry, opened. The payload is a view into the buffer that was read."""

    key: bytes | memoryview
    descriptor: Descriptor
    payload: memoryview


def seal(key: bytes, descriptor: Descriptor, payload: bytes | bytearray | memoryview) -> bytes:
    """The sealed form of an entry. ``key`` is the key's canonical bytes.

    Raises ValueError when key or descriptor are over 16 MiB or the descriptor has no valid form,
    TypeError when the payload is a view that is not contiguous.
    """
    view = memoryview(payload)
    payload = view.cast("B") if view.nbytes else b""  # a view of numbers counts numbers, not bytes
    facts = descriptor.encode()
    if len(key) > _MAX_PART or len(facts) > _MAX_PART:
        raise ValueError(f"key and descriptor have at most {_MAX_PART} bytes each")
    sizes = struct.pack("<HHIIIQ", VERSION, 0, len(key), len(facts), 0, len(payload))
    front = sizes + xxh3_128_digest(payload)
    strong = blake3(front + key + facts)
    strong.update(payload)
    head = b"".join((front, strong.digest(), key, facts))
    return b"".join((MAGIC, xxh3_128_digest(head), head, payload))


def head_length(prefix: bytes | memoryview) -> int:
    """Bytes from the start to the payload, from the first `HEAD_SIZE` bytes (not yet verified)."""
    return _front(memoryview(prefix))[1]


def payload_length(prefix: bytes | memoryview) -> int:
    """Bytes of the payload, from the first `HEAD_SIZE` bytes (not yet verified)."""
    return _front(memoryview(prefix))[2]


def peek(buffer: bytes | memoryview) -> tuple[memoryview, Descriptor]:
    """Key and descriptor, verified, from a buffer that holds at least the head.

    Raises `CorruptEntry` or `IncompatibleEntry`. The payload is not touched.
    """
    view = memoryview(buffer)
    middle, start, _, _, _ = _front(view, checked=True)
    return view[HEAD_SIZE:middle], Descriptor.decode(view[middle:start])


def unseal(buffer: bytes | memoryview, *, cryptographic: bool = False) -> Sealed:
    """Open and verify a whole sealed entry.

    Raises:
        CorruptEntry: a length or a checksum is not what was written.
        IncompatibleEntry: the format version is another one, or a reserved field is in use.
    """
    # The hot path of every hit: one look at everything. What fails it goes through the checks one
    # by one, for an error that says what is wrong.
    size = len(buffer)
    if size >= HEAD_SIZE and not cryptographic:
        magic, head_check, version, key_size, facts_size, high, payload_size, payload_check = (
            _unpack(buffer)
        )
        middle = HEAD_SIZE + key_size
        start = middle + facts_size
        payload = memoryview(buffer)[start:]
        if (
            magic == MAGIC
            and version == VERSION
            and not high
            and start <= _MAX_PART  # larger heads are rare, and looked at below
            and start + payload_size == size
            and xxh3_128_digest(buffer[_CHECKED:start]) == head_check
            and xxh3_128_digest(payload) == payload_check
        ):
            try:
                return Sealed(buffer[HEAD_SIZE:middle], decode(buffer[middle:start]), payload)
            except (ValueError, RecursionError):
                pass
    return _unseal_by_steps(memoryview(buffer), cryptographic)


def _unseal_by_steps(view: memoryview, cryptographic: bool) -> Sealed:
    middle, start, payload_size, payload_check, strong_check = _front(view, checked=True)
    payload = view[start:]
    if len(payload) != payload_size:
        raise CorruptEntry("the payload is shorter or longer than its header says")
    if xxh3_128_digest(payload) != payload_check:
        raise CorruptEntry("the payload's checksum is wrong")
    if cryptographic:
        strong = blake3(view[_CHECKED:_STRONG])
        strong.update(view[HEAD_SIZE:])
        if strong.digest() != strong_check:
            raise CorruptEntry("the entry's BLAKE3 digest is wrong")
    return Sealed(view[HEAD_SIZE:middle], Descriptor.decode(view[middle:start]), payload)


def _front(view: memoryview, checked: bool = False) -> tuple[int, int, int, bytes, bytes]:
    """End of the key, end of the descriptor, payload length, payload's checksum, BLAKE3.

    ``checked`` verifies the head, which must then be whole.
    """
    if len(view) < HEAD_SIZE:
        raise CorruptEntry(f"an entry has at least {HEAD_SIZE} bytes, got {len(view)}")
    magic, head_check, version, low, key_size, facts_size, high, payload_size, check, strong = (
        _FRONT.unpack_from(view)
    )
    if magic != MAGIC:
        raise CorruptEntry("this is not a sealed entry: the magic bytes are wrong")
    if version != VERSION:
        raise IncompatibleEntry(
            f"the entry has format version {version}, this release reads {VERSION}"
        )
    if key_size > _MAX_PART or facts_size > _MAX_PART:
        raise CorruptEntry("the header's lengths are impossible")
    middle = HEAD_SIZE + key_size
    start = middle + facts_size
    if checked:
        if len(view) < start:
            raise CorruptEntry("the entry ends inside its head")
        if xxh3_128_digest(view[_CHECKED:start]) != head_check:
            raise CorruptEntry("the head's checksum is wrong")
        if low or high:
            raise IncompatibleEntry("the entry uses a reserved field: a later release wrote it")
    return middle, start, payload_size, check, strong
