"""Per-key breaker: a key whose entry was corrupt twice in a row is left alone for a while."""

from __future__ import annotations

from trivet.clock import Clock

_LIMIT = 2
_REST_SECONDS = 600.0
_MAX_KEYS = 4096


class KeyBreaker:
    """Counts consecutive corruptions by digest.

    A disk or a writer that damages what it is given would otherwise cost a quarantine and a write
    for every request. While the breaker of a key is open, the key is computed and not stored.

    Attributes:
        strikes: of the keys that were struck; mostly empty, which every read asks.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.strikes: dict[bytes, tuple[int, float]] = {}

    def strike(self, digest: bytes) -> None:
        """The entry was corrupt once more."""
        count, _ = self.strikes.pop(digest, (0, 0.0))
        while len(self.strikes) >= _MAX_KEYS:
            self.strikes.pop(next(iter(self.strikes)), None)
        self.strikes[digest] = (count + 1, self._clock.monotonic())

    def clear(self, digest: bytes) -> None:
        """The entry was read and found good."""
        self.strikes.pop(digest, None)

    def is_open(self, digest: bytes) -> bool:
        """Whether the key is left alone for now."""
        if not self.strikes:
            return False
        count, since = self.strikes.get(digest, (0, 0.0))
        if count < _LIMIT:
            return False
        if self._clock.monotonic() - since < _REST_SECONDS:
            return True
        self.strikes.pop(digest, None)
        return False
