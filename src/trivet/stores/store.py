"""What a store is.

A store moves sealed bytes (`trivet.entries.sealed`) under 32-byte digests and judges nothing: it
neither verifies nor expires nor interprets them. The engine does. Every method may be called from
any thread; errors are `StoreError` (`StoreFull`, `StoreReadOnly`, `StoreUnavailable`).

`trivet.testing.StoreContract` is the test suite that a new store must pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol


class StoredHead(NamedTuple):
    """One entry met by a scan: its digest and at least the head of its sealed bytes."""

    digest: bytes
    head: bytes


class Store(Protocol):
    """Keeps sealed entries."""

    def read(self, digest: bytes) -> bytes | memoryview | None:
        """The sealed entry, whole, or None. A view stays valid while it is referenced."""

    def write(self, digest: bytes, sealed: bytes) -> None:
        """Keep an entry, replacing one of the same digest; readers see the old or the new one."""

    def delete(self, digest: bytes) -> bool:
        """Forget an entry; True if there was one."""

    def scan(self) -> Iterator[StoredHead]:
        """All entries, in no order; one that changes meanwhile may be met or not."""

    def close(self) -> None:
        """Release what is held. Calling it twice is fine; other calls then raise."""


class FileStore(Store, Protocol):
    """A store of one machine that also keeps artifacts, invalidation epochs and access counts.

    An artifact is an entry whose payload is a `Manifest` and whose files lie in a folder of their
    own, which never changes after it was published. `trivet.testing.FileStoreContract` is its test
    suite.
    """

    root: Path

    def staging(self) -> Path:
        """A new, private, empty folder on the same file system, for `publish`."""

    def publish(self, digest: bytes, sealed: bytes, staging: Path) -> Path:
        """Make the files in ``staging`` the artifact ``digest``; returns the final folder.

        ``sealed`` is the sealed manifest of exactly these files. They are synced and moved with one
        rename; a reader sees the old artifact, or the new one, or none. A previous artifact of
        the digest is unlinked, and stays usable for those who have it open.
        """

    def artifact(self, digest: bytes) -> tuple[bytes, Path] | None:
        """The sealed manifest and the folder of the files, or None."""

    def touch(self, digest: bytes) -> None:
        """Count one use. Cheap: counts are kept in memory and written back in batches."""

    def epochs(self, tags: Iterable[str]) -> dict[str, int]:
        """The current epoch of each tag; 0 for a tag that was never invalidated."""

    def raise_epochs(self, tags: Iterable[str]) -> Mapping[str, int]:
        """Invalidate: increase the epoch of each tag; returns the new epochs."""

    def generation(self) -> int:
        """A number that any process on this machine changes by `raise_epochs`, `delete` or `clear`.

        Costs well under a microsecond, so that live copies can be checked on every hit.
        """

    def quarantine(self, digest: bytes, reason: str) -> Path | None:
        """Move an entry aside with a report; returns the folder of the report, None if absent."""

    def evict(self, digest: bytes) -> bool:
        """`delete` without a change of generation: the entry was right, not worth its room."""
