"""What a cache does with many entries at once: filled, looked over, snapshot, preloaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from trivet.codecs import Codec
from trivet.events import Tier
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.cache.fill import Filled, Lifetime, Mark
    from trivet.cache.fill import Progress as FillProgress
    from trivet.cache.hot import Preload
    from trivet.cache.stored import Neighbour, StoredEntry
    from trivet.cache.tiers import Tiers
    from trivet.cache.usage import Progress, Usage
    from trivet.stores.host.lifetimes import Limited

T = TypeVar("T")


class Bulk:
    """Part of `trivet.Cache`. No hit needs it."""

    _tiers: Tiers
    _preload: Preload | None = None

    def fill(
        self,
        rows: Iterable[tuple[Key, T, float]],
        codec: Codec[T],
        *,
        tags: Iterable[str] = (),
        lifetime: Lifetime = None,
        stale: float = 0.0,
        mark: Mark | None = None,
        progress: FillProgress | None = None,
    ) -> Filled:
        """Keep many values in the folder at once: of each its key, the value, and the seconds that
        computing it takes.

        What is kept already stays, so a filling that was interrupted may be begun anew. Everything
        that was written is read back and compared. Memory and other hosts get nothing.

        Args:
            codec, tags: as for `acquire`.
            lifetime: as for `get_or_compute`; or a function of the seconds.
            stale: as for `Lease.commit`.
            mark: kept in one step with each batch; ``rows`` sets its position before each row.
            progress: told after each batch.

        Raises:
            StoreError: the folder can't be written.
            CorruptEntry: something comes back otherwise than it was written.
        """
        from trivet.cache.fill import fill

        return fill(self._tiers, rows, codec, tags, lifetime, stale, mark, progress)

    def snapshot(self, name: str = "default") -> int:
        """Write down which values are in memory now, the most valuable first, for `preload`.

        In one step: who is killed meanwhile leaves the snapshot of before. Returns how many there
        are. Names tell programs apart that use one folder.

        Raises:
            StoreError: the folder can't be written.
            ValueError: no such name can be.
        """
        from trivet.cache.hot import snapshot

        return snapshot(self._tiers, name)

    def register_codec(self, codec: Codec[Any]) -> None:
        """Let `preload` read what is kept with ``codec``. Memos register theirs."""
        self._tiers.codecs[codec.id] = codec

    def preload(
        self,
        name: str = "default",
        *,
        codecs: Iterable[Codec[Any]] = (),
        most_bytes: int | None = None,
        seconds: float = 60.0,
    ) -> Preload:
        """Begin to read the values of a snapshot into memory, verified, the most valuable first.

        A thread does it; nothing that is in memory is evicted for it, and `close` ends it.

        Args:
            codecs: registered first; see `register_codec`.
            most_bytes: where it ends, by the bytes in memory; by default its budget.
            seconds: when it ends.
        """
        from trivet.cache.hot import Preload

        if self._preload is not None:
            self._preload.stop()
        for each in codecs:
            self.register_codec(each)
        self._preload = Preload(self._tiers, name, most_bytes, seconds)
        return self._preload

    def usage(
        self, tier: Tier = Tier.MEMORY, *, by: str = "", progress: Progress | None = None
    ) -> Usage:
        """What holds the bytes of a tier, by name, size and age, and how much has no lifetime.

        Args:
            tier: the memory tier, or the host store (`Tier.HOST`).
            by: the field of keys that names entries, such as ``"function"``; others, and by default
                all, are named by the space of their keys.
            progress: told now and then how many entries were looked at.
        """
        from trivet.cache.usage import usage_of

        return usage_of(self._tiers, tier, by, progress)

    def limit_lifetimes(
        self, lifetime: float | None, *, space: str, progress: Progress | None = None
    ) -> Limited:
        """Give all values that have no lifetime one, in the folder or, without one, in memory.

        It counts from when they were made, as if they had been kept with it; those that are older
        are dropped. Artifacts, such as plans, are not looked at. Other writers wait for a few
        milliseconds at most, and what they write meanwhile stays. In the end, if anything was
        changed, all processes read from the folder again what they have in memory.

        Args:
            lifetime: seconds; 0 to drop them all, None to count them only.
            space: the first part of the space of their keys, such as ``"value"``.
            progress: told now and then how many entries were looked at.
        """
        from trivet.cache.lifetimes import limit

        return limit(self._tiers, lifetime, space, progress)

    def entries(self, space: str | None = None) -> Iterator[StoredEntry]:
        """What the host store and the layers hold, of one ``space`` or of all, as far as it can be
        read."""
        from trivet.cache.stored import stored_entries  # not needed for a hit

        return stored_entries(self._tiers, space)

    def nearest(self, key: Key, limit: int = 1) -> list[Neighbour]:
        """The stored keys of the same space that differ from ``key`` in the fewest fields."""
        from trivet.cache.stored import neighbours

        return neighbours(self.entries(key.space), key, limit)

    def hide_layers(self) -> None:
        """Let this host not see any entry of the bundles that are installed now."""
        if self._tiers.layers is not None:
            self._tiers.layers.hide_all(self._tiers)
            self._tiers.memory.clear()
