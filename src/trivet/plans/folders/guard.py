"""A framework's own cache, kept whole: restored verified, captured when it is complete."""

from __future__ import annotations

import contextlib
import enum
import shutil
import tempfile
import threading
from pathlib import Path

from trivet.cache import Artifact, ArtifactLease, Cache, Failed, Hit
from trivet.errors import CorruptEntry, StoreError
from trivet.keys import Key
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.snapshot import copy_settled, files_of, state_of

_PLACE = "@trivet@"  # stands in kept files for the path of the folder
_UPDATE = "folder-update/1"  # the space of the leases under which a kept folder is replaced
_FILL = "folder-fill/1"  # the space of the leases under which a folder is filled
_UPDATE_WAIT = 60.0


class Restored(enum.StrEnum):
    """How a run began."""

    HIT = "hit"  # from the store
    EMPTY = "empty"  # nothing was stored; this run fills it
    ALONE = "alone"  # somebody else is filling it, and this run did not wait for the end


class KeptFolder:
    """One framework's private folder for one run, and what is kept of it.

    A store that is full, broken or gone makes an empty folder. All methods may be called from any
    thread.

    Attributes:
        path: the folder, of this run alone.
        restored: how it began. reason: why it was not a hit, if it was not.
        files, size: how many files were restored, and their bytes.
    """

    def __init__(
        self,
        cache: Cache,
        framework: CacheFolder,
        key: Key,
        *,
        command: tuple[bytes, ...],
        wait: float,
    ) -> None:
        self.framework = framework
        self._command = command
        self.key = key
        self.reason = ""
        self.files = self.size = 0
        self._tags = (f"framework={framework.name}",)
        self._cache = cache
        self._lock = threading.Lock()
        self._outer = _private(cache)
        self.path = self._outer / framework.name
        self.path.mkdir()
        self._lease: ArtifactLease | None = None
        self.restored = self._restore(wait)
        self._kept = state_of(self.path, framework.transient)

    def variables(self) -> dict[str, str]:
        """The environment variables that lead the framework here."""
        for below in self.framework.variables.values():
            (self.path / below).mkdir(parents=True, exist_ok=True)
        return {name: str(self.path / below) for name, below in self.framework.variables.items()}

    def added(self) -> int:
        """How many files there are that were not there at the start or the last capture."""
        return len(state_of(self.path, self.framework.transient).items() - self._kept.items())

    def capture(self, key: Key) -> bool:
        """Keep the folder as it is now, under ``key``; False where there is nothing new.

        ``key`` is the folder's own with what was learnt since. Raises `TrivetError` and `OSError`
        when it can't be kept.
        """
        with self._lock:
            now = state_of(self.path, self.framework.transient)
            if not now or (now == self._kept and key == self.key):
                return False
            self._publish(key)
            self._kept, self.key = now, key
            return True

    def quarantine(self, why: str) -> None:
        """Set the kept folder aside: a program that used it does not get anywhere."""
        self._cache.quarantine(self.key, why)

    def release(self) -> None:
        """Keep nobody waiting any longer; what comes yet can be captured all the same."""
        with self._lock:
            self._give_up()

    def close(self) -> None:
        """Let others fill it if this run did not, and remove the private folder."""
        with self._lock:
            self._give_up()
        shutil.rmtree(self._outer, ignore_errors=True)

    # -- inside --------------------------------------------------------------------------------

    def _restore(self, wait: float) -> Restored:
        try:
            # Runs of one command compile the same, and wait for one another; runs of different ones
            # would wait for what never comes.
            fill = Key(_FILL, {"folder": self.key.digest, "command": self._command})
            found = self._cache.acquire_files(fill, also=(self.key,), tags=self._tags, wait=wait)
        except Exception as error:  # noqa: BLE001  a leader's error, whatever it was
            self.reason = f"the run that filled it failed: {error}"
            return Restored.ALONE
        if isinstance(found, Failed):  # nobody records failures here
            self.reason = found.error_text
            return Restored.ALONE
        if isinstance(found, ArtifactLease):
            self.reason = str(found.reason)
            self._lease = found
            return Restored.EMPTY
        return self._unpack(found)

    def _unpack(self, found: Hit[Artifact]) -> Restored:
        artifact = found.value
        try:
            artifact.copy_to(self.path)
            self.framework.relocate(self.path, _PLACE, str(self.path))
        except CorruptEntry as error:
            self._cache.quarantine_files(artifact, error.message)
            self.reason = f"what was stored is damaged: {error.message}"
        except OSError as error:
            self.reason = f"it can't be restored: {error}"
        else:
            self.files, self.size = len(artifact.manifest.files), artifact.manifest.size
            return Restored.HIT
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        return Restored.EMPTY

    def _publish(self, key: Key) -> None:
        # Replaced, not removed and made again: who starts meanwhile finds the old one.
        update = Key(_UPDATE, {"folder": key.digest})
        found = self._cache.acquire_files(update, tags=self._tags, wait=_UPDATE_WAIT)
        if isinstance(found, ArtifactLease):
            stored = self._cache.get_files(key)
            self._fill(found, key, stored.value if isinstance(stored, Hit) else None)
        self._give_up()  # who waited looks again, and finds it

    def _fill(self, lease: ArtifactLease, key: Key, stored: Artifact | None) -> None:
        """Commit this folder, with what others have added to ``stored`` since."""
        with lease:
            staging = lease.staging
            copy_settled(self.path, staging, self.framework.transient)
            self.framework.relocate(staging, str(self.path), _PLACE)
            if stored is not None:
                self._add_others(stored, staging)
            lease.commit(key=key, group=f"folder:{self.framework.name}")

    def _add_others(self, stored: Artifact, staging: Path) -> None:
        mine = {name for name, _ in files_of(staging, ())}
        try:
            stored.copy_to(staging, only=lambda name: name not in mine)
        except CorruptEntry as error:
            self._cache.quarantine_files(stored, error.message)

    def _give_up(self) -> None:
        if self._lease is not None:
            self._lease.abandon()
            self._lease = None


def _private(cache: Cache) -> Path:
    """A folder that nobody else uses; in the store's own file system where there is one."""
    if cache.store is not None:
        with contextlib.suppress(StoreError, OSError):
            return cache.store.staging()
    return Path(tempfile.mkdtemp(prefix="trivet-"))
