"""A clock that stands still until it is told to go on."""

from __future__ import annotations

import threading


class FakeClock:
    """A `trivet.clock.Clock` for tests. Sleeping moves time on and takes none.

    Args:
        now: what `time` says at first, in seconds since the epoch.

    >>> clock = FakeClock(now=1_000.0)
    >>> clock.sleep(5)
    >>> clock.time()
    1005.0
    >>> clock.jump(-3_600)  # somebody sets the wall clock back
    >>> clock.time(), clock.monotonic()
    (-2595.0, 5.0)
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._lock = threading.Lock()
        self._wall = now
        self._monotonic = 0.0
        self.slept: list[float] = []

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._wall

    def monotonic(self) -> float:
        """Seconds since the clock was made; `jump` doesn't change it."""
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Move on by ``seconds`` and note it in ``slept``."""
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError when ``seconds`` is negative."""
        if seconds < 0:
            raise ValueError("time passes forwards; use jump() to set the wall clock back")
        with self._lock:
            self._wall += seconds
            self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock on or back, as an administrator or a time server would."""
        with self._lock:
            self._wall += seconds
