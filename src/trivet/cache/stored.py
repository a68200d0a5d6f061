"""Looking around in the host store: what is there, and what is nearest to a key that is not."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import msgspec

from trivet.cache.tiers import Tiers
from trivet.cache.validity import judge
from trivet.entries import Descriptor, peek
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.events import MissReason
from trivet.keys import FieldDifference, Key


class StoredEntry(msgspec.Struct, frozen=True):
    """One entry of the host store. ``invalid`` says why it would not be used, None if it would."""

    key: Key
    descriptor: Descriptor
    invalid: MissReason | None


class Neighbour(msgspec.Struct, frozen=True):
    """A stored entry and the fields in which its key (`theirs`) differs from the one asked for."""

    entry: StoredEntry
    differences: tuple[FieldDifference, ...]


def stored_entries(tiers: Tiers, space: str | None) -> Iterator[StoredEntry]:
    """All readable entries, of one space if given."""
    store = tiers.store
    if store is None:
        return
    now, generation = tiers.clock.time(), store.generation()
    for _, head in store.scan():
        try:
            raw, descriptor = peek(head)
            key = Key.from_canonical(raw)
        except (CorruptEntry, IncompatibleEntry):
            continue  # `verify` reports and removes these
        if space is not None and key.space != space:
            continue
        epochs = tiers.epochs(descriptor.tags, generation)
        yield StoredEntry(key, descriptor, judge(descriptor, descriptor.codec, now, epochs))


def neighbours(entries: Iterable[StoredEntry], key: Key, limit: int) -> list[Neighbour]:
    """The ``limit`` entries with the fewest differing fields; ties go to the newer entry."""
    ranked = heapq.nsmallest(
        limit,
        ((each, key.diff(each.key)) for each in entries),
        key=lambda pair: (len(pair[1]), -pair[0].descriptor.created),
    )
    return [Neighbour(entry, differences) for entry, differences in ranked]
