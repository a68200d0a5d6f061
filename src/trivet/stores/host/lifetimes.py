"""Entries without a lifetime: found, and given one, some at a time and beside other writers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from trivet.entries import Descriptor, peek, seal, unseal
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.keys import read_fields
from trivet.stores.host.catalog import Catalog
from trivet.stores.host.contents import head_of
from trivet.stores.host.disk import discard, make_folder, storage, write_file
from trivet.stores.host.folder import Folder
from trivet.stores.host.layout import path_of
from trivet.stores.host.records import Pointer, Uses, is_inline, record_size, where_is

BATCH = 128
"""Entries looked at in one transaction: others write between two of them."""


class Limited(msgspec.Struct, kw_only=True):
    """What a pass over entries found and did.

    Attributes:
        looked: entries that were looked at.
        without_lifetime, size: those of them that had no lifetime, and their bytes.
        given: of these, those that have one now.
        dropped: of these, those that were older than that.
    """

    looked: int = 0
    without_lifetime: int = 0
    size: int = 0
    given: int = 0
    dropped: int = 0


Read = Callable[[bytes, bytes], bytes | memoryview | None]


class Limiter:
    """Gives the values of one space a lifetime, counted from when they were made.

    Args:
        read: sealed bytes by digest and record, where they lie in a file.
        space: the first part of the space of their keys, such as ``"value"``.
        lifetime: seconds; None to look only.
        now: seconds since the epoch.
    """

    def __init__(
        self, folder: Folder, read: Read, space: str, lifetime: float | None, now: float
    ) -> None:
        self._folder, self._read = folder, read
        self._space, self._lifetime, self._now = space, lifetime, now
        self._after: bytes | None = None
        self.done = Limited()

    def step(self) -> bool:
        """Look at the next `BATCH` entries; False when there were none."""
        folder, done = self._folder, self.done
        with folder.env.read() as txn:
            found = Catalog(folder.env, txn).records(self._after, BATCH)
        if not found:
            return False
        done.looked += len(found)
        self._after = found[-1][0]
        values = []
        for digest, record in found:
            facts = self._facts(digest, record)
            if facts is not None:
                done.without_lifetime += 1
                done.size += record_size(record)
                values.append((digest, record, facts))
        if self._lifetime is not None and values:
            self._change(values, self._lifetime)
        return True

    def _facts(self, digest: bytes, record: bytes) -> Descriptor | None:
        """Of a value that has no lifetime; None for other entries."""
        where = where_is(record)
        if where is not None and where.is_artifact:
            return None
        head = head_of(self._folder.layout, digest, record)
        with suppress(CorruptEntry, IncompatibleEntry):
            key, facts = peek(head or b"")
            if facts.expires is None and read_fields(key)[0].partition("/")[0] == self._space:
                return facts
        return None

    def _change(self, values: list[tuple[bytes, bytes, Descriptor]], lifetime: float) -> None:
        files: list[tuple[bytes, bytes]] = []  # digest and record of those that are no longer used
        changed = []
        for digest, record, facts in values:
            expires = facts.created + lifetime
            new = self._renewed(digest, record, facts, expires) if expires > self._now else None
            if new is not None or expires <= self._now:
                changed.append((digest, record, new))
        with self._folder.env.write() as txn:
            catalog = Catalog(self._folder.env, txn)
            for digest, record, new in changed:
                if catalog.record(digest) != record:  # written anew since it was looked at
                    files += [] if new is None else [(digest, new)]
                    continue
                files.append((digest, record))
                if new is None:
                    catalog.remove(digest)
                    self.done.dropped += 1
                    continue
                uses = catalog.uses(digest) or Uses(0, self._now, record_size(new), 0.0, "")
                catalog.insert(digest, new, uses._replace(frequency=0))
                self.done.given += 1
        for digest, record in files:
            where = where_is(record)
            if where is not None:
                with suppress(OSError):  # left to the next collection
                    discard(path_of(self._folder.layout, digest, where), self._folder.layout.trash)

    def _renewed(
        self, digest: bytes, record: bytes, facts: Descriptor, expires: float
    ) -> bytes | None:
        """The record of the entry with a lifetime; None for one that is damaged or gone."""
        sealed = record if where_is(record) is None else self._read(digest, record)
        if sealed is None:
            return None
        try:
            entry = unseal(sealed)
        except (CorruptEntry, IncompatibleEntry):
            return None  # whoever reads it quarantines it
        facts = msgspec.structs.replace(entry.descriptor, expires=expires)
        new = seal(bytes(entry.key), facts, entry.payload)
        if is_inline(new):
            return new
        where = Pointer(self._folder.nonce(), len(new), b"", False)
        path = self._folder.layout.object_path(digest, where.nonce)
        with storage("write a value"):
            make_folder(path.parent)
            write_file(path, new, self._folder.temporary())
        return where.encode()
