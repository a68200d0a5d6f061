"""`MemoryTier`: the live values of one process, within a byte budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

from trivet.forks import in_children
from trivet.memory.entry import MemoryEntry
from trivet.policies import GDSF, MakePolicy

OnEvict = Callable[[bytes, MemoryEntry], None]


class MemoryStats(NamedTuple):
    """Where a tier stands. ``size`` and ``budget`` are bytes; the counts are since it was made.

    ``hits`` may miss a few when threads read at the same moment; the rest is exact.
    """

    size: int
    budget: int
    entries: int
    hits: int
    evictions: int


class MemoryTier:
    """Keeps live values under 32-byte digests; judges nothing, the engine does.

    Args:
        budget: bytes; the sum of the sizes given to `put` never exceeds it.
        make_policy: makes the policy that chooses what to evict.
        on_evict: called after an eviction (not after `remove` or `clear`), outside any lock.

    Thread-safe. A forked child keeps the values, unless another thread was changing the tier at
    that moment: the child's tier is then empty.
    """

    def __init__(
        self,
        budget: int,
        make_policy: MakePolicy = GDSF,
        on_evict: OnEvict | None = None,
    ) -> None:
        self.budget = budget
        self._make_policy = make_policy
        self._on_evict = on_evict
        self._lock = threading.RLock()
        self._hits = 0
        self._evictions = 0
        self._reset()
        _tiers.add(self)

    def _reset(self) -> None:
        self._entries: dict[bytes, MemoryEntry] = {}
        self._sizes: dict[bytes, int] = {}  # of what the policy tracks
        self._size = 0
        self._policy = self._make_policy()
        self._touched = self._policy.touched
        self._busy = False
        self._late: list[bytes] = []

    def get(self, digest: bytes) -> MemoryEntry | None:
        """The entry, or None; a hit counts as a use."""
        # No lock: reading a dict is one step under the GIL (and locked inside the dict without
        # one), an entry is published only when it is complete, and policies allow `touched` at any
        # time. A reader may get an entry that another thread is just evicting, which is harmless:
        # it holds a reference.
        entry = self._entries.get(digest)
        if entry is not None:
            self._touched(digest)
            self._hits += 1
        return entry

    def peek(self, digest: bytes) -> MemoryEntry | None:
        """`get` that counts as nothing."""
        return self._entries.get(digest)

    def put(self, digest: bytes, entry: MemoryEntry, size: int, cost: float) -> bool:
        """Keep an entry, replacing one of the same digest; evict what no longer fits.

        Args:
            size: bytes that the live value occupies.
            cost: seconds that computing it took.

        Returns:
            Whether it is kept. It isn't if it is larger than the budget or its quota, or worth
            less than everything else; nothing is kept under the digest then.
        """
        if size < 0:
            raise ValueError(f"a size is not negative, got {size}")
        gone: list[tuple[bytes, MemoryEntry]] = []
        with self._lock:  # as `_change`, spelled out: it is a quarter of what this takes
            if self._busy:
                self._hide(digest)
                return False
            self._busy = True
            try:
                replaced = self._entries.get(digest)  # let go after the lock, like `gone`
                kept = self._admit(digest, entry.descriptor.group, size, cost, gone)
                if kept:
                    self._entries[digest] = entry
                self._evictions += len(gone)
            finally:
                self._end()
        del replaced
        if self._on_evict is not None:
            for evicted in gone:
                self._on_evict(*evicted)
        return kept

    def remove(self, digest: bytes) -> bool:
        """Forget an entry; True if there was one. No `get` that begins later finds it."""
        with self._change():
            entry = self._hide(digest)
        return entry is not None

    def clear(self) -> None:
        """Forget everything."""
        with self._change() as free:
            entries = self._entries
            if free:
                self._reset()
            else:
                self._late.extend(entries)
                self._entries = {}
        del entries

    def stats(self) -> MemoryStats:
        """Size, entries and counts at one moment."""
        with self._lock:
            return MemoryStats(
                self._size, self.budget, len(self._entries), self._hits, self._evictions
            )

    def items(self) -> list[tuple[bytes, MemoryEntry, int]]:
        """Digest, entry and bytes of all that is kept, what is worth the most first."""
        with self._lock:
            ranked = [cast(bytes, token) for token in self._policy.ranked()]
            found = [(each, self._entries.get(each), self._sizes.get(each, 0)) for each in ranked]
        return [(digest, entry, size) for digest, entry, size in found if entry is not None]

    @contextmanager
    def _change(self) -> Iterator[bool]:
        """Hold the tier for one change; yields False inside another change of this very thread.

        Python may collect garbage at any allocation, which runs finalizers of user code, and these
        may call this tier again in the thread that holds the lock. A plain lock would wait for
        itself for ever, and a change inside a change would break the bookkeeping. So such a `put`
        keeps nothing, and removals hide the entry at once and are booked when the outermost
        change ends. For the same reason values are let go only after the lock.
        """
        with self._lock:
            if self._busy:
                yield False
                return
            self._busy = True
            try:
                yield True
            finally:
                self._end()

    def _end(self) -> None:
        """End a change: book what was removed inside it."""
        while self._late:
            digest = self._late.pop()
            if digest not in self._entries:
                self._forget(digest)
        self._busy = False

    def _admit(
        self,
        digest: bytes,
        group: str,
        size: int,
        cost: float,
        gone: list[tuple[bytes, MemoryEntry]],
    ) -> bool:
        """Make room for an entry, which may turn out to be the one that has to go."""
        victim, sizes, budget = self._policy.victim, self._sizes, self.budget
        if size <= budget:
            self._policy.inserted(digest, size, cost, group)
            self._size += size - sizes.get(digest, 0)
            sizes[digest] = size
        else:
            self._lose(digest, gone)
        while (token := victim(self._size > budget)) is not None:
            self._lose(cast(bytes, token), gone)
        return digest in sizes

    def _lose(self, digest: bytes, gone: list[tuple[bytes, MemoryEntry]]) -> None:
        self._forget(digest)
        entry = self._entries.pop(digest, None)
        if entry is not None:
            gone.append((digest, entry))

    def _hide(self, digest: bytes) -> MemoryEntry | None:
        """Take an entry from readers at once; its bookkeeping ends with the change."""
        self._late.append(digest)
        return self._entries.pop(digest, None)

    def _forget(self, digest: bytes) -> None:
        """End the bookkeeping of an entry."""
        self._policy.removed(digest)
        self._size -= self._sizes.pop(digest, 0)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()  # the old one may belong to a thread that is no more
        if self._busy:
            self._reset()


_tiers = in_children(MemoryTier._after_fork)
