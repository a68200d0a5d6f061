"""`Manifest`: the payload of an artifact, an entry whose value is a set of files."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trivet.entries.encoding import encode
from trivet.errors import CorruptEntry

ARTIFACT_CODEC = "files/1"
_MAX_SIZE = 1 << 62
_MAX_NAME = 1024  # bytes, of a whole name
_MAX_DEPTH = 64  # parts; looking at all folders of all names must not take for ever
_FORBIDDEN = bytes([*range(32), 127]) + b"\\"  # control characters, backslash
_MAX_PART = 255  # bytes, of one part; what Linux file systems take


class FileRecord(msgspec.Struct, frozen=True):
    """One file of an artifact: POSIX-style relative name, size in bytes, BLAKE3 (32 bytes)."""

    name: str
    size: int
    blake3: bytes


class Manifest(msgspec.Struct, frozen=True):
    """The files of an artifact, sorted by name.

    Raises `CorruptEntry` on names that are absolute, climb out, repeat, are not sorted, lie inside
    another file or are too long for a file system: whoever unpacks a manifest may join its names
    to a folder without looking again.
    """

    files: tuple[FileRecord, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.files]
        known = set(names)
        if names != sorted(known):
            raise CorruptEntry("a manifest's names are sorted and unique")
        for each in self.files:
            if not _is_safe(each.name):
                raise CorruptEntry(f"a manifest can't hold the name {each.name!r}")
            if any(folder in known for folder in _folders(each.name)):
                raise CorruptEntry(f"the file {each.name!r} lies inside another file")
            if not 0 <= each.size < _MAX_SIZE or len(each.blake3) != 32:
                raise CorruptEntry(f"the manifest's record of {each.name!r} is impossible")

    @property
    def size(self) -> int:
        """Total bytes."""
        return sum(each.size for each in self.files)

    def encode(self) -> bytes:
        """Deterministic MessagePack."""
        return encode(self)

    @classmethod
    def decode(cls, raw: bytes | memoryview) -> Manifest:
        """Raises `CorruptEntry` when ``raw`` is not a manifest."""
        try:
            return _decode(raw)
        except ValueError as error:
            raise CorruptEntry(f"the manifest can't be read: {error}") from error


_decode = msgspec.msgpack.Decoder(Manifest).decode


def _is_safe(name: str) -> bool:
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        return False
    return (
        0 < len(raw) <= _MAX_NAME
        and raw.count(b"/") < _MAX_DEPTH
        and raw.translate(None, _FORBIDDEN) == raw
        and all(
            part not in (b"", b".", b"..") and len(part) <= _MAX_PART for part in raw.split(b"/")
        )
    )


def _folders(name: str) -> Iterator[str]:
    """``"a"``, ``"a/b"`` of ``"a/b/c"``."""
    for i, letter in enumerate(name):
        if letter == "/":
            yield name[:i]
