"""A framework's own cache, kept whole: restored verified, captured when it is complete."""

from __future__ import annotations

import enum
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trivet.cache import Artifact, ArtifactLease, Cache, Failed, Hit
from trivet.errors import CorruptEntry
from trivet.keys import Key
from trivet.plans.folders.dependencies import Basis
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.growing import Copy, grow
from trivet.plans.folders.snapshot import StillChanging, copy_settled, files_of, state_of
from trivet.plans.folders.specials import (
    apply_specials,
    specials_of,
    take_specials,
    write_specials,
)

_PLACE = "@trivet@"  # stands in kept files for the path of the folder
_UPDATE = "folder-update/1"  # the space of the leases under which a kept folder is replaced
_FILL = "folder-fill/1"  # the space of the leases under which a folder is filled
_TRIES = 5


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
        path: the folder, of this run alone; made, and removed by whoever owns the run.
        basis: what was known of its user when it began.
        restored: how it began. reason: why it was not a hit, if it was not.
        files, size: how many files were restored, and their bytes.
    """

    def __init__(
        self,
        cache: Cache,
        framework: CacheFolder,
        basis: Basis,
        key: Key,
        path: Path,
        *,
        command: tuple[bytes, ...],
        wait: float,
    ) -> None:
        self.framework = framework
        self.basis = basis
        self._command = command
        self.key = key
        self.reason = ""
        self.files = self.size = 0
        self._tags = (f"framework={framework.name}",)
        self._cache = cache
        self._lock = threading.Lock()
        self.path = path
        path.mkdir()
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

    def capture(self, make_key: Callable[[], Key], remember: Callable[[], Key]) -> bool:
        """Keep the folder as it is now; False where there is nothing new.

        ``make_key`` gives the folder's own key with what was learnt since. It is asked again when
        the files were copied: what they were made with was written down before they were.
        ``remember`` has others look under that key, and returns it: not before the folder is there,
        since whoever looked and found nothing would compile it again. Raises `TrivetError` and
        `OSError` when it can't be kept.
        """
        with self._lock:
            for _ in range(_TRIES):
                key = make_key()
                now = state_of(self.path, self.framework.transient)
                if not now or (now == self._kept and key == self.key):
                    return False
                is_kept = self._publish(key, lambda key=key: make_key() == key)  # type: ignore[misc]
                if is_kept and remember() == key:
                    self._give_up()  # who waited looks again, and finds it
                    self._kept, self.key = now, key
                    return True
            raise StillChanging("what it depends on keeps changing while it is copied")

    def quarantine(self, why: str) -> None:
        """Set the kept folder aside: a program that used it does not get anywhere."""
        self._cache.quarantine(self.key, why)

    def release(self) -> None:
        """Keep nobody waiting any longer; what comes yet can be captured all the same."""
        with self._lock:
            self._give_up()

    def close(self) -> None:
        """Let others fill it if this run did not."""
        with self._lock:
            self._give_up()

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
            apply_specials(self.path)
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

    def _publish(self, key: Key, is_still: Callable[[], bool]) -> bool:
        return grow(
            self._cache,
            key,
            Key(_UPDATE, {"folder": key.digest}),
            lambda staging, others: self._fill(staging, others) and is_still(),
            tags=self._tags,
            group=f"folder:{self.framework.name}",
        )

    def _fill(self, staging: Path, others: list[Copy]) -> bool:
        """Copy this folder, with what others have added since."""
        transient = self.framework.transient
        specials = specials_of(self.path, transient)
        copy_settled(self.path, staging, transient)
        self.framework.relocate(staging, str(self.path), _PLACE)
        for copy in others:
            mine = {*(name for name, _ in files_of(staging, ())), *specials.links}
            copy(staging, lambda name, mine=mine: name not in mine)  # type: ignore[misc]
            with suppress(CorruptEntry):  # of a later release
                theirs = take_specials(staging).present_in(staging)
                specials = specials.with_others(theirs, mine)
        write_specials(staging, specials)
        return True

    def _give_up(self) -> None:
        if self._lease is not None:
            self._lease.abandon()
            self._lease = None
