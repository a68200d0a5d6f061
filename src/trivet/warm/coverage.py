"""Which shapes requests have, against which were got ready."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trivet.plans.activity import PlanUse
from trivet.plans.plan import Observed

RECENT = 7 * 86400.0  # seconds; what was asked for longer ago may be of another release


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """Shapes of one model on one backend.

    Attributes:
        warmed: variants that were got ready ahead.
        observed: variants that were asked for, and how often: requests of this process, and loads
            by all processes of this host.
        missing: those that were asked for and not got ready ahead.
        outside: shapes that the rules don't take, and how often.
    """

    warmed: list[str]
    observed: dict[str, int]
    missing: list[str]
    outside: dict[str, int]

    @property
    def complete(self) -> bool:
        """Whether every request finds its plan ready."""
        return not self.missing and not self.outside


def covered(
    warmed: Iterable[str], uses: Iterable[PlanUse], observed: Observed | None = None
) -> Coverage:
    """Hold what was asked for against what was ``warmed``.

    ``uses`` are those of one model and backend in the host's activity log; ``observed`` is what
    this process was asked.
    """
    ready = list(warmed)
    inside = dict(observed.inside) if observed is not None else {}
    outside = dict(observed.outside) if observed is not None else {}
    for use in uses:
        counts = inside if use.is_load else outside
        counts[use.bucket] = counts.get(use.bucket, 0) + 1
    missing = [each for each in inside if each not in ready]
    return Coverage(warmed=ready, observed=inside, missing=missing, outside=outside)


def recent_uses(activity: Iterable[PlanUse], graph: str, backend: str, now: float) -> list[PlanUse]:
    """What the log of a host says of one model, as far as it still counts.

    ``graph`` is the beginning of the structure's digest, as the log has it; ``now`` is in seconds
    since the epoch.
    """
    return [
        each
        for each in activity
        if each.graph == graph and each.backend == backend and each.time > now - RECENT
    ]
