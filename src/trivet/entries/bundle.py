"""The two parts of a bundle that say what is in it: its head, and its contents.

A bundle is one file: the entries of a release, cut into chunks that are stored once. Little-endian,
version 1::

    0   8   magic  b"TRIVETB\\n"
    8   2   format version
    10  6   reserved, zero
    16  8   length of the chunks
    24  8   length of the contents
    32  8   length of the signature, 0 for none
    40  32  BLAKE3 of the contents: the bundle's id
    72      chunks one after the other, contents, signature; then the file ends

The contents name every chunk by its BLAKE3, so whoever has verified the contents can verify all
else. They have one valid form: two bundles of the same entries are the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import msgspec
from blake3 import blake3

from trivet.entries.encoding import encode
from trivet.errors import CorruptEntry, IncompatibleEntry

MAGIC = b"TRIVETB\n"
VERSION = 1
HEAD_SIZE = 72
MAX_CHUNK = 1 << 20
MAX_CONTENTS = 32 << 20
MAX_SIGNATURE = 1 << 10
MAX_SEALED = 64 << 20  # of one entry, its files not counted: it is unpacked in memory
_SEALED_TIMES = 16  # entries without their files share little, unlike files
_STEP = 4 << 10  # bytes: what verifying one more chunk is worth
_HEAD = struct.Struct("<8sHHIQQQ32s")

Blob: TypeAlias = tuple[int, ...]
"""The chunks, by number, whose bytes one after the other are one value or one file."""


class Head(msgspec.Struct, frozen=True):
    """The first `HEAD_SIZE` bytes: three lengths in bytes, and the BLAKE3 of the contents."""

    chunks: int
    contents: int
    signature: int
    id: bytes

    def encode(self) -> bytes:
        """The bytes."""
        return _HEAD.pack(MAGIC, VERSION, 0, 0, self.chunks, self.contents, self.signature, self.id)

    @classmethod
    def decode(cls, raw: bytes, file_size: int) -> Head:
        """The head of a file of ``file_size`` bytes.

        Raises:
            CorruptEntry: it is none, or its lengths are not those of the file.
            IncompatibleEntry: a later release wrote it.
        """
        if len(raw) < HEAD_SIZE or not raw.startswith(MAGIC):
            raise CorruptEntry("this is not a bundle: the magic bytes are wrong")
        _, version, low, high, chunks, contents, signature, id_ = _HEAD.unpack_from(raw)
        if version != VERSION:
            raise IncompatibleEntry(
                f"the bundle has format version {version}, this release reads {VERSION}"
            )
        if low or high:
            raise IncompatibleEntry("the bundle uses a reserved field: a later release wrote it")
        if contents > MAX_CONTENTS or signature > MAX_SIGNATURE:
            raise CorruptEntry("the head's lengths are impossible")
        expected = HEAD_SIZE + chunks + contents + signature
        if expected != file_size:
            raise CorruptEntry(f"the bundle has {file_size} bytes; its head says {expected}")
        return cls(chunks, contents, signature, id_)


class EntryRecord(msgspec.Struct, frozen=True, array_like=True):
    """One entry: its key's digest, its sealed bytes, and of an artifact the files, in the order of
    its manifest."""

    digest: bytes
    sealed: Blob
    files: tuple[Blob, ...] = ()


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """What a bundle holds.

    Attributes:
        lengths: bytes of each chunk, in the order of the file.
        digests: BLAKE3 of each chunk, 32 bytes each.
        entries: sorted by digest.

    Raises `CorruptEntry` when the chunks are not in the order in which the entries first name them,
    repeat, or are named by nobody, and when entries are not sorted and unique.
    """

    lengths: tuple[int, ...]
    digests: bytes
    entries: tuple[EntryRecord, ...]

    def __post_init__(self) -> None:
        count = len(self.lengths)
        if len(self.digests) != 32 * count:
            raise CorruptEntry("the table of chunks is incomplete")
        if count and not 0 < min(self.lengths) <= max(self.lengths) <= MAX_CHUNK:
            raise CorruptEntry("a chunk's length is impossible")
        if len({self.digest_of(number) for number in range(count)}) != count:
            raise CorruptEntry("a chunk is stored twice")
        known = 0
        for number in (each for entry in self.entries for blob in _blobs(entry) for each in blob):
            if not 0 <= number <= known or number >= count:
                raise CorruptEntry("the chunks are not in the order in which they are named")
            known += number == known
        if known != count:
            raise CorruptEntry("a chunk is stored that no entry names")
        digests = [entry.digest for entry in self.entries]
        if any(len(each) != 32 for each in digests):
            raise CorruptEntry("an entry's digest has 32 bytes")
        if any(before >= after for before, after in pairwise(digests)):
            raise CorruptEntry("entries are sorted and unique")
        if any(self.size_of(entry.sealed) > MAX_SEALED for entry in self.entries):
            raise CorruptEntry(f"an entry without its files has at most {MAX_SEALED} bytes")
        # These are read to tell what there is, whoever wrote it.
        limit = MAX_SEALED + _SEALED_TIMES * sum(self.lengths)
        if self._effort(entry.sealed for entry in self.entries) > limit:
            raise CorruptEntry("the entries without their files are larger than can be")

    def digest_of(self, chunk: int) -> bytes:
        """BLAKE3 of a chunk."""
        return self.digests[32 * chunk : 32 * chunk + 32]

    def size_of(self, blob: Blob) -> int:
        """Bytes of a value or file."""
        lengths = self.lengths
        return sum(lengths[number] for number in blob)

    @property
    def unpacked(self) -> int:
        """Bytes of all entries and files."""
        return sum(self.size_of(blob) for entry in self.entries for blob in _blobs(entry))

    @property
    def effort(self) -> int:
        """What reading everything takes: bytes unpacked, and 4 KiB for each chunk of a value or
        file after the first."""
        return self._effort(blob for entry in self.entries for blob in _blobs(entry))

    def _effort(self, blobs: Iterable[Blob]) -> int:
        return sum(self.size_of(blob) + _STEP * max(len(blob) - 1, 0) for blob in blobs)

    def encode(self) -> bytes:
        """Deterministic MessagePack."""
        return encode(self)

    @classmethod
    def decode(cls, raw: bytes) -> Contents:
        """Raises `CorruptEntry` when ``raw`` is not exactly what `encode` makes."""
        try:
            found = _decode(raw)
        except (ValueError, RecursionError) as error:
            raise CorruptEntry(f"the bundle's contents can't be read: {error}") from error
        if found.encode() != raw:
            raise CorruptEntry("the bundle's contents are not in their one valid form")
        return found


_decode = msgspec.msgpack.Decoder(Contents).decode


def digest(raw: bytes) -> bytes:
    """The id of a bundle with these contents."""
    return blake3(raw).digest()


def signed_bytes(id_: bytes) -> bytes:
    """What a signature signs."""
    return b"trivet bundle 1\0" + id_


def offsets(lengths: Sequence[int]) -> list[int]:
    """Where in the file each chunk begins."""
    found, at = [], HEAD_SIZE
    for each in lengths:
        found.append(at)
        at += each
    return found


def _blobs(entry: EntryRecord) -> Iterator[Blob]:
    yield entry.sealed
    yield from entry.files
