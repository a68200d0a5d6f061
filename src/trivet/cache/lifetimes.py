"""Values without a lifetime, in the tiers of this host: `Cache.limit_lifetimes` says when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trivet.stores.host import HostStore
from trivet.stores.host.lifetimes import Limited

if TYPE_CHECKING:
    from trivet.cache.tiers import Tiers
    from trivet.cache.usage import Progress


def limit(tiers: Tiers, lifetime: float | None, space: str, progress: Progress | None) -> Limited:
    """See `Cache.limit_lifetimes`."""
    if isinstance(tiers.store, HostStore):
        return tiers.store.limit_lifetimes(lifetime, space, progress)
    return _limit_memory(tiers, lifetime, space)


def _limit_memory(tiers: Tiers, lifetime: float | None, space: str) -> Limited:
    """Where memory is all there is; elsewhere live copies follow the folder."""
    done, now = Limited(), tiers.clock.time()
    for digest, entry, size in tiers.memory.items():
        done.looked += 1
        facts = entry.descriptor
        if facts.expires is not None or entry.key.space.partition("/")[0] != space:
            continue
        done.without_lifetime += 1
        done.size += size
        if lifetime is None:
            continue
        expires = facts.created + lifetime
        if expires <= now:
            done.dropped += tiers.memory.remove(digest)
        else:
            entry.descriptor = msgspec.structs.replace(facts, expires=expires)
            entry.expires = expires
            done.given += 1
    return done
