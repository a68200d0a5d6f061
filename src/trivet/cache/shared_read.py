"""Look-up in the shared tier: read, verified, and kept in this host's tiers from then on."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from trivet.cache.artifact import Artifact, new_staging, remove_folder, remove_with
from trivet.cache.journal import LoadJournal
from trivet.cache.outcomes import Failed, Hit, Miss
from trivet.cache.shared_access import SharedAccess
from trivet.cache.shared_files import SharedFiles, remove_damaged
from trivet.codecs import Codec
from trivet.entries import Descriptor, FileRecord, Manifest, Sealed, seal
from trivet.entries.manifest import ARTIFACT_CODEC
from trivet.errors import CorruptEntry, StoreError
from trivet.events import MissReason, Tier
from trivet.keys import Key
from trivet.stores.shared import ObjectStore, ValkeyStore

T = TypeVar("T")


class _Found(msgspec.Struct, frozen=True):
    """An entry that may be used here, with the descriptor that it has in this host's tier."""

    payload: memoryview
    descriptor: Descriptor
    generation: int
    version: int


class SharedReader:
    """Looks up in the shared tier."""

    def __init__(self, access: SharedAccess) -> None:
        self._access = access
        self._tiers = access.tiers
        self._parts = access.parts

    def look_value(
        self, key: Key, codec: Codec[T], replacing: Descriptor | None = None
    ) -> Hit[T] | Failed | Miss:
        """What is stored under ``key``, if it is newer than ``replacing``."""
        found = self._open(key, codec.id, self._parts.values, self._parts.objects)
        if isinstance(found, Miss):
            return found
        descriptor = found.descriptor
        if replacing is not None and descriptor.created <= replacing.created:
            return Miss(MissReason.EXPIRED)
        if descriptor.failure is not None:
            self._keep(key, found, None)
            return Failed(descriptor, Tier.SHARED)
        try:
            value = codec.decode(found.payload)
        except (ValueError, TypeError, CorruptEntry) as error:
            # The bytes are what somebody stored, so it is not for this host to remove them.
            return Miss(MissReason.INCOMPATIBLE, f"codec {codec.id}: {error}")
        self._keep(key, found, value if codec.shareable else bytes(found.payload))
        return Hit(value, descriptor, Tier.SHARED)

    def look_files(
        self, keys: tuple[Key, ...], journal: LoadJournal | None
    ) -> Hit[Artifact] | Failed | Miss:
        """The artifact of the first of ``keys`` that has one, fetched and published here."""
        missed = Miss(MissReason.ABSENT)
        for key in keys:
            found = self._open(key, ARTIFACT_CODEC, self._parts.objects)
            answer: Hit[Artifact] | Failed | Miss
            if isinstance(found, Miss):
                answer = found
            elif found.descriptor.failure is not None:
                self._keep(key, found, None)
                answer = Failed(found.descriptor, Tier.SHARED)
            else:
                answer = self._fetch(key, found, journal)
            if not isinstance(answer, Miss):
                return answer
            if missed.reason is MissReason.ABSENT:
                missed = answer
        return missed

    def files_of_all(self, key: Key) -> SharedFiles | None:
        """The artifact of all hosts, whatever this host has; None where nobody can be asked."""
        objects = self._parts.objects
        if objects is None:
            return None
        generation, version_here = self._tiers.generation(), self._tiers.version(key)
        try:
            found = self._parts.ask(objects, lambda: objects.read_version(key.digest))
        except StoreError as error:
            self._access.failed(error, "read")
            return None
        if found is None:
            return SharedFiles(self._access, objects, key, None, ())
        raw, version = found
        files: tuple[FileRecord, ...] = ()
        sealed = self._access.judge(key, ARTIFACT_CODEC, raw)
        if isinstance(sealed, Miss) and sealed.reason is MissReason.UNAVAILABLE:
            return None
        usable = self._for_this_host(key, sealed, generation, version_here)
        if isinstance(usable, _Found) and usable.descriptor.failure is None:
            with suppress(CorruptEntry):
                files = Manifest.decode(usable.payload).files
        return SharedFiles(self._access, objects, key, version, files)

    def _open(
        self, key: Key, codec_id: str, *stores: ObjectStore | ValkeyStore | None
    ) -> _Found | Miss:
        """The entry in the first store that has one to be used."""
        missed = Miss(MissReason.ABSENT)
        for store in stores:
            if store is None:
                continue
            # Before the read: what is invalidated meanwhile makes the entry invalid here.
            generation = self._tiers.generation()
            version = self._tiers.version(key)
            sealed = self._read(key, codec_id, store)
            found = self._for_this_host(key, sealed, generation, version)
            if not isinstance(found, Miss):
                return found
            if found.reason is not MissReason.ABSENT:
                missed = found
        return missed

    def _read(self, key: Key, codec_id: str, store: ObjectStore | ValkeyStore) -> Sealed | Miss:
        digest = key.digest
        try:
            raw = self._parts.read(store, digest)
        except StoreError as error:
            return self._access.failed(error, "read")
        except CorruptEntry as error:
            return self._access.remove(key, store, error.message, lambda: store.delete(digest))
        if raw is None:
            return Miss(MissReason.ABSENT)
        found = self._access.judge(key, codec_id, raw)
        if isinstance(found, Miss) and found.reason is MissReason.CORRUPT:
            return self._access.remove(key, store, found.detail, lambda: store.delete(digest))
        return found

    def _for_this_host(
        self, key: Key, sealed: Sealed | Miss, generation: int, version: int
    ) -> _Found | Miss:
        if isinstance(sealed, Miss):
            return sealed
        tags, here = sealed.descriptor.tags, dict[str, int]()
        if tags:
            known = self._tiers.epochs(tags, generation)
            here = {tag: known[tag] for tag in tags}
            if self._access.view.invalidated_here(tags, here):
                return Miss(MissReason.INVALIDATED, "on this host, without telling the others")
        if self._access.notes.is_refused(key.digest, sealed.payload):
            return Miss(MissReason.INCOMPATIBLE, "this host found it unusable before")
        mine = msgspec.structs.replace(sealed.descriptor, tags=here, shared=tags)
        return _Found(sealed.payload, mine, generation, version)

    def _keep(self, key: Key, found: _Found, live: object) -> None:
        sealed = b""  # which nobody asks for where there is no folder
        if self._tiers.store is not None:
            sealed = seal(key.canonical, found.descriptor, found.payload)
        self._tiers.keep(key, found.descriptor, sealed, live, found.generation, found.version)

    def _fetch(self, key: Key, found: _Found, journal: LoadJournal | None) -> Hit[Artifact] | Miss:
        staging, private = new_staging(self._tiers.store)
        try:
            fetched = self._fetch_into(staging, key, found.payload)
            folder = None
            if isinstance(fetched, Manifest) and not private:
                sealed = seal(key.canonical, found.descriptor, found.payload)
                folder, _ = self._tiers.publish(key, sealed, staging)
        except BaseException:
            remove_folder(staging)
            raise
        if isinstance(fetched, Miss):
            remove_folder(staging)
            return fetched
        artifact = Artifact(key, found.descriptor, fetched, folder or staging, journal)
        if folder is None:
            remove_with(artifact, staging)
        return Hit(artifact, found.descriptor, Tier.SHARED)

    def _fetch_into(self, staging: Path, key: Key, payload: memoryview) -> Manifest | Miss:
        """The files, each verified while it is written."""
        objects, digest = self._parts.objects, key.digest
        assert objects is not None
        try:
            manifest = Manifest.decode(payload)
        except CorruptEntry as error:
            return self._access.remove(key, objects, error.message, lambda: objects.delete(digest))
        for record in manifest.files:
            target = staging / record.name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                self._parts.ask(objects, partial(objects.fetch, record, target))
            except CorruptEntry as error:
                heal = partial(remove_damaged, objects, digest, record)
                return self._access.remove(key, objects, error.message, heal)
            except (StoreError, OSError) as error:
                return self._access.failed(error, "fetch")
        return manifest
