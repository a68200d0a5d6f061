"""What all hosts have under a key at one moment, for who adds to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from trivet.cache.shared_access import SharedAccess
from trivet.entries import FileRecord
from trivet.errors import CorruptEntry, StoreError
from trivet.keys import Key
from trivet.stores.shared import ObjectStore
from trivet.stores.shared.requests import Version


class SharedFiles:
    """An artifact in the shared tier, whose files are still there; or that there is none.

    Attributes:
        version: of the entry, also of one that may not be used here; None where there is none.
        whole: whether all that `copy_to` was asked for could be had. What can't be had must not be
            replaced by what lacks it.
    """

    def __init__(
        self,
        access: SharedAccess,
        objects: ObjectStore,
        key: Key,
        version: Version | None,
        files: tuple[FileRecord, ...],
    ) -> None:
        self._access = access
        self._objects = objects
        self._key = key
        self._files = files
        self.version = version
        self.whole = True

    def copy_to(self, target: Path, only: Callable[[str], bool]) -> None:
        """Fetch the files whose names ``only`` accepts into the folder ``target``, each verified.

        What can't be had is an event, and an error only where the cache is strict. Raises `OSError`
        where ``target`` can't be written.
        """
        for record in self._files:
            if only(record.name) and not self._fetch(record, target / record.name):
                self.whole = False
                return

    def _fetch(self, record: FileRecord, path: Path) -> bool:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        access, objects, key = self._access, self._objects, self._key
        try:
            access.parts.ask(objects, partial(objects.fetch, record, path))
        except (CorruptEntry, StoreError) as error:
            path.unlink(missing_ok=True)
            if isinstance(error, StoreError):
                access.failed(error, "fetch")
            else:
                heal = partial(remove_damaged, objects, key.digest, record)
                access.remove(key, objects, error.message, heal)
            return False
        return True


def remove_damaged(objects: ObjectStore, digest: bytes, record: FileRecord) -> None:
    """Remove an entry one of whose files is damaged, so that the next one who has it sends it."""
    # The manifest first: without the blob it is of no use.
    objects.delete(digest)
    objects.discard(record)
