"""What one process knows of the epochs in the shared tier, and how old that may be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from trivet.cache.notes import Notes
from trivet.clock import Clock
from trivet.forks import in_children
from trivet.stores.shared import EpochSource

_TRIES = 3
_SECONDS = 5.0  # after which the copy is compared with its source again


class EpochView:
    """A copy of the epochs of the tags that this process met.

    Args:
        source: where they are kept.
        notes: what this host remembers.
        here: the host's own epochs of tags.

    Attributes:
        reachable: whether the source answered when it was last asked.
        pushed: whether `expire` is called when something has changed: `Near` sets it.
        settled: nothing has to be asked, whatever the time: changes are pushed, and there was none.
        changes: grows whenever the copy turned out to be old; live values are looked at again then.
    """

    def __init__(
        self,
        source: EpochSource,
        notes: Notes,
        here: Callable[[Iterable[str]], Mapping[str, int]],
        clock: Clock,
    ) -> None:
        self._source = source
        self._notes = notes
        self._here = here
        self._monotonic = clock.monotonic
        self._mark: str | None = None
        self._now: dict[str, int] = {}
        self._expiries = 0
        self.reachable = False
        self.pushed = False
        self.changes = 0
        self._reset()
        _every.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()  # another thread may have been asking when this one forked
        self._look_at = float("-inf")
        self.settled = False

    def is_fresh(self) -> bool:
        """Whether the copy need not be compared yet."""
        return self.settled or self._monotonic() < self._look_at

    def expire(self) -> None:
        """Let the copy be compared at the next look, since something has changed."""
        self._expiries += 1
        self.settled = False
        self._look_at = float("-inf")

    def refresh(self, ask: Callable[[Callable[[], None]], None]) -> None:
        """Compare the copy with the source, through ``ask``, which may raise.

        One that failed counts too: nobody tries again at once.
        """
        with self._lock:
            self.reachable = False
            expiries = self._expiries
            try:
                ask(self._compare)
                self.reachable = True
            finally:
                self._look_at = self._monotonic() + _SECONDS
                self.settled = self.pushed and self.reachable
                if self._expiries != expiries:  # perhaps after the source had answered
                    self.settled = False
                    self._look_at = float("-inf")

    def learn(self, tags: Iterable[str], ask: Callable[[Callable[[], None]], None]) -> None:
        """Read those of ``tags`` that aren't in the copy yet."""
        missing = [tag for tag in tags if tag not in self._now]
        if missing:
            with self._lock:
                self.reachable = False
                ask(lambda: self._read(missing))
                self.reachable = True

    def known(self, tags: Iterable[str]) -> dict[str, int]:
        """The epochs as far as they are known: of the copy, else what the host remembers."""
        now = self._now
        found = {tag: now[tag] for tag in tags if tag in now}
        missing = [tag for tag in tags if tag not in now]
        if missing:
            pairs = self._notes.pairs()
            seen = {tag: pairs[tag][0] for tag in missing if tag in pairs}
            found.update({tag: epoch for tag, epoch in seen.items() if epoch >= 0})
        return found

    def invalidated_here(self, tags: Mapping[str, int], here: Mapping[str, int]) -> bool:
        """Whether this host invalidated one of ``tags`` and the shared tier was not told.

        ``tags`` are shared epochs of now, ``here`` the host's.
        """
        pairs = self._notes.remember(tags, here)
        return any(pairs[tag] != (epoch, here.get(tag, 0)) for tag, epoch in tags.items())

    def _compare(self) -> None:
        mark = self._source.mark()
        if mark == self._mark:
            return
        self._read(list(self._now))
        if self._mark is not None:
            self.changes += 1
        self._mark = mark

    def _read(self, tags: list[str]) -> None:
        if not tags:
            return
        here = self._here(tags)
        for _ in range(_TRIES):
            found = self._source.epochs(tags)
            earlier, here = here, self._here(tags)
            if here == earlier:
                break
        # Where this host goes on invalidating, the older of its epochs: then nothing is taken from
        # the shared tier until the next invalidation, which is safe.
        self._notes.remember(found, earlier)
        self._now = {**self._now, **found}


_every = in_children(EpochView._reset)
