"""How long a value is kept, by what it cost."""

from __future__ import annotations

import msgspec


class ByCost(msgspec.Struct, frozen=True):
    """A lifetime in proportion to the seconds that computing took.

    The value lives ``factor * cost`` seconds, at least ``least`` and at most ``most``: with the
    defaults what took 10 ms lives a minute, a second buys an hour, half a minute a day.
    """

    factor: float = 3600.0
    least: float = 60.0
    most: float = 86400.0

    def __post_init__(self) -> None:
        if not (0 < self.factor < float("inf") and 0 < self.least <= self.most < float("inf")):
            raise ValueError(f"factor, least and most are positive seconds, least first: {self}")

    def seconds(self, cost: float) -> float:
        """The lifetime of a value that took ``cost`` seconds."""
        return min(self.most, max(self.least, self.factor * cost))
