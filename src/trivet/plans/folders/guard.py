"""A framework's own cache, kept whole: restored verified, captured when it is complete."""

from __future__ import annotations

import enum
import functools
import math
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trivet.cache import Artifact, ArtifactLease, Cache, Failed, Hit
from trivet.errors import CorruptEntry, TrivetError
from trivet.keys import Key
from trivet.plans.folders.attributes import (
    NAME,
    apply_attributes,
    attributes_of,
    take_attributes,
    write_attributes,
)
from trivet.plans.folders.dependencies import Basis
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.growing import Copy, grow
from trivet.plans.folders.runfolder import require_room
from trivet.plans.folders.snapshot import State, StillChanging, copy_settled, files_of, state_of

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
        added: how many files were kept that were not restored.
        left_out: how many are not kept since they are not whole; see `CacheFolder`.
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
        """Raises `OSError` where the disk has too little room for a framework that writes to it."""
        self.framework = framework
        self.basis = basis
        self._command = command
        self.key = key
        self.reason = ""
        self.files = self.size = self.added = self.left_out = 0
        self._tags = (f"framework={framework.name}",)
        self._cache = cache
        self._lock = threading.Lock()
        self.path = path
        require_room(path.parent)
        path.mkdir()
        self._real = os.path.realpath(path)
        self._lease: ArtifactLease | None = None
        self.restored = self._restore(wait)
        self._seen = self._kept = state_of(self.path, framework.transient)

    def variables(self) -> dict[str, str]:
        """The environment variables that lead the framework here."""
        for below in self.framework.variables.values():
            (self.path / below).mkdir(parents=True, exist_ok=True)
        return {name: str(self.path / below) for name, below in self.framework.variables.items()}

    @property
    def is_awaited(self) -> bool:
        """Whether runs of the same command may be waiting for this one to fill it."""
        return self._lease is not None

    def has_more(self) -> bool:
        """Whether there is anything that was not there at the start or the last capture."""
        return state_of(self.path, self.framework.transient) != self._seen

    def capture(
        self, make_key: Callable[[], Key], remember: Callable[[], Key], until: float = math.inf
    ) -> bool:
        """Keep the folder as it is now; False where there is nothing new.

        ``make_key`` gives the folder's own key with what was learnt since. It is asked again when
        the files were copied: what they were made with was written down before they were.
        ``remember`` has others look under that key, and returns it: not before the folder is there,
        since whoever looked and found nothing would compile it again. ``until`` is as for `grow`.
        Raises `TrivetError` and `OSError` when it can't be kept.
        """
        with self._lock:
            if os.path.realpath(self.path) != self._real:
                raise TrivetError("it was replaced by a link to somewhere else")
            for _ in range(_TRIES):
                key = make_key()
                now = state_of(self.path, self.framework.transient)
                if not now or (now == self._seen and key == self.key):
                    return False
                is_still = functools.partial(lambda key: make_key() == key, key)
                seen, kept = self._publish(key, is_still, until)
                if seen and not kept:
                    self._note(seen, kept)
                    return False
                if kept and remember() == key:
                    self._give_up()  # who waited looks again, and finds it
                    self._note(seen, kept)
                    self.key = key
                    return True
            raise StillChanging("what it depends on keeps changing while it is copied")

    def quarantine(self, why: str) -> None:
        """Set the kept folder aside: a program that used it does not get anywhere."""
        self._cache.quarantine(self.key, why)

    def release(self) -> None:
        """Keep nobody waiting any longer; what comes yet can be captured all the same."""
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
            require_room(self.path, artifact.manifest.size)
        except OSError:
            self.path.rmdir()
            raise
        try:
            artifact.copy_to(self.path)
            apply_attributes(self.path)
            self.framework.relocate(self.path, _PLACE, str(self.path))
        except CorruptEntry as error:
            self._cache.quarantine_files(artifact, error.message)
            self.reason = f"what was stored is damaged: {error.message}"
        except OSError as error:
            self.reason = f"it can't be restored: {error}"
        else:
            names = {each.name for each in artifact.manifest.files}
            self.files, self.size = len(names - {NAME}), artifact.manifest.size
            return Restored.HIT
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        return Restored.EMPTY

    def _note(self, seen: State, kept: State) -> None:
        self.added += len(kept.items() - self._kept.items())
        self.left_out = len(seen) - len(kept)
        self._seen, self._kept = seen, kept

    def _publish(self, key: Key, is_still: Callable[[], bool], until: float) -> tuple[State, State]:
        """What was there, and what of it is kept now; nothing of both where the key changed."""
        seen: State = {}
        kept: State = {}

        def fill(staging: Path, others: list[Copy]) -> bool:
            nonlocal seen, kept
            seen, kept = self._fill(staging, others)
            return bool(kept) and is_still()

        update = Key(_UPDATE, {"folder": key.digest})
        group = f"folder:{self.framework.name}"
        grown = grow(self._cache, key, update, fill, until, tags=self._tags, group=group)
        if grown or not kept:
            return seen, kept
        return {}, {}

    def _fill(self, staging: Path, others: list[Copy]) -> tuple[State, State]:
        """Copy this folder, with what others have added since; see `_publish`."""
        transient = self.framework.transient
        attributes = attributes_of(self.path, transient)
        seen = copy_settled(self.path, staging, transient)
        kept = self._without_halves(seen, staging)
        attributes = attributes.of({*kept})
        self.framework.relocate(staging, str(self.path), _PLACE)
        for copy in others:
            mine = {*(name for name, _ in files_of(staging, ())), *attributes.links}
            copy(staging, lambda name, mine=mine: name not in mine)  # type: ignore[misc]
            with suppress(CorruptEntry):  # of a later release
                theirs = take_attributes(staging).present_in(staging)
                attributes = attributes.with_others(theirs, mine)
        write_attributes(staging, attributes)
        return seen, kept

    def _without_halves(self, seen: State, staging: Path) -> State:
        """Remove from ``staging`` what is not whole of the files that are new."""
        is_complete = self.framework.is_complete
        new = [name for name, facts in seen.items() if self._kept.get(name) != facts]
        halves = {name for name in new if not is_complete(staging / name)}
        for name in halves:
            (staging / name).unlink()
        return {name: facts for name, facts in seen.items() if name not in halves}

    def _give_up(self) -> None:
        if self._lease is not None:
            self._lease.abandon()
            self._lease = None
