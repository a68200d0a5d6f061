"""What was committed on this host, given to the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from trivet.cache.outcomes import Miss
from trivet.cache.shared import SMALL_VALUE
from trivet.cache.shared_access import SharedAccess
from trivet.cache.shared_files import SharedFiles
from trivet.entries import Descriptor, FileRecord, Manifest, seal
from trivet.errors import StoreError
from trivet.events import EventKind, MissReason, Tier
from trivet.keys import Key
from trivet.stores.shared import HostLease, ObjectStore


class SharedWriter:
    """Writes to the shared tier; a failure is an event.

    Who writes an entry may have lost the lease on it long ago. Nothing depends on it: blobs are
    named by their content, an entry that is valid is only replaced by one that has grown or was
    made anew, and what is written is valid by itself, since it carries the epochs of the time when
    its making began.
    """

    def __init__(self, access: SharedAccess) -> None:
        self._access = access
        self._tiers = access.tiers
        self._parts = access.parts

    def value(
        self,
        key: Key,
        descriptor: Descriptor,
        payload: bytes,
        lease: HostLease | None,
        replacing: Descriptor | None = None,
    ) -> None:
        """Write a value, or the record of a failure to make one.

        It takes the place of a valid entry that is no newer than ``replacing``.
        """
        values, pieces, objects = self._parts.values, self._parts.pieces, self._parts.objects
        sealed = self._for_all(key, descriptor, payload)
        if sealed is None:
            return
        if pieces is not None and (objects is None or len(sealed) <= SMALL_VALUE):
            token = 0 if lease is None else lease.token
            left = None
            if descriptor.expires is not None:
                left = descriptor.expires - self._tiers.clock.time()
            self._write(
                key, descriptor, values, lambda: pieces.offer(key.digest, sealed, token, left)
            )
        elif objects is not None and self._write(
            key,
            descriptor,
            objects,
            lambda: self._offer(objects, key, descriptor.codec, sealed, lease, replacing),
        ):
            self._access.announce(key.digest)

    def files(
        self,
        key: Key,
        descriptor: Descriptor,
        payload: bytes,
        folder: Path | None,
        lease: HostLease | None,
        *,
        replaces: SharedFiles | None = None,
    ) -> bool:
        """Write an artifact whose files are in ``folder``; without one, the record of a failure.

        False where somebody else has written one: a valid one, or after ``replaces`` was looked up.
        """
        objects = self._parts.objects
        sealed = None if objects is None else self._for_all(key, descriptor, payload)
        if objects is None or sealed is None:
            return True
        records: tuple[FileRecord, ...] = ()
        if folder is not None:
            records = Manifest.decode(payload).files

        def send() -> bool:
            for record in records:
                objects.send(Path(str(folder)) / record.name, record)
            if replaces is not None and replaces.whole:
                return objects.replace(key.digest, sealed, replaces.version)
            return self._offer(objects, key, descriptor.codec, sealed, lease)

        return self._write(key, descriptor, objects, send)

    def forget(self, key: Key) -> bool:
        """Remove an entry, as far as that can be done now; True if there was one."""
        found = False
        for store in (self._parts.objects, self._parts.values):
            if store is not None:
                remove = store.delete
                try:
                    deleted = self._parts.tell(store, lambda: remove(key.digest))  # noqa: B023
                except StoreError as error:
                    self._access.failed(error, "delete")
                else:
                    found = found or bool(deleted)
        self._access.announce(key.digest)
        return found

    def _for_all(self, key: Key, descriptor: Descriptor, payload: bytes) -> bytes | None:
        """The sealed form for the shared tier; None when no host could use it."""
        stamps = descriptor.shared
        if descriptor.tags:
            current = self._access.epochs_now(descriptor.tags)
            if current is None or any(stamps.get(tag) != current[tag] for tag in descriptor.tags):
                return None
        shared = msgspec.structs.replace(descriptor, tags=stamps, shared={})
        return seal(key.canonical, shared, payload)

    def _offer(
        self,
        objects: ObjectStore,
        key: Key,
        codec: str,
        sealed: bytes,
        lease: HostLease | None,
        replacing: Descriptor | None = None,
    ) -> bool:
        """Write the entry, unless somebody wrote one that is valid."""
        if objects.offer(key.digest, sealed):
            return True
        raw = objects.read(key.digest)
        found = Miss(MissReason.ABSENT) if raw is None else self._access.judge(key, codec, raw)
        if not isinstance(found, Miss) and (
            replacing is None or found.descriptor.created > replacing.created
        ):
            return False
        if lease is not None and not lease.still_held():
            return False
        objects.write(key.digest, sealed)
        return True

    def _write(
        self, key: Key, descriptor: Descriptor, store: object, write: Callable[[], bool]
    ) -> bool:
        """False where ``write`` says so; what fails is an event."""
        started = self._tiers.clock.monotonic()
        try:
            written = self._parts.tell(store, write)
        except (StoreError, OSError) as error:
            self._access.failed(error, "write")
            return True
        if written:
            self._tiers.emit(
                EventKind.SHARED,
                Tier.SHARED,
                key=key,
                seconds=self._tiers.clock.monotonic() - started,
                size=descriptor.size,
            )
        return written is not False
