"""Publishing and removing entries, within the limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from trivet.clock import Clock
from trivet.errors import StoreError
from trivet.events import Event, EventKind, Sink, Tier
from trivet.stores.host.catalog import Catalog, Limits, Victim
from trivet.stores.host.disk import discard, storage, sync_folder
from trivet.stores.host.environment import IndexFull
from trivet.stores.host.folder import Folder
from trivet.stores.host.layout import path_of
from trivet.stores.host.records import Pointer, Uses, record_size, where_is
from trivet.stores.host.touches import Touches

_MOST_TOUCHES = 4096  # digests whose uses may wait in memory
_TOUCH_BATCH = 256
_FLUSH_SECONDS = 1.0
_FULL_TRIES = 8
_ROUNDS = 64


class Writer:
    """Changes a folder's index, and the files that follow from it.

    Attributes:
        touches: uses that are not yet written back.
    """

    def __init__(self, folder: Folder, limits: Limits, emit: Sink, clock: Clock) -> None:
        self._folder = folder
        self._limits = limits
        self._emit = emit
        self._clock = clock
        self._flushed = 0.0
        self.touches = Touches(_MOST_TOUCHES, clock.time, self.settle)

    def settle(self) -> None:
        """Date the uses that were noted; write some back when many wait, once a second at most.

        A process that reads more entries than that has its counts sampled.
        """
        self.touches.date()
        now = self._clock.time()
        if len(self.touches) >= _MOST_TOUCHES and abs(now - self._flushed) >= _FLUSH_SECONDS:
            self._flushed = now
            self.flush(_TOUCH_BATCH)

    def flush(self, count: int = _MOST_TOUCHES) -> None:
        """Write access counts of ``count`` digests back. Never fails: they are advice."""
        if self._folder.read_only:
            return
        taken = self.touches.take(count)
        if not taken:
            return
        with suppress(StoreError):
            self._folder.mark_dirty()
            with self._folder.env.write() as txn:
                Catalog(self._folder.env, txn).touch(taken)

    def insert(self, digest: bytes, record: bytes, uses: Uses) -> None:
        """Publish a record, evicting what it takes; in a full index, more."""
        limits = self._limits
        for left in reversed(range(_FULL_TRIES)):
            try:
                self._insert(digest, record, uses, limits)
                return
            except IndexFull:
                if not left:
                    raise
                # Fragments, or old pages that a stopped reader holds: make more room than it takes.
                limits = self._squeeze(limits)

    def insert_many(self, records: Mapping[bytes, tuple[bytes, Uses]]) -> None:
        """`insert` for many that lie in the index, in one transaction."""
        try:
            self._insert_many(records)
        except IndexFull:
            for digest, (record, uses) in records.items():
                self.insert(digest, record, uses)

    def _insert_many(self, records: Mapping[bytes, tuple[bytes, Uses]]) -> None:
        env, limits, now = self._folder.env, self._limits, self._clock.time()
        old: list[Victim] = []
        with env.write() as txn:
            catalog = Catalog(env, txn)
            known = catalog.known(records)
            slow = {each for each, (_, uses) in records.items() if uses.group or each in known}
            for digest in slow:
                before = catalog.insert(digest, *records[digest])
                old += [] if before is None else [Victim(digest, before)]
            catalog.insert_new({each: records[each] for each in records.keys() - slow})
            victims, done = catalog.make_room(limits, "", b"", now)
        self._report(victims)
        self._drop_files([*victims, *old])
        if not done:
            self.make_room()

    def publish(self, digest: bytes, where: Pointer, uses: Uses, path: Path) -> None:
        """Publish a file or folder that is in place; it is removed when that fails."""
        try:
            self.insert(digest, where.encode(), uses)
        except BaseException:
            discard(path, self._folder.layout.trash)
            raise

    def remove(self, digest: bytes, *, durably: bool) -> bool:
        """Forget an entry; ``durably`` for good, and noticed by other processes' live copies.

        Files go first: an index rebuilt from them must not bring a deleted entry back.
        """
        env, layout = self._folder.env, self._folder.layout
        record = env.get(digest)
        where = where_is(record)
        if where is not None:
            path = path_of(layout, digest, where)
            with storage("delete an entry"):
                discard(path, layout.trash)
                if durably:
                    with suppress(FileNotFoundError):
                        sync_folder(path.parent)
        with env.write() as txn:
            removed = Catalog(env, txn).remove(digest)
        if removed is not None and removed != record:
            self._drop_files([Victim(digest, removed)])
        if durably:
            generation = self._folder.generation
            with storage("change the generation"), generation.exclusive():
                generation.bump()
        return removed is not None

    def forget_lost(self, digest: bytes, where: Pointer) -> None:
        """Drop an entry whose files are gone, unless it was replaced meanwhile."""
        env = self._folder.env
        with suppress(StoreError):
            self._folder.mark_dirty()
            with env.write() as txn:
                catalog = Catalog(env, txn)
                if catalog.record(digest) == where.encode():
                    catalog.remove(digest)

    def make_room(self) -> list[Victim]:
        """Evict until the budget is kept."""
        victims: list[Victim] = []
        done = False
        while not done:
            more, done = self._evict(self._limits, b"")
            victims += more
        self._drop_files(victims)
        return victims

    def _insert(self, digest: bytes, record: bytes, uses: Uses, limits: Limits) -> None:
        env, now = self._folder.env, self._clock.time()
        with env.write() as txn:
            catalog = Catalog(env, txn)
            catalog.touch(self.touches.take(_TOUCH_BATCH))
            old = catalog.insert(digest, record, uses)
            victims, done = catalog.make_room(limits, uses.group, digest, now)
        self._report(victims)
        self._drop_files(victims if old is None else [*victims, Victim(digest, old)])
        for _ in range(_ROUNDS):
            if done:
                return
            victims, done = self._evict(limits, digest)
            self._drop_files(victims)

    def _squeeze(self, limits: Limits) -> Limits:
        env = self._folder.env
        env.clear_dead_readers()
        with env.read() as txn:
            inline = Catalog(env, txn).totals().inline
        smaller = limits._replace(inline=min(limits.inline, inline) * 3 // 4)
        victims, _ = self._evict(smaller, b"")
        self._drop_files(victims)
        return smaller

    def _evict(self, limits: Limits, keep: bytes) -> tuple[list[Victim], bool]:
        env = self._folder.env
        with env.write() as txn:
            victims, done = Catalog(env, txn).make_room(limits, "", keep, self._clock.time())
        self._report(victims)
        return victims, done or not victims

    def _drop_files(self, victims: Iterable[Victim]) -> None:
        layout = self._folder.layout
        for digest, record in victims:
            where = where_is(record)
            if where is not None:
                with suppress(OSError):  # left to the next collection
                    discard(path_of(layout, digest, where), layout.trash)

    def _report(self, victims: Iterable[Victim]) -> None:
        for digest, record in victims:
            size = record_size(record)
            self._emit(Event(kind=EventKind.EVICTED, tier=Tier.HOST, digest=digest, size=size))
