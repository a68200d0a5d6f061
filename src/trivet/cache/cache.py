"""`Cache`: the engine's face for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, overload

from trivet.cache.bulk import Bulk
from trivet.cache.coordinator import WAIT_SECONDS, run
from trivet.cache.engine import Engine
from trivet.cache.files import Files
from trivet.cache.forms import ValueForm
from trivet.cache.lease import Lease, computing
from trivet.cache.opening import open_tiers
from trivet.cache.outcomes import Failed, Hit, Miss
from trivet.cache.sink import Harmless
from trivet.cache.tiers import Tiers
from trivet.clock import Clock, SystemClock
from trivet.codecs import Codec
from trivet.events import EventKind, MissReason, Sink
from trivet.keys import Key
from trivet.memory import MemoryTier
from trivet.policies import GDSF, MakePolicy
from trivet.stores import FileStore

if TYPE_CHECKING:
    from trivet.cache.changes import Change
    from trivet.cache.shared import Shared
    from trivet.entries import Descriptor
    from trivet.stores.layers import Layer

T = TypeVar("T")

MEMORY_BYTES = 256 << 20
DISK_BYTES = 20 << 30
GROUP_ENTRIES = 64


class Cache(Bulk, Files):
    """A cache of tiers: live values in this process, sealed entries in a folder of the host, and
    what all hosts share.

    One object may be used by all threads of a process and, after a fork, by its children.

    Args:
        store: the host tier, or None to do without.
        layers: installed bundles, looked at for what the host tier lacks.
        shared: the tier of all hosts, or None.
        memory_bytes: budget of the memory tier.
        memory_policy: makes the policy that chooses what to evict from it; see `trivet.policies`.
        strict: raise when a tier is broken, instead of going on without it.
        sink: is handed every `Event`.
        clock: where time comes from.
    """

    def __init__(
        self,
        store: FileStore | None = None,
        *,
        layers: Sequence[Layer] = (),
        shared: Shared | None = None,
        memory_bytes: int = MEMORY_BYTES,
        memory_policy: MakePolicy = GDSF,
        strict: bool = False,
        sink: Sink | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._tiers = Tiers(
            MemoryTier(memory_bytes, memory_policy),
            store,
            clock or SystemClock(),
            sink and Harmless(sink),
            strict=strict,
            shared=shared,
        )
        if layers:
            from trivet.cache.layers import Layers

            self._tiers.layers = Layers(layers, None if store is None else store.root)
            self._tiers.layers.see(self._tiers)
        self._here: Cache | None = None
        self._engine = Engine(self._tiers)

    @classmethod
    def open(
        cls,
        folder: str | Path | None = None,
        *,
        layers: str | Path | Sequence[str | Path] = (),
        shared: str | Sequence[str] | None = None,
        memory_bytes: int = MEMORY_BYTES,
        memory_policy: MakePolicy = GDSF,
        disk_bytes: int = DISK_BYTES,
        group_entries: int | None = GROUP_ENTRIES,
        strict: bool = False,
        sink: Sink | None = None,
        clock: Clock | None = None,
    ) -> Cache:
        """The cache in ``folder``, by default the user's cache folder, made when it is missing.

        A folder that can't be used (read-only and empty, on a network file system, writable by
        others) is logged, and the cache works in memory alone; with ``strict`` it is an error.

        Args:
            folder: where entries are kept.
            layers: a folder of installed bundles, or several, read in place and never written; what
                they lack is made and kept in ``folder``. One that can't be used is treated as the
                folder would be. See docs/how-to/bundles.md.
            shared: what all hosts share: the url of an object store (``s3://bucket/prefix``,
                ``gs://``, ``az://``, ``file:///folder``), of a Valkey or Redis
                (``valkey://host:port/0``, ``valkey-cluster://host:port,host:port``), or one of
                each. See docs/how-to/share-between-hosts.md.
            memory_bytes, disk_bytes: budgets of the two tiers. Values in memory count what they
                hold there, which may be many times their size on disk.
            group_entries: entries of one quota group (for plans: one graph, backend and release)
                that the folder holds; its least recently used are evicted beyond it, so that one
                model whose shapes don't converge evicts nothing but its own. None for no limit.
            memory_policy, strict, sink, clock: as for the class.

        Raises:
            UnsafeFolder, StoreUnavailable, StoreReadOnly: only with ``strict``.
            ValueError: a url in ``shared`` is of no known kind, or is a second one of its kind.
            MissingExtra: the client for ``shared`` is not installed.
        """
        clock = clock or SystemClock()
        opened = open_tiers(
            folder,
            layers,
            shared,
            disk_bytes=disk_bytes,
            group_entries=group_entries,
            strict=strict,
            sink=sink and Harmless(sink),
            clock=clock,
        )
        cache = cls(
            opened.store,
            layers=opened.layers,
            shared=opened.shared,
            memory_bytes=memory_bytes,
            memory_policy=memory_policy,
            strict=strict,
            sink=sink,
            clock=clock,
        )
        for tier, trouble in opened.troubles:
            cache._tiers.emit(EventKind.TIER_FAILED, tier, detail=f"open: {trouble}")
        return cache

    @property
    def store(self) -> FileStore | None:
        """The host tier; None when the cache works in memory alone."""
        return self._tiers.store

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers below the host tier that could be opened."""
        return () if self._tiers.layers is None else self._tiers.layers.all

    @property
    def clock(self) -> Clock:
        """Where this cache takes time from."""
        return self._tiers.clock

    @property
    def host_only(self) -> Cache:
        """This cache without layers and the shared tier, for what holds on this host alone.

        Memory, folder and leases are the same ones.
        """
        if self._tiers.shared is None and self._tiers.layers is None:
            return self
        if self._here is None:
            import copy  # a start that finds everything doesn't need it

            self._here = copy.copy(self)
            self._here._engine = self._engine.alone()
            self._here._tiers = self._here._engine.tiers
        return self._here

    @property
    def engine(self) -> Engine:
        """What looks up and waits, for other faces such as `trivet.aio`."""
        return self._engine

    # -- look up -------------------------------------------------------------------------------

    @overload
    def get(self, key: Key, codec: Codec[T]) -> Hit[T] | Failed | Miss: ...
    @overload
    def get(self, key: Key, codec: Codec[T], *, known: bytes) -> Change[T] | Failed | Miss: ...
    def get(
        self, key: Key, codec: Codec[T], *, known: bytes | None = None
    ) -> Hit[T] | Change[T] | Failed | Miss:
        """Look ``key`` up; never computes and never waits for somebody else's lease.

        Args:
            known: the stamp of the version that the reader has, ``b""`` for none. Then the answer
                is what has changed since: `trivet.cache.changes`.
        """
        tiers = self._tiers
        if known is not None:
            return self._get_since(key, codec, known)
        shared = tiers.shared
        if shared is not None and not shared.view.settled:  # `refresh` asks too, in a call
            shared.refresh()
        live = tiers.look_memory(key, codec)
        if live is not None:
            return live
        found = tiers.look_host(key, codec)
        if type(found) is Miss and shared is not None:
            found = ValueForm(tiers, codec).look_shared(key, found)
        tiers.report_found(key, found)
        return found

    def _get_since(self, key: Key, codec: Codec[T], known: bytes) -> Change[T] | Failed | Miss:
        from trivet.cache import changes  # few readers keep a version

        if self._tiers.shared is not None:
            self._tiers.shared.refresh()
        if changes.is_unchanged(self._tiers, key, codec, known):
            return changes.Unchanged(known)
        found = self.get(key, codec)
        if not isinstance(found, Hit):
            return found
        return changes.change_since(self._tiers, key, codec, known, found)

    def acquire(
        self,
        key: Key,
        codec: Codec[T],
        *,
        tags: Iterable[str] = (),
        wait: float = WAIT_SECONDS,
        replacing: Descriptor | None = None,
    ) -> Hit[T] | Failed | Lease[T]:
        """Look ``key`` up; when it can't be answered, get the right to compute it.

        Of all threads, tasks and processes of this host that ask at the same time, one gets the
        lease and the others wait for its result; with a Valkey in the shared tier, of all hosts.

        Args:
            key: what to look up.
            codec: how its value is kept.
            tags: what the value depends on; invalidating one makes the entry invalid, also while
                it is being computed.
            wait: seconds to wait for somebody else's lease; then a lease is given all the same, for
                `MissReason.WAIT_TIMEOUT`.
            replacing: the descriptor of an entry that is to be made anew. It and what is older
                doesn't answer; it stays where it is until the lease is committed.

        Raises:
            Exception: what the leader raised, when it failed while this call waited.
        """
        if replacing is None:
            found = self._engine.look_here(key, codec)
            if type(found) is not Miss:
                return found
        else:
            found = Miss(MissReason.EXPIRED)
        waiter = threading.get_ident()
        steps = self._engine.steps(
            key, codec, tags, wait, found, waiter=waiter, replacing=replacing
        )
        return run(steps, self._tiers)

    def get_or_compute(
        self,
        key: Key,
        compute: Callable[[], T],
        codec: Codec[T],
        *,
        tags: Iterable[str] = (),
        lifetime: float | None = None,
        group: str = "",
        wait: float = WAIT_SECONDS,
        record: tuple[type[Exception], ...] = (),
        record_lifetime: float = 3600.0,
    ) -> T:
        """The value of ``key``: the stored one, or that of one call to ``compute``.

        Args:
            key, codec, tags, wait: as for `acquire`.
            compute: makes the value; its duration is the entry's cost.
            lifetime: seconds until the entry expires; None for never.
            group: quota group.
            record: errors that would come again: recorded, and answered from the record.
            record_lifetime: seconds that a recorded error answers.

        Raises:
            ComputeFailed: a recorded error answers.
            Exception: what ``compute`` raised.
        """
        found = self.acquire(key, codec, tags=tags, wait=wait)
        if isinstance(found, Hit):
            return found.value
        if isinstance(found, Failed):
            raise found.error()
        with found as lease, computing((lease,)):
            try:
                value = compute()
            except record as error:
                lease.refuse(error, lifetime=record_lifetime)
                raise
            return lease.commit(value, lifetime=lifetime, group=group)

    # -- change --------------------------------------------------------------------------------

    def invalidate(self, *tags: str) -> Mapping[str, int]:
        """Make every entry that depends on one of ``tags`` invalid, in all processes of the host.

        Costs the same however many entries there are; they are removed later. Returns the new
        epoch of each tag on this host. With a shared tier other hosts notice within seconds, with a
        Valkey in it at once.

        Raises:
            StoreError: this host's folder can't be written.
            StoreUnavailable: this host is done, other hosts could not be told.
        """
        from trivet.cache import removal  # not needed for a hit, nor below

        return removal.invalidate(self._tiers, tags)

    def forget(self, key: Key) -> bool:
        """Remove one entry from all tiers; True if one of them had it.

        A layer is not changed: this host doesn't see the entry in it any more. Other hosts forget
        it only while they have a process that a Valkey pushes changes to; `invalidate` reaches all.
        Nor is a value kept less that is being computed meanwhile; after `invalidate` it isn't kept.
        """
        from trivet.cache import removal

        return removal.forget(self._tiers, key)

    def quarantine(self, key: Key, detail: str) -> None:
        """Set an entry aside whose content turned out to be unusable on this host.

        What the shared tier has is left to the other hosts, and not fetched again by this one.
        """
        from trivet.cache import removal

        removal.quarantine(self._tiers, key, detail)

    def counts(self) -> dict[str, int]:
        """Events of this process by kind, misses and quarantines by reason too.

        Hits are counted without a lock: under threads the number may be a little low.
        """
        counts = self._tiers.counts.copy()
        hits = self._tiers.hits
        if self._here is not None:
            counts.update(self._here._tiers.counts)
            hits += self._here._tiers.hits
        if hits:
            counts[EventKind.HIT] += hits
        return dict(counts)

    def close(self) -> None:
        """Write back what is pending and release the folder.

        Waits up to 5 seconds for values that are being made anew in the background.
        """
        if self._preload is not None:
            self._preload.stop()
        for each in (self, self._here):
            if each is not None:
                each._engine.close()
        if self._tiers.shared is not None:
            self._tiers.shared.close()
        if self._tiers.store is not None:
            self._tiers.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = self._tiers.store.root if self._tiers.store is not None else "memory only"
        return f"<Cache {where}>"
