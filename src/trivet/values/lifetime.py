"""How long a value is kept, and when it is made anew, by what it cost."""

from __future__ import annotations

import math

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


def is_due(now: float, expires: float, cost: float, early: float, chance: float) -> bool:
    """Whether a value is made anew before its end: XFetch (Vattani, Chierichetti and Lowenstein,
    "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015).

    Args:
        now, expires: seconds since the epoch.
        cost: seconds that making it takes.
        early: 1 is best where asking is frequent; more makes it anew sooner, 0 never.
        chance: uniform in [0, 1), drawn for this question alone.
    """
    return now - early * cost * math.log(1.0 - chance) >= expires
