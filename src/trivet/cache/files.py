"""What a cache does with artifacts: entries whose value is a set of files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.cache.artifact import Artifact, ArtifactLease
from trivet.cache.coordinator import WAIT_SECONDS, run
from trivet.cache.outcomes import Failed, Hit, Miss
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.cache.engine import Engine
    from trivet.cache.shared_files import SharedFiles
    from trivet.cache.tiers import Tiers


class Files:
    """Part of `trivet.Cache`."""

    _tiers: Tiers
    _engine: Engine

    def get_files(self, key: Key, *, also: tuple[Key, ...] = ()) -> Hit[Artifact] | Failed | Miss:
        """`Cache.get` for an artifact. Its files are verified by `Artifact.verify`, not here.

        ``also`` names other keys whose artifact answers as well.
        """
        return self._engine.look_files(key, also)

    def files_of_all(self, key: Key) -> SharedFiles | None:
        """What the shared tier has under ``key`` now, whatever this host has, for
        ``ArtifactLease.commit(replaces=...)``. None without a shared tier that can be asked."""
        shared = self._tiers.shared
        return None if shared is None else shared.reader.files_of_all(key)

    def acquire_files(
        self,
        key: Key,
        *,
        also: tuple[Key, ...] = (),
        tags: Iterable[str] = (),
        wait: float = WAIT_SECONDS,
        waiting: Callable[[], object] | None = None,
    ) -> Hit[Artifact] | Failed | ArtifactLease:
        """`Cache.acquire` for an artifact.

        ``waiting`` is called, in this thread, before it waits for somebody else's lease, if it does
        so: for what can be done meanwhile. It must not raise.
        """
        found = self._engine.look_files_here(key, also)
        if not isinstance(found, Miss):
            return found
        waiter = threading.get_ident()
        steps = self._engine.file_steps(key, also, tags, wait, found, waiter=waiter)
        return run(steps, self._tiers, waiting)

    def quarantine_files(self, artifact: Artifact, detail: str) -> bool:
        """`Cache.quarantine` for an artifact that was found before; True if it was still stored.

        When somebody replaced or removed it meanwhile, its files are gone and what is stored now,
        if anything, is not to blame.
        """
        from trivet.cache import removal

        return removal.quarantine_files(self._tiers, artifact, detail)

    def holds(self, artifact: Artifact) -> bool:
        """Whether these very files are what is stored under its key now; True without a store."""
        tiers = self._tiers
        if tiers.layers is not None and artifact.is_stored(tiers.layers):
            return True
        return tiers.store is None or artifact.is_stored(tiers.store)

    def stored_files(self, key: Key) -> tuple[bytes | memoryview, Path] | None:
        """The sealed manifest of an artifact and the folder of its files, unverified and unjudged:
        for looking around, and for moving it elsewhere."""
        tiers = self._tiers
        found: tuple[bytes | memoryview, Path] | None = None
        if tiers.store is not None:
            found = tiers.store.artifact(key.digest)
        if found is None and tiers.layers is not None:
            found = tiers.layers.artifact(key.digest)
        return found
