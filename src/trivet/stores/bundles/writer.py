"""Making a bundle: read, verified, cut, written once, published by one rename."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from trivet.entries import Manifest, seal, unseal
from trivet.entries.bundle import (
    HEAD_SIZE,
    MAX_CONTENTS,
    MAX_SEALED,
    Blob,
    Contents,
    EntryRecord,
    Head,
    digest,
)
from trivet.entries.manifest import ARTIFACT_CODEC
from trivet.errors import CorruptEntry, StoreError, StoreFull, StoreUnavailable
from trivet.keys import Key
from trivet.stores.bundles.chunks import Chunk, Cutter
from trivet.stores.bundles.signing import SigningKey
from trivet.stores.host.disk import storage, sync_folder, write_all

Progress = Callable[[int], object]
"""Called with the bytes that were done since the last call."""


class Source(NamedTuple):
    """An entry to be bundled.

    ``read`` returns its sealed bytes and, of an artifact, the folder of the files; None when the
    entry is gone.
    """

    digest: bytes
    read: Callable[[], tuple[bytes | memoryview, Path | None] | None]


class Written(msgspec.Struct, frozen=True):
    """A bundle that was made: its id, and bytes of the file, unpacked, and of chunks."""

    id: bytes
    entries: int
    chunks: int
    size: int
    unpacked: int


def write_bundle(
    target: Path,
    sources: Iterable[Source],
    *,
    signer: SigningKey | None = None,
    progress: Progress | None = None,
) -> Written:
    """Write the entries of ``sources`` to the file ``target``.

    The same entries make the same bytes, in whatever order they come. What differs from host to
    host, the epochs of tags, is left out. A reader of ``target`` sees the old file or the new one.

    Raises:
        CorruptEntry: an entry is damaged, a recorded failure, or not the one of its digest.
        StoreError: it is gone, too large, or ``target`` can't be written.
        MissingExtra: pyfastcdc is not installed.
    """
    cutter = Cutter()
    ordered = sorted(sources, key=lambda source: source.digest)
    with storage(f"write {target}"), _replacing(target) as descriptor:
        pile = _Pile(descriptor, progress or (lambda _: None))
        os.lseek(descriptor, HEAD_SIZE, os.SEEK_SET)
        contents = pile.contents([_add(pile, cutter, source) for source in ordered])
        raw = contents.encode()
        if len(raw) > MAX_CONTENTS:
            raise StoreUnavailable("this is too much for one bundle", hint="choose fewer entries")
        id_ = digest(raw)
        signature = signer.sign(id_).encode() if signer is not None else b""
        write_all(descriptor, raw + signature)
        head = Head(pile.size, len(raw), len(signature), id_)
        os.lseek(descriptor, 0, os.SEEK_SET)
        write_all(descriptor, head.encode())
        size = HEAD_SIZE + pile.size + len(raw) + len(signature)
    return Written(id_, len(ordered), len(contents.lengths), size, contents.unpacked)


def neutral(digest_: bytes, raw: bytes | memoryview) -> tuple[bytes, Manifest | None]:
    """The sealed bytes of an entry as bundles hold them, and its manifest if it is an artifact.

    Raises `CorruptEntry` when the entry is damaged, a failure, or not the one of its digest.
    """
    sealed = unseal(raw, cryptographic=True)
    facts = sealed.descriptor
    if Key.from_canonical(sealed.key).digest != digest_:
        raise CorruptEntry("the key is not the one of the digest")
    if facts.failure is not None:
        raise CorruptEntry("a recorded failure holds for the host that made it")
    manifest = Manifest.decode(sealed.payload) if facts.codec == ARTIFACT_CODEC else None
    everywhere = msgspec.structs.replace(facts, tags=dict.fromkeys(facts.tags, 0), shared={})
    return seal(bytes(sealed.key), everywhere, sealed.payload), manifest


class _Pile:
    """Chunks, written when they are first met."""

    def __init__(self, descriptor: int, progress: Progress) -> None:
        self._descriptor = descriptor
        self._progress = progress
        self._numbers: dict[bytes, int] = {}
        self._lengths: list[int] = []
        self.size = 0

    def add(self, chunks: Iterable[Chunk]) -> Blob:
        return tuple(map(self._number, chunks))

    def _number(self, chunk: Chunk) -> int:
        size = len(chunk.data)
        number = self._numbers.setdefault(chunk.digest, len(self._lengths))
        if number == len(self._lengths):
            write_all(self._descriptor, chunk.data)
            self._lengths.append(size)
            self.size += size
        self._progress(size)
        return number

    def contents(self, entries: Sequence[EntryRecord]) -> Contents:
        return Contents(tuple(self._lengths), b"".join(self._numbers), tuple(entries))


def _add(pile: _Pile, cutter: Cutter, source: Source) -> EntryRecord:
    name = source.digest.hex()[:12]
    found = source.read()
    if found is None:
        raise StoreUnavailable(f"{name} was removed meanwhile", hint="try again")
    raw, folder = found
    if len(raw) > MAX_SEALED:
        raise StoreFull(f"{name} has {len(raw)} bytes; a value in a bundle has {MAX_SEALED}")
    try:
        sealed, manifest = neutral(source.digest, raw)
        blob = pile.add(cutter.cut(sealed))
        if manifest is None:
            return EntryRecord(source.digest, blob)
        if folder is None:
            raise CorruptEntry("its files are gone")
        files = tuple(
            pile.add(cutter.cut_file(folder / record.name, record)) for record in manifest.files
        )
    except CorruptEntry as error:
        raise CorruptEntry(
            f"{name} can't go into a bundle: {error.message}",
            hint="'trivet verify' sets damaged entries aside; then make them again",
        ) from error
    return EntryRecord(source.digest, blob, files)


@contextmanager
def _replacing(target: Path) -> Iterator[int]:
    """A descriptor whose file becomes ``target`` at the end; after an error there is none.

    What a process leaves that dies meanwhile is one file, which the next one writes over.
    """
    part = target.with_name(f".{target.name}.part")
    descriptor = _open_alone(part)
    try:
        os.ftruncate(descriptor, 0)
        yield descriptor
        os.fsync(descriptor)
        os.rename(part, target)
        sync_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    finally:
        os.close(descriptor)


def _open_alone(part: Path) -> int:
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(part, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have renamed the file between the two.
            if os.path.exists(part) and os.path.samestat(os.stat(part), os.fstat(descriptor)):
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise StoreError(f"another process is writing {part}") from error
        os.close(descriptor)
