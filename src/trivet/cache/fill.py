"""Many entries at once, into the host store: for `Cache.fill`, and for `trivet.warm.fill`.

Each batch is one transaction, and is read back and compared before it counts. What is kept already,
and may be used, stays, so that a filling which was killed goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
from blake3 import blake3

from trivet.cache.outcomes import Hit
from trivet.cache.validity import judge, texts_of
from trivet.codecs import Bytes, Codec
from trivet.entries import Descriptor, Sealed, seal, unseal
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreUnavailable
from trivet.keys import Key
from trivet.stores.host import HostStore
from trivet.stores.host.records import NewEntry

if TYPE_CHECKING:
    from trivet.cache.cache import Cache
    from trivet.cache.tiers import Tiers

T = TypeVar("T")
Lifetime: TypeAlias = "float | Callable[[float], float] | None"

BATCH = 4096
"""Entries in one transaction, for which other writers wait: some tens of milliseconds."""


class Filled(msgspec.Struct, kw_only=True):
    """What a filling has done.

    Attributes:
        rows: entries that were given.
        written: of these, those that were written, and ``size`` their bytes.
        known: those that were kept already.
        refused: of a folder, those that are damaged or may not be used.
        evicted: those that had to make room for others at once: the budget is too small.
    """

    rows: int = 0
    written: int = 0
    size: int = 0
    known: int = 0
    refused: int = 0
    evicted: int = 0


Progress: TypeAlias = Callable[[Filled], object]


class Mark:
    """How far a filling has come, kept in one step with each batch: it can go on from there.

    Args:
        cache: what is filled.
        key: where it is kept there, for this source.

    Attributes:
        position: up to where the source was read, in whatever form its reader chooses; empty at the
            beginning. The reader sets it.
    """

    def __init__(self, cache: Cache, key: Key) -> None:
        self._tiers, self.key = cache.engine.tiers, key
        found = self._tiers.look_host(key, Bytes())
        self.position = found.value if isinstance(found, Hit) else b""

    def remove(self) -> None:
        """The source was read to its end: the next time begins anew, with what is missing then."""
        if self._tiers.store is not None:
            self._tiers.store.evict(self.key.digest)
        self._tiers.memory.remove(self.key.digest)

    def entry(self, now: float) -> NewEntry:
        """What is kept of it."""
        facts = Descriptor(codec=Bytes.id, created=now, size=len(self.position))
        return NewEntry(self.key.digest, seal(self.key.canonical, facts, self.position), facts)


def fill(
    tiers: Tiers,
    rows: Iterable[tuple[Key, T, float]],
    codec: Codec[T],
    tags: Iterable[str],
    lifetime: Lifetime,
    stale: float,
    mark: Mark | None,
    progress: Progress | None,
) -> Filled:
    """See `Cache.fill`."""
    batches = _Batches(tiers, mark, progress)
    stamp = batches.stamp(texts_of(tags))
    rows = iter(rows)
    while batch := {key.digest: (key, value, cost) for key, value, cost in islice(rows, BATCH)}:
        keys = {digest: key.canonical for digest, (key, _, _) in batch.items()}
        known = batches.known(keys, codec.id)
        entries = []
        for digest, (key, value, cost) in batch.items():
            if digest in known:
                continue
            payload = codec.encode(value)
            lives = lifetime(cost) if callable(lifetime) else lifetime
            facts = Descriptor(
                codec=codec.id,
                created=batches.now,
                expires=None if lives is None else batches.now + lives,
                stale=0.0 if lives is None else stale,
                cost=cost,
                size=len(payload),
                tags=stamp[0],
                shared=stamp[1],
            )
            entries.append(NewEntry(digest, seal(key.canonical, facts, payload), facts))
        batches.write(entries, rows=len(batch), known=len(known))
    return batches.done


def fill_from(
    cache: Cache,
    source: HostStore,
    *,
    first: bytes | None = None,
    last: bytes | None = None,
    mark: Mark | None = None,
    progress: Progress | None = None,
) -> Filled:
    """`Cache.fill` with the values that another folder holds, and that could be used there.

    Every one is held against its BLAKE3 first. Artifacts, such as plans, stay where they are:
    bundles bring these.

    Args:
        first, last: only digests between these, both not included; 32 bytes each.
        mark, progress: as for `Cache.fill`.

    Raises as `Cache.fill`.
    """
    batches = _Batches(cache.engine.tiers, mark, progress)
    after = (mark.position if mark is not None else b"") or first
    while batch := _up_to(source.read_after(after, BATCH), last):
        after = batch[-1][0]
        if mark is not None:
            mark.position = after
        found = {
            digest: each
            for digest, each in _usable(source, batch, cache.clock.time())
            if batches.is_current(each[1].descriptor)
        }
        known = batches.known({digest: each.key for digest, (_, each) in found.items()}, None)
        entries = [
            batches.own(digest, sealed, opened)
            for digest, (sealed, opened) in found.items()
            if digest not in known
        ]
        refused = sum(bool(sealed) for _, sealed in batch) - len(found)
        batches.write(entries, rows=len(found) + refused, known=len(known), refused=refused)
    if mark is not None:
        mark.remove()
    return batches.done


def _up_to(
    batch: list[tuple[bytes, bytes | memoryview]], last: bytes | None
) -> list[tuple[bytes, bytes | memoryview]]:
    return batch if last is None else [each for each in batch if each[0] < last]


def _usable(
    source: HostStore, batch: Iterable[tuple[bytes, bytes | memoryview]], now: float
) -> Iterator[tuple[bytes, tuple[bytes | memoryview, Sealed]]]:
    """Those that are whole, of their digest, and would be a hit in the folder that they are in."""
    epochs: dict[str, int] = {}
    for digest, sealed in batch:
        if not sealed:
            continue
        try:
            opened = unseal(sealed, cryptographic=True)
        except (CorruptEntry, IncompatibleEntry):
            continue
        facts = opened.descriptor
        missing = [tag for tag in facts.tags if tag not in epochs]
        epochs.update(source.epochs(missing) if missing else {})
        if (
            facts.failure is None
            and judge(facts, facts.codec, now, epochs) is None
            and blake3(opened.key).digest() == digest
        ):
            yield digest, (sealed, opened)


class _Batches:
    """Writes batches, and reads each back."""

    def __init__(self, tiers: Tiers, mark: Mark | None, progress: Progress | None) -> None:
        if not isinstance(tiers.store, HostStore):
            raise StoreUnavailable(
                "there is no cache folder to fill", hint="'trivet doctor' says why"
            )
        self._tiers, self._store = tiers, tiers.store
        self._mark, self._progress = mark, progress
        self._stamps: dict[tuple[str, ...], tuple[dict[str, int], dict[str, int]]] = {}
        self._generation = tiers.generation()
        self.now = tiers.clock.time()
        self.done = Filled()

    def stamp(self, tags: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int]]:
        """The tags' epochs on this host, and in the shared tier, as they were at first: what is
        invalidated meanwhile is so for all entries."""
        found = self._stamps.get(tags)
        if found is None:
            shared = self._tiers.shared
            others = {} if shared is None or not tags else shared.epochs(tags)
            epochs = self._tiers.epochs(tags, self._generation)
            found = self._stamps[tags] = {tag: epochs[tag] for tag in tags}, others
        return found

    def known(self, keys: Mapping[bytes, bytes | memoryview], codec_id: str | None) -> set[bytes]:
        """Those, by digest and canonical bytes, that are kept, verified, and may be used."""
        self.now = self._tiers.clock.time()
        known = set()
        for digest, raw in self._store.read_many(list(keys)).items():
            try:
                found = unseal(raw)
            except (CorruptEntry, IncompatibleEntry):
                continue
            facts = found.descriptor
            epochs = self._tiers.epochs(facts.tags, self._tiers.generation())
            if (
                found.key == keys[digest]
                and facts.failure is None
                and judge(facts, codec_id or facts.codec, self.now, epochs) is None
            ):
                known.add(digest)
        return known

    def is_current(self, facts: Descriptor) -> bool:
        """Whether the shared tier says nothing against an entry of another folder."""
        _, others = self.stamp(tuple(facts.tags))
        return all(facts.shared.get(tag, epoch) == epoch for tag, epoch in others.items())

    def own(self, digest: bytes, sealed: bytes | memoryview, opened: Sealed) -> NewEntry:
        """An entry of another folder, with the epochs that its tags have here."""
        facts = opened.descriptor
        tags, shared = self.stamp(tuple(facts.tags))
        if facts.tags == tags and facts.shared == shared:
            return NewEntry(digest, bytes(sealed), facts)
        facts = msgspec.structs.replace(facts, tags=tags, shared=shared)
        return NewEntry(digest, seal(bytes(opened.key), facts, opened.payload), facts)

    def write(self, entries: list[NewEntry], *, rows: int, known: int, refused: int = 0) -> None:
        """Write a batch, with how far this has come."""
        done = self.done
        marks = [] if self._mark is None else [self._mark.entry(self.now)]
        self._store.write_many([*entries, *marks])
        self._verify(entries)
        if self._tiers.memory.stats().entries:
            for each in entries:
                self._tiers.memory.remove(each.digest)  # such as a failure that was recorded
        done.rows += rows
        done.known += known
        done.refused += refused
        if self._progress is not None:
            self._progress(done)

    def _verify(self, entries: list[NewEntry]) -> None:
        """Compare what is stored now with what was sealed."""
        stored = self._store.read_many([each.digest for each in entries])
        for each in entries:
            raw = stored.get(each.digest)
            if raw is None:
                self.done.evicted += 1
                continue
            if raw != each.sealed:
                unseal(raw)  # somebody else's by now, or damaged
            self.done.written += 1
            self.done.size += len(each.sealed)
