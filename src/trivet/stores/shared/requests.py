"""The requests of an object store, with errors that are `StoreError`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from trivet.errors import (
    MissingExtra,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

PART = 5 << 20  # bytes a request; the least that S3 takes in an upload by parts
_AT_ONCE = 2
_ALLOW_HTTP = {"s3": "AWS_ALLOW_HTTP", "s3a": "AWS_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_DENIED = ("PermissionDeniedError", "UnauthenticatedError")

# The runtime behind obstore has threads. They don't exist in a forked child, where every call would
# wait for ever. So the process that used it first is the only one of its family that may.
_first_user = 0


class Version(NamedTuple):
    """What tells one content of an object from the next, in the store's own words."""

    e_tag: str | None
    version: str | None


class Listed(NamedTuple):
    """An object: its bytes, and when it was written, in seconds of the store's clock."""

    name: str
    size: int
    modified: float


class Requests:
    """One object store, asked for whole objects and parts of them. Made by `ObjectStore`."""

    def __init__(self, url: str, timeout: float) -> None:
        try:
            import obstore
        except ImportError as error:
            raise MissingExtra(
                "object stores need the package obstore", hint="pip install 'trivet[shared]'"
            ) from error
        self._url = url
        self._obs = obstore
        self._timeout = timeout
        self._client: Any = None
        self._connecting = threading.Lock()
        self._closed = False

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        """The object, or a part of it; None where there is none."""
        with self.asking("read") as client:
            try:
                if end is not None:
                    return bytes(self._obs.get_range(client, name, start=start, end=end))
                return bytes(self._obs.get(client, name).bytes())
            except FileNotFoundError:
                return None
        raise AssertionError  # `asking` has raised

    def get_version(self, name: str) -> tuple[bytes, Version] | None:
        """The object, and what `replace` takes."""
        with self.asking("read") as client:
            try:
                found = self._obs.get(client, name)
                facts = found.meta
                return bytes(found.bytes()), Version(facts["e_tag"], facts["version"])
            except FileNotFoundError:
                return None
        raise AssertionError

    def look(self, name: str) -> Listed | None:
        """Its size and time."""
        with self.asking("look") as client:
            try:
                return _listed(self._obs.head(client, name))
            except FileNotFoundError:
                return None
        raise AssertionError

    def size(self, name: str) -> int | None:
        """Its bytes."""
        found = self.look(name)
        return None if found is None else found.size

    def list(self, below: str) -> Iterator[Listed]:
        """All objects of a folder such as ``"chunks/"``."""
        with self.asking("list") as client:
            found = self._obs.list(client, below)
        while True:
            with self.asking("list"):
                page = next(found, None)
            if page is None:
                return
            yield from map(_listed, page)

    def put(self, name: str, content: bytes) -> None:
        """Write it."""
        with self.asking("write") as client:
            self._obs.put(client, name, bytes(content), chunk_size=PART, max_concurrency=_AT_ONCE)

    def put_file(self, name: str, path: Path) -> None:
        """Write the bytes of a file."""
        with self.asking("send a file") as client:
            self._obs.put(client, name, path, chunk_size=PART, max_concurrency=_AT_ONCE)

    def create(self, name: str, content: bytes) -> bool:
        """Write it unless it exists; False if it does."""
        with self.asking("write") as client:
            try:
                self._obs.put(client, name, bytes(content), mode="create")
            except self._obs.exceptions.AlreadyExistsError:
                return False
        return True

    def replace(self, name: str, content: bytes, version: Version) -> bool:
        """Write it where it is still of this version; False if it isn't.

        A folder knows no such condition: there the version is compared before it is written.
        """
        with self.asking("write") as client:
            given: Any = {name: each for name, each in version._asdict().items() if each}
            try:
                self._obs.put(client, name, bytes(content), mode=given)
            except (self._obs.exceptions.PreconditionError, FileNotFoundError):
                return False
            except NotImplementedError:
                found = self.get_version(name)
                if found is None or found[1] != version:
                    return False
                self.put(name, content)
        return True

    def remove(self, name: str) -> bool:
        """Remove it."""
        with self.asking("delete") as client:
            try:
                self._obs.delete(client, name)
            except FileNotFoundError:
                return False
        return True

    def close(self) -> None:
        """From now on every request raises `StoreUnavailable`."""
        self._closed, self._client = True, None

    @contextmanager
    def asking(self, doing: str) -> Iterator[Any]:
        """The client of obstore; its errors become `StoreError`."""
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

        scheme = self._url.partition(":")[0]
        if scheme == "file":
            return from_url(self._url, mkdir=True)
        if scheme == "memory":
            return from_url(self._url)
        limit = timedelta(seconds=self._timeout)
        return from_url(
            self._url,
            client_options={
                "timeout": limit,
                "connect_timeout": min(limit, timedelta(seconds=3)),
                # Of its own variables, obstore forgets this one where options are given.
                "allow_http": os.environ.get(_ALLOW_HTTP.get(scheme, "")) == "true",
            },
            # By default ten times, for three minutes: too long for somebody who waits.
            retry_config={"max_retries": 1, "retry_timeout": limit},
        )


def _listed(facts: Any) -> Listed:
    return Listed(facts["path"], int(facts["size"]), facts["last_modified"].timestamp())
