"""`HostStore`: sealed entries and artifacts in a folder, for all processes of one machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.clock import Clock, SystemClock
from trivet.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from trivet.events import Event, EventKind, Sink, Tier
from trivet.stores.host import registry
from trivet.stores.host.catalog import Catalog, Limits
from trivet.stores.host.disk import (
    discard,
    make_folder,
    map_file,
    storage,
    sync_folder,
    sync_tree,
    write_file,
)
from trivet.stores.host.folder import Folder
from trivet.stores.host.layout import path_of
from trivet.stores.host.records import NewEntry, Pointer, Uses, is_inline, record_size, where_is
from trivet.stores.host.writer import Writer
from trivet.stores.store import StoredHead

if TYPE_CHECKING:
    from trivet.stores.host.contents import HostStats, StoredItem
    from trivet.stores.host.lifetimes import Limited
    from trivet.stores.host.upkeep import Collected
    from trivet.stores.host.verify import Verdict

GIB = 1 << 30
_LOOK_SECONDS = 1.0


class HostStore:
    """A `FileStore` in a folder of this machine. Make one with `open`.

    Values of up to 32 KiB are kept in the index (LMDB), larger ones and artifacts in files beside
    it. Any number of threads and processes may use a folder; after a fork, the same object works
    in the child. See the module `layout` for what lies where.
    """

    root: Path
    touch: Callable[[bytes], None]
    """See `FileStore.touch`."""

    def __init__(self, folder: Folder, limits: Limits, sink: Sink | None, clock: Clock) -> None:
        self.root = folder.layout.root
        self.folder = folder
        self._clock = clock
        self._limits = limits
        self._sink = sink
        self._closed = False
        self._monotonic = clock.monotonic
        self._look_at = clock.monotonic() + _LOOK_SECONDS
        self._get = folder.env.get
        self._writer = Writer(folder, limits, self._emit, clock)
        self._seen = self.generation()
        self.touch = self._writer.touches.note  # each hit counts one: no call in between
        self._report_rebuilds()

    @classmethod
    def open(
        cls,
        root: Path | str,
        *,
        budget_bytes: int = 20 * GIB,
        group_entries: int | None = None,
        group_bytes: int | None = None,
        map_bytes: int | None = None,
        sink: Sink | None = None,
        clock: Clock | None = None,
    ) -> HostStore:
        """Open the folder, making it if it is missing.

        Args:
            root: the folder. It must belong to this user or to root, be writable by nobody else,
                and lie on a local file system.
            budget_bytes: bytes that entries may occupy; beyond it the least valuable are evicted.
            group_entries, group_bytes: what entries of one group (`Descriptor.group`) may occupy;
                beyond it the group's least recently used are evicted.
            map_bytes: address space of the index of a new folder; by default 1.5 times the budget.
            sink: gets `EVICTED`, `REBUILT`, and `QUARANTINED` for what `verify` finds.

        Raises:
            UnsafeFolder: others could write to the folder.
            StoreReadOnly: the folder can't be written and holds no cache.
            StoreUnavailable: network file system, format of a later release, damaged while
                read-only.
        """
        map_size = map_bytes or max(budget_bytes + budget_bytes // 2, GIB // 4)
        folder = registry.acquire(Path(root), map_size)
        inline = folder.env.info()["map_size"] // 10 * 6
        limits = Limits(budget_bytes, inline, group_entries, group_bytes)
        return cls(folder, limits, sink, clock or SystemClock())

    @property
    def read_only(self) -> bool:
        """Whether the folder can only be read."""
        return self.folder.read_only

    # Reading.

    def read(self, digest: bytes) -> bytes | memoryview | None:
        """See `Store.read`. An artifact reads as its sealed manifest."""
        record = self._get(digest)
        # `generation` spelled out: one call less for each hit.
        if (
            record
            and record[0]
            and self._monotonic() < self._look_at
            and self._seen == self.folder.generation.words[1]
        ):
            return record
        return self._read_slowly(digest, record)

    def artifact(self, digest: bytes) -> tuple[bytes, Path] | None:
        """See `FileStore.artifact`."""
        where = where_is(self._current_record(digest, self._get(digest)))
        if where is None or not where.is_artifact:
            return None
        files = self.folder.layout.artifact_path(digest, where.nonce) / "files"
        if files.is_dir():
            return where.sealed, files
        self._writer.forget_lost(digest, where)
        return None

    def scan(self) -> Iterator[StoredHead]:
        """See `Store.scan`."""
        for digest, _, head in self._entries():
            yield StoredHead(digest, head)

    def items(self) -> Iterator[StoredItem]:
        """All entries with what the store knows about them, in no order."""
        from trivet.stores.host import contents

        for digest, record, head in self._entries():
            yield contents.item(self.folder, self._writer.touches, digest, record, head)

    def stats(self) -> HostStats:
        """Figures of the store."""
        from trivet.stores.host import contents

        self._check_open()
        return contents.stats(self.folder, self._limits.size)

    # Writing.

    def write(self, digest: bytes, sealed: bytes) -> None:
        """See `Store.write`."""
        self._prepare_write(len(sealed))
        now = self._clock.time()
        if is_inline(sealed):
            self._writer.insert(digest, bytes(sealed), Uses.of(sealed, len(sealed), now))
            return
        where = Pointer(self.folder.nonce(), len(sealed), b"", False)
        path = self.folder.layout.object_path(digest, where.nonce)
        with storage("write a value"):
            make_folder(path.parent)
            write_file(path, sealed, self.folder.temporary())
        self._writer.publish(digest, where, Uses.of(sealed, len(sealed), now), path)

    def write_many(self, entries: Sequence[NewEntry]) -> None:
        """`write` for many: a transaction for all that are small, and a tenth of the time.

        Other writers wait meanwhile, so don't give more than some thousands.
        """
        self._prepare_write(max((len(each.sealed) for each in entries), default=0))
        now = self._clock.time()
        small = {}
        for each in entries:
            if is_inline(each.sealed):
                uses = Uses(1, now, len(each.sealed), each.facts.cost, each.facts.group)
                small[each.digest] = each.sealed, uses
            else:
                self.write(each.digest, each.sealed)
        self._writer.insert_many(small)

    def read_many(self, digests: Sequence[bytes]) -> dict[bytes, bytes | memoryview]:
        """What `read` gives for each of ``digests`` that there is."""
        self._check_open()
        with self.folder.env.read() as txn, txn.cursor(self.folder.env.entries) as cursor:
            records = dict(cursor.getmulti(sorted(digests)))
        found: dict[bytes, bytes | memoryview] = {}
        for digest, record in records.items():
            sealed = record if where_is(record) is None else self._read_slowly(digest, record)
            if sealed is not None:
                found[digest] = sealed
        return found

    def read_after(self, after: bytes | None, count: int) -> list[tuple[bytes, bytes | memoryview]]:
        """At most ``count`` entries whose digests follow ``after``, in order, as `read` gives them;
        nothing in the place of artifacts."""
        self._check_open()
        with self.folder.env.read() as txn:
            records = Catalog(self.folder.env, txn).records(after, count)
        found: list[tuple[bytes, bytes | memoryview]] = []
        for digest, record in records:
            where = where_is(record)
            sealed = record if where is None else self._read_slowly(digest, record)
            found.append(
                (digest, b"" if sealed is None or (where and where.is_artifact) else sealed)
            )
        return found

    def staging(self) -> Path:
        """See `FileStore.staging`."""
        self._prepare_write(0)
        outer = self.folder.temporary()
        with storage("make a staging folder"):
            os.mkdir(outer, 0o700)
            files = outer / "files"
            os.mkdir(files, 0o700)
        return files

    def publish(self, digest: bytes, sealed: bytes, staging: Path) -> Path:
        """See `FileStore.publish`. ``staging`` is from `staging`, and gone afterwards."""
        if staging.name != "files" or staging.parent.parent != self.folder.layout.staging:
            raise StoreUnavailable(f"{staging} is not a folder made by `staging`")
        outer = staging.parent
        try:
            with storage("publish an artifact"):
                size = sync_tree(staging) + len(sealed)
                self._prepare_write(size)
                where = Pointer(self.folder.nonce(), size, bytes(sealed), True)
                path = self.folder.layout.artifact_path(digest, where.nonce)
                write_file(outer / "manifest", sealed, outer / "manifest.part")
                make_folder(path.parent)
                os.rename(outer, path)
                sync_folder(path.parent)
        except BaseException:
            discard(outer, self.folder.layout.trash)
            raise
        self._writer.publish(digest, where, Uses.of(sealed, size, self._clock.time()), path)
        return path / "files"

    def delete(self, digest: bytes) -> bool:
        """See `Store.delete`. Durable where the entry has files."""
        self._prepare_write(0)
        return self._writer.remove(digest, durably=True)

    def evict(self, digest: bytes) -> bool:
        """See `FileStore.evict`."""
        self._prepare_write(0)
        return self._writer.remove(digest, durably=False)

    def clear(self) -> None:
        """Forget all entries; epochs stay."""
        from trivet.stores.host import upkeep

        self._prepare_write(0)
        self._writer.touches.clear()
        upkeep.clear(self.folder)

    def flush(self) -> None:
        """Write access counts back now."""
        self._writer.flush()

    # Invalidation.

    def epochs(self, tags: Iterable[str]) -> dict[str, int]:
        """See `FileStore.epochs`."""
        with storage("read the epochs"):
            return self.folder.epochs.current(tags)

    def raise_epochs(self, tags: Iterable[str]) -> Mapping[str, int]:
        """See `FileStore.raise_epochs`. Durable when it returns."""
        self._prepare_write(0)
        with storage("write the epochs"):
            return self.folder.epochs.raise_all(tags)

    def generation(self) -> int:
        """See `FileStore.generation`. A folder in another's place is noticed within a second."""
        if self._monotonic() >= self._look_at:
            self._look()
        return self.folder.generation.words[1]

    # Upkeep.

    def quarantine(self, digest: bytes, reason: str) -> Path | None:
        """See `FileStore.quarantine`."""
        from trivet.stores.host import upkeep

        self._prepare_write(0)
        record = self._get(digest)
        if record is None:
            return None
        return upkeep.quarantine(self.folder, digest, record, reason, self._clock.time())

    def gc(self) -> Collected:
        """Remove what is expired, invalidated, orphaned or over the budget."""
        from trivet.stores.host import upkeep

        self._prepare_write(0)
        self._writer.flush()
        self.folder.env.clear_dead_readers()
        report, now = upkeep.Collected(), self._clock.time()
        for digest, record, head in self._entries():
            reason = upkeep.is_dead(head, self.folder, now)
            if reason is not None and self.evict(digest):
                setattr(report, reason, getattr(report, reason) + 1)
                report.size += record_size(record)
        for victim in self._writer.make_room():
            report.over_budget += 1
            report.size += record_size(victim.record)
        upkeep.sweep(self.folder, report)
        return report

    def limit_lifetimes(
        self, lifetime: float | None, space: str, progress: Callable[[int], object] | None = None
    ) -> Limited:
        """Give entries that have none a lifetime: see `Cache.limit_lifetimes`."""
        from trivet.stores.host.lifetimes import Limiter

        if lifetime is None:
            self._check_open()
        else:
            self._prepare_write(0)
        limiter = Limiter(self.folder, self._read_slowly, space, lifetime, self._clock.time())
        done = limiter.done
        try:
            while limiter.step():
                if progress is not None:
                    progress(done.looked)
        finally:
            if done.given or done.dropped:
                generation = self.folder.generation
                with storage("change the generation"), generation.exclusive():
                    generation.bump()  # live copies have the lifetime that the entry had
        return done

    def verify(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Verdict]:
        """Check every byte of every entry.

        ``progress`` is called with bytes done and bytes in all. What is wrong is quarantined if the
        folder can be written.
        """
        from trivet.stores.host.verify import verdict_on

        total, done = self.stats().size, 0
        for digest, record in self._records():
            verdict = verdict_on(self.folder.layout, digest, record, self._read_slowly)
            if verdict.problem is not None and not self.read_only:
                self.quarantine(digest, verdict.problem)
                self._emit(
                    Event(
                        kind=EventKind.QUARANTINED,
                        tier=Tier.HOST,
                        digest=digest,
                        detail=verdict.problem,
                    )
                )
            done += verdict.size
            if progress is not None:
                progress(done, max(total, done))
            yield verdict

    def rebuild(self) -> int:
        """Make the index anew from the files; returns the number of entries.

        Values that were kept in the index itself are lost.
        """
        self._prepare_write(0)
        count = self.folder.rebuild("asked for")
        self._report_rebuilds()
        return count

    def close(self) -> None:
        """Write back what is pending and let go of the folder."""
        if self._closed:
            return
        self._writer.flush()
        self._closed = True
        self._get = _get_from_closed
        registry.release(self.folder)

    # Inside.

    def _emit(self, event: Event) -> None:
        if self._sink is not None:
            self._sink(event)

    def _look(self) -> None:
        """Open what was put in the folder's place, by a wipe or a restored copy.

        Nobody tells those who have the old files open. Invalidations happen in the new ones.
        """
        self._look_at = self._monotonic() + _LOOK_SECONDS
        with suppress(StoreError, OSError):
            if not self._closed:
                self._writer.settle()
                if self.folder.refresh(create=False):
                    self._report_rebuilds()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _prepare_write(self, size: int) -> None:
        self._check_open()
        if size > self._limits.size:
            raise StoreFull(
                f"{size} bytes are more than the whole budget of {self._limits.size} bytes",
                hint="raise the budget of the cache",
            )
        if self.folder.refresh(create=True):
            self._report_rebuilds()
        if self.read_only:
            raise StoreReadOnly(f"{self.root} can only be read")
        self.folder.mark_dirty()

    def _report_rebuilds(self) -> None:
        while self.folder.rebuilds:
            reason, count = self.folder.rebuilds.pop()
            detail = f"{count} entries found again; {reason}"
            self._emit(Event(kind=EventKind.REBUILT, tier=Tier.HOST, detail=detail))

    def _read_slowly(self, digest: bytes, record: bytes | None) -> bytes | memoryview | None:
        record = self._current_record(digest, record)
        where = where_is(record)
        if where is None or where.is_artifact:
            return record if where is None else where.sealed
        try:
            with storage("read a value"):
                return map_file(path_of(self.folder.layout, digest, where), where.size)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        self._writer.forget_lost(digest, where)
        return None

    def _current_record(self, digest: bytes, record: bytes | None) -> bytes | None:
        """Look again if the folder was replaced: noticed at a miss and after an invalidation."""
        seen = self.generation()
        if record is None or seen != self._seen:
            if self.folder.refresh(create=False):
                self._report_rebuilds()
            record = self._get(digest)
            self._seen = self.generation()
        return record

    def _records(self) -> Iterator[tuple[bytes, bytes]]:
        from trivet.stores.host import contents

        self._check_open()
        if self.folder.refresh(create=False):
            self._report_rebuilds()
        return contents.records(self.folder.env)

    def _entries(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Digest, record and head of all entries that can be read."""
        from trivet.stores.host import contents

        for digest, record in self._records():
            head = contents.head_of(self.folder.layout, digest, record)
            if head is not None:
                yield digest, record, head


def _get_from_closed(digest: bytes) -> bytes | None:
    raise StoreUnavailable("the store is closed")
