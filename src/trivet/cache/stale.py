"""Entries that answer beyond their lifetime, for who accepts that."""

from __future__ import annotations

from typing import TypeVar

from trivet.cache.outcomes import Failed, Hit
from trivet.cache.tiers import Tiers
from trivet.cache.validity import judge
from trivet.codecs import Codec
from trivet.events import Tier
from trivet.keys import Key

T = TypeVar("T")


def look_stale(tiers: Tiers, key: Key, codec: Codec[T], stale: float) -> Hit[T] | None:
    """An entry of this host that is valid, or over by less than ``stale`` seconds."""
    if tiers.shared is not None:
        tiers.shared.refresh()
    found = tiers.look_host(key, codec, stale)  # first: another process may have a new one
    if isinstance(found, Hit):
        return found
    if isinstance(found, Failed):
        return None  # it is newer than a live copy
    return look_stale_live(tiers, key, codec, stale)


def look_stale_live(tiers: Tiers, key: Key, codec: Codec[T], stale: float) -> Hit[T] | None:
    """A live copy whose lifetime is over by less than ``stale`` seconds, as far as it allows."""
    entry = tiers.memory.get(key.digest)
    if entry is None or entry.key != key or entry.generation != tiers.generation():
        return None
    descriptor, now = entry.descriptor, tiers.clock.time()
    if descriptor.failure is not None or judge(descriptor, codec.id, now, descriptor.tags, stale):
        return None
    value = entry.value if codec.shareable else codec.decode(memoryview(entry.value))
    return Hit(value, descriptor, Tier.MEMORY, True)
