"""The two forms of a value, behind one face: bytes through a codec, and files in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from trivet.cache.artifact import Artifact, ArtifactLease
from trivet.cache.journal import LoadJournal
from trivet.cache.lease import BaseLease, Grant, Landed, Lease
from trivet.cache.outcomes import Failed, Hit, Miss
from trivet.cache.tiers import Tiers
from trivet.codecs import Codec
from trivet.entries import Descriptor, Manifest
from trivet.entries.manifest import ARTIFACT_CODEC
from trivet.errors import CorruptEntry
from trivet.events import MissReason, Tier
from trivet.keys import Key

T = TypeVar("T")
L = TypeVar("L", bound=BaseLease, covariant=True)


class Form(Protocol[T, L]):
    """How values of one form are looked up, received from a leader, and leased."""

    in_files: bool

    def look(self, key: Key) -> Hit[T] | Failed | Miss:
        """The tiers of this host, in order."""

    def look_shared(self, key: Key, missed: Miss) -> Hit[T] | Failed | Miss:
        """The shared tier, if there is one, after ``missed`` in this host's."""

    def receive(self, landed: Landed) -> Hit[T] | Failed | None:
        """This caller's own outcome of a landed flight; None when it is of another form."""

    def lease(self, grant: Grant) -> L:
        """A lease that produces this form."""


class ValueForm(Generic[T]):
    """Values that a codec turns into bytes.

    Args:
        replacing: an entry that is to be made anew; only what was created after it is found.
    """

    in_files = False

    def __init__(self, tiers: Tiers, codec: Codec[T], replacing: Descriptor | None = None) -> None:
        self._tiers = tiers
        self._codec = codec
        self._replacing = replacing

    def look(self, key: Key) -> Hit[T] | Failed | Miss:
        tiers, old = self._tiers, self._replacing
        if tiers.shared is not None:
            tiers.shared.refresh()
        entry = None if old is None else tiers.memory.get(key.digest)
        if old is None or (entry is not None and entry.descriptor.created > old.created):
            live = tiers.look_memory(key, self._codec)
            if live is not None:
                return live
        found = tiers.look_host(key, self._codec)
        if old is not None and type(found) is Hit and found.descriptor.created <= old.created:
            return Miss(MissReason.EXPIRED)
        return found

    def look_shared(self, key: Key, missed: Miss) -> Hit[T] | Failed | Miss:
        if self._tiers.shared is None:
            return missed
        reader = self._tiers.shared.reader
        return _first(missed, reader.look_value(key, self._codec, self._replacing))

    def receive(self, landed: Landed) -> Hit[T] | Failed | None:
        descriptor = landed.descriptor
        if descriptor.failure is not None:
            return Failed(descriptor, Tier.ENGINE)
        if descriptor.codec != self._codec.id:
            return None
        live = landed.live
        value: T = live if self._codec.shareable else self._codec.decode(memoryview(live))  # type: ignore[assignment,arg-type]
        return Hit(value, descriptor, Tier.ENGINE)

    def lease(self, grant: Grant) -> Lease[T]:
        return Lease(grant, self._codec, self._replacing)


class FileForm:
    """Artifacts.

    Args:
        also: other keys whose artifact answers as well, tried after the one asked for.
    """

    in_files = True

    def __init__(
        self, tiers: Tiers, journal: LoadJournal | None, also: tuple[Key, ...] = ()
    ) -> None:
        self._tiers = tiers
        self._journal = journal
        self._also = also

    def look(self, key: Key) -> Hit[Artifact] | Failed | Miss:
        keys = (key, *self._also)
        found = _first_of(self._look, keys)
        if isinstance(found, Hit) or self._tiers.layers is None:
            return found
        # A recorded failure, too: what was installed since then may hold what could not be made.
        below = _first_of(self._look_layers, keys)
        if isinstance(below, Miss) and not _is_absent(found):
            return found
        return below

    def look_shared(self, key: Key, missed: Miss) -> Hit[Artifact] | Failed | Miss:
        shared = self._tiers.shared
        if shared is None:
            return missed
        return _first(missed, shared.reader.look_files((key, *self._also), self._journal))

    def _look(self, key: Key) -> Hit[Artifact] | Failed | Miss:
        tiers, store = self._tiers, self._tiers.store
        if store is None:
            return Miss(MissReason.ABSENT)
        folder: Path | None = None

        def read(digest: bytes) -> bytes | memoryview | None:
            nonlocal folder
            found = store.artifact(digest)
            if found is None:
                return store.read(digest)  # a recorded failure has no files
            sealed, folder = found
            return sealed

        found = tiers.open_host(key, ARTIFACT_CODEC, read)
        if isinstance(found, Miss):
            return found
        if found.descriptor.failure is not None:
            return Failed(found.descriptor, Tier.HOST)
        if folder is None:
            return Miss(MissReason.ABSENT)
        if self._journal is not None and self._journal.take_crash(key.digest):
            tiers.refuse_content(key, found.payload)
            return tiers.quarantine(key, MissReason.CRASHED, "a process died while loading it")
        try:
            manifest = Manifest.decode(found.payload)
        except CorruptEntry as error:
            return tiers.quarantine(key, MissReason.CORRUPT, error.message)
        artifact = Artifact(key, found.descriptor, manifest, folder, self._journal)
        return Hit(artifact, found.descriptor, Tier.HOST)

    def _look_layers(self, key: Key) -> Hit[Artifact] | Miss:
        tiers, layers = self._tiers, self._tiers.layers
        assert layers is not None
        found = layers.look(tiers, key, ARTIFACT_CODEC)
        if isinstance(found, Miss):
            return found
        if self._journal is not None and self._journal.take_crash(key.digest):
            detail = "a process died while loading it"
            return layers.damaged(tiers, key, MissReason.CRASHED, detail)
        try:
            manifest = Manifest.decode(found.payload)
        except CorruptEntry as error:
            return layers.damaged(tiers, key, MissReason.CORRUPT, error.message)
        artifact = Artifact(key, found.descriptor, manifest, found.files, self._journal)
        return Hit(artifact, found.descriptor, Tier.LAYER)

    def receive(self, landed: Landed) -> Hit[Artifact] | Failed | None:
        if landed.descriptor.failure is not None:
            return Failed(landed.descriptor, Tier.ENGINE)
        if not isinstance(landed.live, Artifact):
            return None
        return Hit(landed.live, landed.descriptor, Tier.ENGINE)

    def lease(self, grant: Grant) -> ArtifactLease:
        return ArtifactLease(grant, self._journal)


def _first_of(
    look: Callable[[Key], Hit[T] | Failed | Miss], keys: tuple[Key, ...]
) -> Hit[T] | Failed | Miss:
    """What is under the first of ``keys`` that has something; or the first miss that says more
    than that nothing is there."""
    missed = Miss(MissReason.ABSENT)
    for each in keys:
        found = look(each)
        if not isinstance(found, Miss):
            return found
        if _is_absent(missed):
            missed = found
    return missed


def _is_absent(found: object) -> bool:
    return isinstance(found, Miss) and found.reason is MissReason.ABSENT


def _first(missed: Miss, found: Hit[T] | Failed | Miss) -> Hit[T] | Failed | Miss:
    """``found``; of two misses, the first that says more than that nothing is there."""
    if isinstance(found, Miss) and missed.reason is not MissReason.ABSENT:
        return missed
    return found
