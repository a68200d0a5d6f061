"""`Manifest`: the payload of an artifact, an entry whose value is a set of files."""

from __future__ import annotations

import msgspec

from trivet.errors import CorruptEntry

ARTIFACT_CODEC = "files/1"


class FileRecord(msgspec.Struct, frozen=True):
    """One file of an artifact: POSIX-style relative name, size in bytes, BLAKE3 (32 bytes)."""

    name: str
    size: int
    blake3: bytes


class Manifest(msgspec.Struct, frozen=True):
    """The files of an artifact, sorted by name.

    Raises `CorruptEntry` on names that are absolute, climb out, repeat or are not sorted: whoever
    unpacks a manifest may join its names to a folder without looking again.
    """

    files: tuple[FileRecord, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.files]
        if names != sorted(set(names)):
            raise CorruptEntry("a manifest's names are sorted and unique")
        for each in self.files:
            if not _is_safe(each.name):
                raise CorruptEntry(f"a manifest can't hold the name {each.name!r}")
            if each.size < 0 or len(each.blake3) != 32:
                raise CorruptEntry(f"the manifest's record of {each.name!r} is impossible")

    @property
    def size(self) -> int:
        """Total bytes."""
        return sum(each.size for each in self.files)

    def encode(self) -> bytes:
        """Deterministic MessagePack."""
        return _encode(self)

    @classmethod
    def decode(cls, raw: bytes | memoryview) -> Manifest:
        """Raises `CorruptEntry` when ``raw`` is not a manifest."""
        try:
            return _decode(raw)
        except msgspec.MsgspecError as error:
            raise CorruptEntry(f"the manifest can't be read: {error}") from error


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(Manifest).decode


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return (
        bool(name)
        and "\\" not in name
        and "\0" not in name
        and all(part not in ("", ".", "..") for part in parts)
    )
