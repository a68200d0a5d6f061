"""Looking around in the host store and layers: what is there, and what is nearest to a key."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from trivet.cache.tiers import Tiers
from trivet.cache.validity import judge
from trivet.entries import Descriptor, peek
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.events import MissReason
from trivet.keys import FieldDifference, Key


class StoredEntry(msgspec.Struct, frozen=True):
    """One entry of the host store, or of the layer ``layer``.

    ``invalid`` says why it would not be used, None if it would.
    """

    key: Key
    descriptor: Descriptor
    invalid: MissReason | None
    layer: Path | None = None


class Neighbour(msgspec.Struct, frozen=True):
    """A stored entry and the fields in which its key (`theirs`) differs from the one asked for."""

    entry: StoredEntry
    differences: tuple[FieldDifference, ...]


def stored_entries(tiers: Tiers, space: str | None) -> Iterator[StoredEntry]:
    """All readable entries, of one space if given."""
    met = set()
    for entry in _in_store(tiers):
        if space is None or entry.key.space == space:
            yield entry
        if entry.invalid is None and entry.descriptor.failure is None:
            met.add(entry.key.digest)
    if tiers.layers is None:
        return
    for item in tiers.layers.items(tiers):
        opened = _opened(item.head)
        if opened is None or item.digest in met or space not in (None, opened[0].space):
            continue
        key, facts = opened
        facts = msgspec.structs.replace(facts, tags=item.tags)
        yield StoredEntry(key, facts, item.invalid, item.layer)


def _in_store(tiers: Tiers) -> Iterator[StoredEntry]:
    store = tiers.store
    if store is None:
        return
    now, generation = tiers.clock.time(), store.generation()
    for _, head in store.scan():
        opened = _opened(head)
        if opened is not None:
            key, facts = opened
            epochs = tiers.epochs(facts.tags, generation)
            yield StoredEntry(key, facts, judge(facts, facts.codec, now, epochs))


def _opened(head: bytes) -> tuple[Key, Descriptor] | None:
    """None when it can't be read: `verify` reports and removes these."""
    try:
        raw, facts = peek(head)
        return Key.from_canonical(raw), facts
    except (CorruptEntry, IncompatibleEntry):
        return None


def neighbours(entries: Iterable[StoredEntry], key: Key, limit: int) -> list[Neighbour]:
    """The ``limit`` entries with the fewest differing fields; ties go to the newer entry."""
    ranked = heapq.nsmallest(
        limit,
        ((each, key.diff(each.key)) for each in entries),
        key=lambda pair: (len(pair[1]), -pair[0].descriptor.created),
    )
    return [Neighbour(entry, differences) for entry, differences in ranked]
