"""Uses of entries that are not yet written back."""

from __future__ import annotations

from collections.abc import Callable

_MOST_FRESH = 1024  # digests that `note` may gather before they are dated
_NEVER = (0, 0.0)


class Touches:
    """Counts uses by digest; their time is that of the batch that they were noted in.

    Every hit notes a use, so noting one is two steps in a small dict. Whoever reads the clock
    anyway calls `date` once a second, which also makes that the precision.

    Any thread may call anything; a use that is noted during `date` may get lost.
    """

    def __init__(self, limit: int, time: Callable[[], float], many: Callable[[], object]) -> None:
        """At most ``limit`` digests are kept, uses of others are dropped.

        ``many`` is called when much was noted, and has to call `date`.
        """
        self._limit = limit
        self._time = time
        self._many = many
        self._fresh: dict[bytes, int] = {}
        self._since = 0.0  # when the first of these was used
        self._dated: dict[bytes, tuple[int, float]] = {}

    def note(self, digest: bytes) -> None:
        """Count one use."""
        fresh = self._fresh
        if not fresh:
            self._since = self._time()
        fresh[digest] = fresh.get(digest, 0) + 1
        if len(fresh) >= _MOST_FRESH:
            self._many()

    def date(self) -> None:
        """Begin a new batch."""
        if not self._fresh:
            return
        fresh, since, dated = self._fresh, self._since, self._dated
        self._fresh = {}
        for digest, count in fresh.copy().items():  # another thread may still note in it
            known, last = dated.get(digest, _NEVER)
            if known or len(dated) < self._limit:
                dated[digest] = (known + count, max(last, since))

    def of(self, digest: bytes) -> tuple[int, float]:
        """Uses of one digest, and seconds since the epoch of the last."""
        self.date()
        return self._dated.get(digest, _NEVER)

    def take(self, count: int) -> list[tuple[bytes, tuple[int, float]]]:
        """Remove and return the ``count`` that have waited longest."""
        self.date()
        taken = []
        for digest in list(self._dated)[:count]:
            uses = self._dated.pop(digest, None)  # another thread may have taken it
            if uses is not None:
                taken.append((digest, uses))
        return taken

    def clear(self) -> None:
        """Forget all."""
        self._fresh, self._dated = {}, {}

    def __len__(self) -> int:
        """Digests that wait, but for those of the batch of now."""
        return len(self._dated)
