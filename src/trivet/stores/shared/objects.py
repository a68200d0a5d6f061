"""`ObjectStore`: sealed entries and the files of artifacts in S3, GCS, Azure or a folder.

Below the url's prefix::

    entries/<digest>     a sealed entry; of an artifact, its sealed manifest
    blobs/<blake3>       a file of artifacts, under the digest of its content
    recipes/, chunks/    a file of more than 5 MiB, in chunks: see the module `chunks`
    epochs/base          a random text; written once
    epochs/now           a random text; written anew by every invalidation, last
    epochs/<blake3>      of a tag: a random text; written anew by its every invalidation

A blob's name says what it holds, so it is sent once, whoever sends it writes the same, and whoever
fetches it can tell damage. A manifest is written after its blobs.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from blake3 import blake3

from trivet.entries import HEAD_SIZE, FileRecord, head_length
from trivet.errors import (
    CorruptEntry,
    MissingExtra,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from trivet.stores.shared.chunks import Chunks
from trivet.stores.shared.faces import number
from trivet.stores.store import StoredHead

T = TypeVar("T")

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file", "memory")
_PART = 5 << 20  # bytes a request; the least that S3 takes in an upload by parts
_AT_ONCE = 2
_SCAN_HEAD = 4096
_ALLOW_HTTP = {"s3": "AWS_ALLOW_HTTP", "s3a": "AWS_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_DENIED = ("PermissionDeniedError", "UnauthenticatedError")

# The runtime behind obstore has threads. They don't exist in a forked child, where every call would
# wait for ever. So the process that used it first is the only one of its family that may.
_first_user = 0


class ObjectStore:
    """A `Store` with blobs and epochs.

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
        try:
            import obstore
        except ImportError as error:
            raise MissingExtra(
                "object stores need the package obstore", hint="pip install 'trivet[shared]'"
            ) from error
        self.url = url
        self._obs = obstore
        self._timeout = timeout
        self._client: Any = None
        self._connecting = threading.Lock()
        self._closed = False
        self._chunks = Chunks(_Requests(self))

    # Entries.

    def read(self, digest: bytes) -> bytes | None:
        """See `Store.read`."""
        return self._get(_entry(digest))

    def write(self, digest: bytes, sealed: bytes) -> None:
        """See `Store.write`."""
        self._put(_entry(digest), sealed)

    def offer(self, digest: bytes, sealed: bytes) -> bool:
        """`write`, unless there is an entry; False if there is."""
        if len(sealed) <= _PART:
            return self._create(_entry(digest), sealed)
        # What goes in parts can't be conditional; two who write at once write what is as good.
        if self._size(_entry(digest)) is not None:
            return False
        self._put(_entry(digest), sealed)
        return True

    def delete(self, digest: bytes) -> bool:
        """See `Store.delete`."""
        known = self._size(_entry(digest)) is not None
        return self._remove(_entry(digest)) and known

    def scan(self) -> Iterator[StoredHead]:
        """See `Store.scan`. One request for each entry."""
        with self._asking("list") as client:
            found = self._obs.list(client, "entries/")
        while True:
            with self._asking("list"):
                page = next(found, None)
            if page is None:
                return
            for each in page:
                head = self._head(each["path"])
                if head is not None:
                    yield StoredHead(bytes.fromhex(each["path"].rpartition("/")[2]), head)

    def close(self) -> None:
        """See `Store.close`."""
        self._closed, self._client = True, None

    # Blobs.

    def send(self, path: Path, record: FileRecord) -> bool:
        """Keep the file at ``path``, whose record this is; False if it was there already."""
        name = _blob(record)
        if record.size <= _PART:
            with self._asking("read the file to send"):
                content = path.read_bytes()
            if self._create(name, content):
                return True
            if self._size(name) == record.size:
                return False
            self._put(name, content)
            return True
        known = self._size(name)
        if known == record.size or (known is None and self._chunks.has(record)):
            return False
        try:
            with self._asking("read the file to send"):
                self._chunks.send(path, record)
        except CorruptEntry as error:
            raise StoreUnavailable(f"a file changed while it was sent: {error.message}") from error
        except MissingExtra:  # then it goes whole
            with self._asking("send a file") as client:
                self._obs.put(client, name, path, chunk_size=_PART, max_concurrency=_AT_ONCE)
            return True
        if known is not None:
            self._remove(name)
        return True

    def fetch(self, record: FileRecord, target: Path) -> None:
        """Write the blob to ``target``, which must not exist; verified while it is written.

        Raises `CorruptEntry` when it is missing, of another size or of other content; what is at
        ``target`` must then not be used.
        """
        name, digest = _blob(record), blake3()
        found = self._size(name)
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
        self._remove(_blob(record))
        self._chunks.discard(record)

    def _parts(self, name: str, record: FileRecord) -> Iterator[bytes]:
        for start in range(0, record.size, _PART):
            part = self._get(name, start, min(start + _PART, record.size))
            if part is None:
                raise CorruptEntry(f"{record.name} is missing in the shared store")
            yield part

    # Epochs.

    def mark(self) -> str:
        """See `EpochSource.mark`."""
        return f"{self._base()} {(self._get('epochs/now') or b'').decode('ascii', 'replace')}"

    def epochs(self, tags: Iterable[str]) -> dict[str, int]:
        """See `EpochSource.epochs`. One request for each tag."""
        base = self._base()
        found = {tag: self._get(_tag(tag)) for tag in tags}
        return {
            tag: number(base, (raw or b"").decode("ascii", "replace")) for tag, raw in found.items()
        }

    def raise_epochs(self, tags: Iterable[str]) -> None:
        """See `EpochSource.raise_epochs`.

        A random text instead of a counter: two hosts may write at once, without a condition.
        """
        self._base()
        for tag in tags:
            self._put(_tag(tag), secrets.token_hex(16).encode())
        self._put("epochs/now", secrets.token_hex(16).encode())

    def _base(self) -> str:
        """Gone with the rest when somebody empties the bucket; another one says that it was."""
        found = self._get("epochs/base")
        if found is None:
            self._create("epochs/base", secrets.token_hex(16).encode())
            found = self._get("epochs/base") or b""
        return found.decode("ascii", "replace")

    # Requests.

    def _get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        with self._asking("read") as client:
            try:
                if end is not None:
                    return bytes(self._obs.get_range(client, name, start=start, end=end))
                return bytes(self._obs.get(client, name).bytes())
            except FileNotFoundError:
                return None
        raise AssertionError  # `_asking` has raised

    def _head(self, name: str) -> bytes | None:
        size = self._size(name)
        if not size:
            return None
        head = self._get(name, 0, min(size, _SCAN_HEAD))
        if head is None or len(head) < HEAD_SIZE:
            return head
        try:
            needed = head_length(head)
        except CorruptEntry:
            return head
        return head if needed <= len(head) else self._get(name, 0, min(size, needed))

    def _size(self, name: str) -> int | None:
        with self._asking("look") as client:
            try:
                return int(self._obs.head(client, name)["size"])
            except FileNotFoundError:
                return None
        raise AssertionError

    def _put(self, name: str, content: bytes) -> None:
        with self._asking("write") as client:
            self._obs.put(client, name, bytes(content), chunk_size=_PART, max_concurrency=_AT_ONCE)

    def _create(self, name: str, content: bytes) -> bool:
        with self._asking("write") as client:
            try:
                self._obs.put(client, name, bytes(content), mode="create")
            except self._obs.exceptions.AlreadyExistsError:
                return False
        return True

    def _remove(self, name: str) -> bool:
        with self._asking("delete") as client:
            try:
                self._obs.delete(client, name)
            except FileNotFoundError:
                return False
        return True

    @contextmanager
    def _asking(self, doing: str) -> Iterator[Any]:
        """The client; its errors become `StoreError`."""
        try:
            yield self._open()
        except StoreError:
            raise
        except (OSError, ValueError, self._obs.exceptions.BaseError) as error:
            said = str(error).partition("\n")[0]  # what follows is for obstore's authors
            message = f"the object store could not {doing}: {said}"
            kind: Callable[[str], StoreError] = StoreUnavailable
            if isinstance(error, PermissionError) or type(error).__name__ in _DENIED:
                kind = StoreReadOnly
            elif "No space left" in said:
                kind = StoreFull
            raise kind(message) from error

    def _open(self) -> Any:
        global _first_user
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if _first_user not in (0, os.getpid()):
            raise StoreUnavailable(
                "object stores can't be used by a process that was forked from one that used them",
                hint="fork before the first use, or start processes with spawn",
            )
        _first_user = os.getpid()
        if self._client is None:
            with self._connecting:
                if self._client is None:
                    self._client = self._connect()
        return self._client

    def _connect(self) -> Any:
        from obstore.store import from_url

        scheme = self.url.partition(":")[0]
        if scheme == "file":
            return from_url(self.url, mkdir=True)
        if scheme == "memory":
            return from_url(self.url)
        limit = timedelta(seconds=self._timeout)
        return from_url(
            self.url,
            client_options={
                "timeout": limit,
                "connect_timeout": min(limit, timedelta(seconds=3)),
                # Of its own variables, obstore forgets this one where options are given.
                "allow_http": os.environ.get(_ALLOW_HTTP.get(scheme, "")) == "true",
            },
            # By default ten times, for three minutes: too long for somebody who waits.
            retry_config={"max_retries": 1, "retry_timeout": limit},
        )


class _Requests:
    """The requests of an object store, for `Chunks`."""

    def __init__(self, store: ObjectStore) -> None:
        self.get = store._get
        self.size = store._size
        self.create = store._create
        self.put = store._put
        self.remove = store._remove


def _entry(digest: bytes) -> str:
    return f"entries/{digest.hex()}"


def _blob(record: FileRecord) -> str:
    return f"blobs/{record.blake3.hex()}"


def _tag(tag: str) -> str:
    return f"epochs/{blake3(tag.encode()).hexdigest()}"
