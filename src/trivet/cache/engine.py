"""The engine behind both faces of a cache: `trivet.cache.Cache` and `trivet.aio.AsyncCache`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from trivet.cache.artifact import Artifact, ArtifactLease
from trivet.cache.coordinator import Coordinator, Steps
from trivet.cache.forms import FileForm, ValueForm
from trivet.cache.journal import LoadJournal
from trivet.cache.lease import Lease
from trivet.cache.outcomes import Failed, Hit, Miss
from trivet.cache.reader import make_reader
from trivet.cache.tiers import Tiers
from trivet.cache.validity import texts_of
from trivet.codecs import Codec
from trivet.events import EventKind, Tier
from trivet.flight import FileLocks
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.cache.refreshes import Refreshes
    from trivet.entries import Descriptor

T = TypeVar("T")
D = TypeVar("D")


class Engine:
    """Looks up without waiting, and says step by step how a missing entry is waited for or made.

    Attributes:
        tiers: what is stored, and what of it may be used.
    """

    def __init__(self, tiers: Tiers) -> None:
        self.tiers = tiers
        self._journal: LoadJournal | None = None
        locks: FileLocks | None = None
        if tiers.store is not None:
            try:
                locks = FileLocks(tiers.store.root / "locks")
                self._journal = LoadJournal(tiers.store.root / "journal")
            except OSError as error:
                # A read-only folder: nothing is written, so nothing needs a lock.
                tiers.emit(EventKind.TIER_FAILED, Tier.HOST, detail=f"lock: {error}")
        self._coordinator = Coordinator(tiers, locks)

    def alone(self) -> Engine:
        """The same memory, host tier and leases, without what others made."""
        import copy  # a start that finds everything doesn't need it

        here = copy.copy(self)
        here.tiers = self.tiers.alone()
        here._coordinator = self._coordinator.on(here.tiers)
        return here

    # -- values --------------------------------------------------------------------------------

    def look_live(self, key: Key, codec: Codec[T]) -> Hit[T] | Failed | None:
        """What the memory tier has, without input or output.

        With a shared tier also None when it is time to ask for invalidations on other hosts.
        """
        shared = self.tiers.shared
        if shared is not None and not shared.view.is_fresh():
            return None
        return self.tiers.look_memory(key, codec)

    def reader(self, codec: Codec[T]) -> Callable[[Key, D], T | D]:
        """`look_live` in half the time: the value of a hit, else the second argument."""
        return make_reader(self, codec)

    def look_here(self, key: Key, codec: Codec[T]) -> Hit[T] | Failed | Miss:
        """`Cache.get` in the tiers of this host alone."""
        tiers = self.tiers
        if tiers.shared is not None:
            tiers.shared.refresh()
        live = tiers.look_memory(key, codec)
        if live is not None:
            return live
        found = tiers.look_host(key, codec)
        tiers.report_found(key, found)
        return found

    def look_stale(
        self, key: Key, codec: Codec[T], stale: float, *, live: bool = False
    ) -> Hit[T] | None:
        """Also what this host has beyond its lifetime, by up to ``stale`` seconds, as far as the
        entry allows that; with ``live`` only what is in memory, without input or output."""
        tiers = self.tiers
        if not live:  # the host first: another process may have a new one
            if tiers.shared is not None:
                tiers.shared.refresh()
            kept = tiers.look_host(key, codec, stale)
            if type(kept) is Hit:
                tiers.report_found(key, kept)
                return kept
            if type(kept) is Failed:
                return None  # it is newer than a live copy
        found = tiers.look_memory(key, codec, stale)
        return found if type(found) is Hit else None

    def refreshes(self) -> Refreshes:
        """What is being made anew in the background."""
        from trivet.cache.refreshes import Refreshes  # most caches refresh nothing

        made: Refreshes | None = vars(self).get("_refreshes")
        return made or vars(self).setdefault("_refreshes", Refreshes(self.tiers))

    def close(self) -> None:
        """Start no refreshes any more, and wait a little for those that run."""
        if "_refreshes" in vars(self):
            self.refreshes().close()

    def steps(
        self,
        key: Key,
        codec: Codec[T],
        tags: Iterable[str],
        wait: float,
        missed: Miss,
        *,
        waiter: int,
        replacing: Descriptor | None = None,
    ) -> Steps[Hit[T] | Failed | Lease[T]]:
        """What `Cache.acquire` does after ``missed``, for the caller to drive.

        ``waiter`` is the thread or task that waits, as for `Coordinator.steps`.
        """
        form: ValueForm[T] = ValueForm(self.tiers, codec, replacing)
        wanted = texts_of(tags)
        return self._coordinator.steps(key, form, wanted, wait, missed.reason, waiter=waiter)

    # -- artifacts -----------------------------------------------------------------------------

    def look_files(self, key: Key, also: tuple[Key, ...]) -> Hit[Artifact] | Failed | Miss:
        """`Cache.get_files`."""
        form = self._files(also)
        found = form.look(key)
        if isinstance(found, Miss):
            found = form.look_shared(key, found)
        self.tiers.report_found(key, found)
        return found

    def look_files_here(self, key: Key, also: tuple[Key, ...]) -> Hit[Artifact] | Failed | Miss:
        """`Cache.get_files` in the tiers of this host alone."""
        found = self._files(also).look(key)
        self.tiers.report_found(key, found)
        return found

    def file_steps(
        self,
        key: Key,
        also: tuple[Key, ...],
        tags: Iterable[str],
        wait: float,
        missed: Miss,
        *,
        waiter: int,
    ) -> Steps[Hit[Artifact] | Failed | ArtifactLease]:
        """What `Cache.acquire_files` does after ``missed``."""
        form = self._files(also)
        return self._coordinator.steps(
            key, form, texts_of(tags), wait, missed.reason, waiter=waiter
        )

    def _files(self, also: tuple[Key, ...]) -> FileForm:
        return FileForm(self.tiers, self._journal, also)
