"""`ObjectStore`: sealed entries and the files of artifacts in S3, GCS, Azure or a folder.

Below the url's prefix::

    entries/<digest>     a sealed entry; of an artifact, its sealed manifest
    blobs/<blake3>       a file of artifacts, under the digest of its content
    recipes/, chunks/    a file of more than 5 MiB, in chunks: see the module `chunks`
    epochs/base          a random text; written once
    epochs/now           a random text; written anew by every invalidation, last
    epochs/<blake3>      of a tag: a random text; written anew by its every invalidation
    collection/          what is to be removed: see the modules `collector` and `marks`

A blob's name says what it holds, so it is sent once, whoever sends it writes the same, and whoever
fetches it can tell damage. A manifest is written after its blobs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from blake3 import blake3

from trivet.entries import HEAD_SIZE, FileRecord, head_length
from trivet.errors import CorruptEntry, MissingExtra, StoreUnavailable
from trivet.stores.shared.chunks import Chunks
from trivet.stores.shared.faces import number
from trivet.stores.shared.marks import Marks
from trivet.stores.shared.requests import PART, Requests, Version
from trivet.stores.store import StoredHead

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file", "memory")
_SCAN_HEAD = 4096


class ObjectStore:
    """A `Store` with blobs and epochs.

    Attributes:
        requests: for who looks around in it.

    Args:
        url: ``s3://bucket/prefix``, ``gs://``, ``az://``, ``file:///folder`` or ``memory:///``.
            Credentials and end points come from the providers' own environment variables.
        timeout: seconds for one request; a file moves in requests of 5 MiB. What is slower than
            that counts as unreachable.

    Raises:
        MissingExtra: obstore is not installed.
        StoreUnavailable: the url or its configuration can't be used.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        self.url = url
        self.requests = Requests(url, timeout)
        self._marks = Marks(self.requests)
        self._chunks = Chunks(self.requests, self._marks)

    # Entries.

    def read(self, digest: bytes) -> bytes | None:
        """See `Store.read`."""
        return self.requests.get(_entry(digest))

    def write(self, digest: bytes, sealed: bytes) -> None:
        """See `Store.write`."""
        self.requests.put(_entry(digest), sealed)

    def offer(self, digest: bytes, sealed: bytes) -> bool:
        """`write`, unless there is an entry; False if there is."""
        if len(sealed) <= PART:
            return self.requests.create(_entry(digest), sealed)
        # What goes in parts can't be conditional; two who write at once write what is as good.
        if self.requests.size(_entry(digest)) is not None:
            return False
        self.requests.put(_entry(digest), sealed)
        return True

    def read_version(self, digest: bytes) -> tuple[bytes, Version] | None:
        """`read`, and what `replace` takes."""
        return self.requests.get_version(_entry(digest))

    def replace(self, digest: bytes, sealed: bytes, version: Version | None) -> bool:
        """`write`, where the entry is still of this version, or with None, where there is none.

        False if it isn't: somebody else was faster.
        """
        if version is None:
            return self.requests.create(_entry(digest), sealed)
        return self.requests.replace(_entry(digest), sealed, version)

    def delete(self, digest: bytes) -> bool:
        """See `Store.delete`."""
        known = self.requests.size(_entry(digest)) is not None
        return self.requests.remove(_entry(digest)) and known

    def scan(self) -> Iterator[StoredHead]:
        """See `Store.scan`. One request for each entry."""
        for each in self.requests.list("entries/"):
            head = self._head(each.name)
            if head is not None:
                yield StoredHead(bytes.fromhex(each.name.rpartition("/")[2]), head)

    def close(self) -> None:
        """See `Store.close`."""
        self.requests.close()

    # Blobs.

    def send(self, path: Path, record: FileRecord) -> bool:
        """Keep the file at ``path``, whose record this is; False if it was there already."""
        name = _blob(record)
        if record.size <= PART:
            with self.requests.asking("read the file to send"):
                content = path.read_bytes()
            if self.requests.create(name, content):
                return True
            if self.requests.size(name) == record.size and not self._marks.has(name):
                return False
            self.requests.put(name, content)
            return True
        known = self.requests.size(name)
        if known == record.size and not self._marks.has(name):
            return False
        if known is None and self._chunks.has(record):
            return False
        try:
            with self.requests.asking("read the file to send"):
                self._chunks.send(path, record)
        except CorruptEntry as error:
            raise StoreUnavailable(f"a file changed while it was sent: {error.message}") from error
        except MissingExtra:  # then it goes whole
            self.requests.put_file(name, path)
            return True
        if known is not None:
            self.requests.remove(name)
        return True

    def fetch(self, record: FileRecord, target: Path) -> None:
        """Write the blob to ``target``, which must not exist; verified while it is written.

        Raises `CorruptEntry` when it is missing, of another size or of other content; what is at
        ``target`` must then not be used.
        """
        name, digest = _blob(record), blake3()
        found = self.requests.size(name)
        if found is not None and found != record.size:
            raise CorruptEntry(
                f"{record.name} has {found} bytes, not {record.size}, in the shared store"
            )
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
            parts = self._parts(name, record) if found is not None else self._chunks.fetch(record)
            for part in parts:
                digest.update(part)
                file.write(part)
        if digest.digest() != record.blake3:
            raise CorruptEntry(f"{record.name} is not what was stored in the shared store")

    def discard(self, record: FileRecord) -> None:
        """Remove a blob that is damaged, so that the next one who has it sends it."""
        self.requests.remove(_blob(record))
        self._chunks.discard(record)

    def _parts(self, name: str, record: FileRecord) -> Iterator[bytes]:
        for start in range(0, record.size, PART):
            part = self.requests.get(name, start, min(start + PART, record.size))
            if part is None:
                raise CorruptEntry(f"{record.name} is missing in the shared store")
            yield part

    # Epochs.

    def mark(self) -> str:
        """See `EpochSource.mark`."""
        now = self.requests.get("epochs/now") or b""
        return f"{self._base()} {now.decode('ascii', 'replace')}"

    def epochs(self, tags: Iterable[str]) -> dict[str, int]:
        """See `EpochSource.epochs`. One request for each tag."""
        base = self._base()
        found = {tag: self.requests.get(_tag(tag)) for tag in tags}
        return {
            tag: number(base, (raw or b"").decode("ascii", "replace")) for tag, raw in found.items()
        }

    def raise_epochs(self, tags: Iterable[str]) -> None:
        """See `EpochSource.raise_epochs`.

        A random text instead of a counter: two hosts may write at once, without a condition.
        """
        self._base()
        for tag in tags:
            self.requests.put(_tag(tag), secrets.token_hex(16).encode())
        self.requests.put("epochs/now", secrets.token_hex(16).encode())

    def _base(self) -> str:
        """Gone with the rest when somebody empties the bucket; another one says that it was."""
        found = self.requests.get("epochs/base")
        if found is None:
            self.requests.create("epochs/base", secrets.token_hex(16).encode())
            found = self.requests.get("epochs/base") or b""
        return found.decode("ascii", "replace")

    def _head(self, name: str) -> bytes | None:
        size = self.requests.size(name)
        if not size:
            return None
        head = self.requests.get(name, 0, min(size, _SCAN_HEAD))
        if head is None or len(head) < HEAD_SIZE:
            return head
        try:
            needed = head_length(head)
        except CorruptEntry:
            return head
        return head if needed <= len(head) else self.requests.get(name, 0, min(size, needed))


def _entry(digest: bytes) -> str:
    return f"entries/{digest.hex()}"


def _blob(record: FileRecord) -> str:
    return f"blobs/{record.blake3.hex()}"


def _tag(tag: str) -> str:
    return f"epochs/{blake3(tag.encode()).hexdigest()}"
