"""Reading a bundle: nothing is handed out that was not verified.

A bundle may come from anywhere. Its lengths are compared with the file before anything is read, its
contents with their digest, and every chunk with its own before it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from blake3 import blake3

from trivet.entries import Descriptor, FileRecord, Manifest, unseal
from trivet.entries.bundle import HEAD_SIZE, Blob, Contents, EntryRecord, Head, digest, offsets
from trivet.entries.manifest import ARTIFACT_CODEC
from trivet.errors import CorruptEntry
from trivet.keys import Key
from trivet.stores.bundles.signing import Signature, Untrusted

_FREE = 1 << 30  # bytes that every file may unpack to
_TIMES = 256  # and how many times its own size


def _nothing(_: int) -> None:
    pass


class Item(NamedTuple):
    """One entry, its sealed form verified. ``manifest`` is None for a value, which has no files."""

    record: EntryRecord
    key: Key
    descriptor: Descriptor
    sealed: bytes
    manifest: Manifest | None

    def files(self) -> Iterator[tuple[FileRecord, Blob]]:
        """The files and the chunks that they are made of."""
        if self.manifest is not None:
            yield from zip(self.manifest.files, self.record.files, strict=True)


class Bundle:
    """An open bundle. Make one with `open`, and close it.

    Attributes:
        id: BLAKE3 of the contents. contents: what is in it. signature: unchecked; None where there
            is none.
        size: bytes of the file.
    """

    def __init__(self, descriptor: int, size: int, head: Head) -> None:
        self._descriptor = descriptor
        self.size = size
        self.id = head.id
        self.raw_contents = self._read(HEAD_SIZE + head.chunks, head.contents)
        if digest(self.raw_contents) != head.id:
            raise CorruptEntry("the bundle's contents are not what was written")
        self.contents = Contents.decode(self.raw_contents)
        if sum(self.contents.lengths) != head.chunks:
            raise CorruptEntry("the chunks have another length than the head says")
        self.raw_signature = self._read(size - head.signature, head.signature)
        self.signature = Signature.decode(self.raw_signature) if head.signature else None
        self._offsets = offsets(self.contents.lengths)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the bundle at ``path``; its contents are verified, its chunks not yet.

        Raises:
            CorruptEntry: it is none, or damaged.
            IncompatibleEntry: a later release wrote it.
            OSError: it can't be read.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            return cls(descriptor, size, Head.decode(os.pread(descriptor, HEAD_SIZE, 0), size))
        except BaseException:
            os.close(descriptor)
            raise

    def check_signature(self) -> None:
        """Raises `CorruptEntry` when there is a signature, and it is not of this bundle."""
        if self.signature is not None:
            self.signature.check(self.id)

    def require_in_proportion(self) -> None:
        """Raises `Untrusted` when reading all would take far longer than the file's size says.

        Chunks are stored once, so a few kilobytes can name terabytes. Plans of one model share most
        of theirs, a few hundred times at most; who is trusted may go beyond.
        """
        if self.contents.effort > _FREE + _TIMES * self.size:
            raise Untrusted(
                f"the bundle has {self.size} bytes and unpacks to {self.contents.unpacked}; that "
                "much is only read of a writer who is trusted here",
                hint="if you know this writer, have it signed, and name the public key with "
                "--trust FILE.pub",
            )

    def blob(self, blob: Blob) -> Iterator[bytes]:
        """The chunks of a value or file, each verified. Raises `CorruptEntry`."""
        contents = self.contents
        for number in blob:
            chunk = self._read(self._offsets[number], contents.lengths[number])
            if blake3(chunk).digest() != contents.digest_of(number):
                raise CorruptEntry(f"chunk {number} of the bundle is not what was written")
            yield chunk

    def items(self) -> Iterator[Item]:
        """All entries; their files are not read."""
        return map(self.item, self.contents.entries)

    def item(self, record: EntryRecord) -> Item:
        """One entry. Raises `CorruptEntry` and `IncompatibleEntry`."""
        raw = b"".join(self.blob(record.sealed))
        sealed = unseal(raw, cryptographic=True)
        key, facts = Key.from_canonical(sealed.key), sealed.descriptor
        if key.digest != record.digest:
            raise CorruptEntry("the key is not the one of the digest")
        if facts.failure is not None or any(facts.tags.values()) or facts.shared:
            raise CorruptEntry("the entry says what holds for one host alone")
        manifest = Manifest.decode(sealed.payload) if facts.codec == ARTIFACT_CODEC else None
        sizes = [each.size for each in manifest.files] if manifest is not None else []
        if sizes != [self.contents.size_of(each) for each in record.files]:
            raise CorruptEntry("the files are not those of the manifest")
        return Item(record, key, facts, raw, manifest)

    def file(self, record: FileRecord, blob: Blob) -> Iterator[bytes]:
        """The chunks of a file; the file as a whole is verified at the end.

        Raises `CorruptEntry`: then nothing that came before must be used.
        """
        whole = blake3()
        for chunk in self.blob(blob):
            whole.update(chunk)
            yield chunk
        if whole.digest() != record.blake3:
            raise CorruptEntry(f"{record.name} is not what the manifest says")

    def check(self, progress: Callable[[int], object] = _nothing) -> Iterator[Item]:
        """Read and verify everything; yields each entry when all of it was found sound.

        ``progress`` is called with bytes done since the last call. Raises as `check_signature` and
        `item`.
        """
        self.check_signature()
        for item in self.items():
            progress(len(item.sealed))
            for record, blob in item.files():
                for chunk in self.file(record, blob):
                    progress(len(chunk))
            yield item

    def close(self) -> None:
        """Close the file; twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, at: int, count: int) -> bytes:
        parts = []
        while count and (part := os.pread(self._descriptor, count, at)):
            parts.append(part)
            at, count = at + len(part), count - len(part)
        if count:
            raise CorruptEntry("the bundle became shorter while it was read")
        return b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
