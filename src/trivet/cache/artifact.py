"""Artifacts: entries whose value is a set of files, used in place."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.cache.journal import LoadJournal
from trivet.cache.lease import BaseLease, CommitTerms, Grant, Landed
from trivet.cache.outcomes import Failed
from trivet.entries import Descriptor, Manifest, seal
from trivet.entries.manifest import ARTIFACT_CODEC
from trivet.errors import CorruptEntry, StoreError
from trivet.keys import Key
from trivet.stores import FileStore
from trivet.stores.files import check_file, copy_file, record_files

if TYPE_CHECKING:
    from trivet.cache.layers import Layers
    from trivet.cache.shared_files import SharedFiles


class Artifact:
    """Files of an entry, in an immutable folder.

    The folder's path is only to be had from `verify`, which reads every byte: nothing is loaded
    that was not verified.
    """

    def __init__(
        self,
        key: Key,
        descriptor: Descriptor,
        manifest: Manifest,
        folder: Path,
        journal: LoadJournal | None,
    ) -> None:
        self.key = key
        self.descriptor = descriptor
        self.manifest = manifest
        self._folder = folder
        self._journal = journal
        self._verified = False

    def verify(self) -> Path:
        """The folder, after comparing every file with its BLAKE3; once per object.

        Raises `CorruptEntry` when a file is missing, of another size, or of other content, and
        OSError when this process can't read it at the moment.
        """
        if not self._verified:
            for record in self.manifest.files:
                check_file(self._folder / record.name, record)
            self._verified = True
        return self._folder

    def copy_to(self, target: Path, only: Callable[[str], bool] | None = None) -> None:
        """Copy the files, or those whose names ``only`` accepts, below the folder ``target``.

        Each is held against its BLAKE3 where it arrived. For users that write to the files, which
        in the store must never happen. Raises as `verify`, and OSError where ``target`` can't be
        written.
        """
        for record in self.manifest.files:
            if only is not None and not only(record.name):
                continue
            copy_file(self._folder / record.name, record, target / record.name)

    def is_damaged(self) -> bool:
        """Whether a file is not what the manifest says, as it lies there now."""
        try:
            for record in self.manifest.files:
                check_file(self._folder / record.name, record)
        except CorruptEntry:
            return True
        except OSError:
            return False
        return False

    def is_stored(self, store: FileStore | Layers) -> bool:
        """Whether these very files are what ``store`` has under the key now."""
        found = store.artifact(self.key.digest)
        return found is not None and found[1] == self._folder

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Around the code that loads the files.

        Leaves a mark while it runs. A process that dies inside leaves the mark for ever, and the
        next one that looks the artifact up quarantines it instead of dying in the same way.
        """
        if self._journal is None:
            yield
            return
        with self._journal.mark(self.key.digest):
            yield

    def __repr__(self) -> str:
        return f"<Artifact {len(self.manifest.files)} files, {self.manifest.size} bytes>"


class ArtifactLease(BaseLease):
    """The right to make the files of one artifact.

    Attributes:
        overtaken: after `commit`, whether another host has shared something else meanwhile.
    """

    _in_files = True

    def __init__(self, grant: Grant, journal: LoadJournal | None) -> None:
        super().__init__(grant)
        self.overtaken = False
        self._journal = journal
        self._staging: Path | None = None
        self._private = False

    @property
    def staging(self) -> Path:
        """An empty, private folder: write the files here, then `commit`."""
        if self._staging is None:
            self._staging, self._private = new_staging(self._tiers.store)
        return self._staging

    def commit(
        self,
        *,
        key: Key | None = None,
        cost: float | None = None,
        lifetime: float | None = None,
        tags: Iterable[str] = (),
        group: str = "",
        detail: Mapping[str, object] | None = None,
        replaces: SharedFiles | None = None,
    ) -> Artifact:
        """Publish the files in `staging` and hand the artifact to all waiters.

        The arguments are those of `Lease.commit`; ``key`` publishes under a key other than the
        lease's own, for a value that turned out to hold for more than was asked. For what grows,
        ``replaces`` is what `Cache.files_of_all` found, and what is in the files already: the
        shared tier takes them in its place, unless it has yet another one by now; see `overtaken`.
        When the files can't be kept, the artifact lives as long as the object returned.
        """
        terms = CommitTerms(cost, lifetime, tags, group, detail)
        return self._finish(key or self.key, terms, replaces=replaces)

    def drop(self, why: str) -> Artifact:
        """Hand the files to all waiters without keeping them."""
        return self._finish(self.key, CommitTerms(), why)

    def refuse(self, error: BaseException, *, lifetime: float) -> Failed:
        """As for every lease; the files written so far are removed."""
        self._clear_staging()
        return super().refuse(error, lifetime=lifetime)

    def abandon(self, error: BaseException | None = None) -> None:
        """Give up, as for every lease; the files written so far are removed."""
        self._clear_staging()
        super().abandon(error)

    def _clear_staging(self) -> None:
        if self._grant is not None and self._staging is not None and self._is_mine():
            remove_folder(self._staging)

    def _finish(
        self,
        key: Key,
        terms: CommitTerms,
        why_not: str | None = None,
        *,
        replaces: SharedFiles | None = None,
    ) -> Artifact:
        grant = self._held()
        try:
            manifest = Manifest(tuple(record_files(self.staging)))
            payload = manifest.encode()
            tags = self._merge_tags(grant, terms.tags)
            size = manifest.size + len(payload)
            descriptor = self._describe(terms, ARTIFACT_CODEC, size, tags)
            sealed = seal(key.canonical, descriptor, payload)
        except Exception as error:
            self.abandon(error)
            raise
        folder = None
        outdated = self._outdated(grant, tags) if why_not is None else None
        if why_not is None:
            why_not = outdated
        shareable = why_not is None  # also what can't be kept here
        if why_not is None:
            folder, why_not = self._publish(key, sealed)
        artifact = Artifact(key, descriptor, manifest, folder or self.staging, self._journal)
        if folder is None:
            remove_with(artifact, self.staging)
        self._settle()
        with self._ending(grant):
            try:
                self._report(key, descriptor, why_not)
            finally:
                self._land(grant, Landed(descriptor, artifact), outdated=outdated is not None)
            if shareable and self._tiers.shared is not None:
                self.overtaken = not self._tiers.shared.writer.files(
                    key,
                    descriptor,
                    payload,
                    folder or self.staging,
                    grant.host_lease,
                    replaces=replaces,
                )
        return artifact

    def _publish(self, key: Key, sealed: bytes) -> tuple[Path | None, str | None]:
        if self._private:
            return None, "there is no store that can be written"
        return self._tiers.publish(key, sealed, self.staging)


def new_staging(store: FileStore | None) -> tuple[Path, bool]:
    """An empty folder for an artifact's files, and whether ``store`` could not make it."""
    try:
        if store is not None:
            return store.staging(), False
    except (StoreError, OSError):
        pass  # the files are needed whether or not they can be kept
    import tempfile

    return Path(tempfile.mkdtemp(prefix="trivet-")), True


def remove_with(owner: object, folder: Path) -> None:
    """Remove the folder when ``owner`` is collected, at the latest when this process ends."""
    weakref.finalize(owner, _remove_mine, folder, os.getpid())


def _remove_mine(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child has what is its parent's
        remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder of files that nobody needs any more."""
    import shutil  # brings four compression libraries along

    shutil.rmtree(folder, ignore_errors=True)
