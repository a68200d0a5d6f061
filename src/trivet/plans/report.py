"""Where did the start-up go: wall and CPU time by phase."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

import msgspec


class Phase(msgspec.Struct, frozen=True):
    """One step of a start. Times are in milliseconds; CPU time is that of the whole process."""

    name: str
    wall_ms: float
    cpu_ms: float


class StartReport:
    """What was done to get a plan ready, in order.

    Attributes:
        phases: ``identify`` (read and hash the model, or find it in the memo), ``key`` (host and
            backend facts), ``look up`` (and wait for whoever compiles, importing the framework
            meanwhile), ``verify and import`` (files are verified while it is imported),
            ``import``, ``compile``, ``load``, ``weights`` (read, verified and bound, for plans that
            hold none), ``canary``, ``publish``, ``padding`` (see `Shapes`),
            ``first run``. Those that did not happen are left out.
    """

    def __init__(self) -> None:
        self.phases: list[Phase] = []

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a step; steps are not nested."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.phases.append(
                Phase(
                    name,
                    (time.perf_counter() - wall) * 1e3,
                    (time.process_time() - cpu) * 1e3,
                )
            )

    @property
    def wall_ms(self) -> float:
        """Sum over all phases."""
        return sum(each.wall_ms for each in self.phases)

    def ms(self, name: str) -> float:
        """Wall milliseconds of a phase; 0 if it did not happen."""
        return sum(each.wall_ms for each in self.phases if each.name == name)


def sums(phases: Iterable[Phase]) -> dict[str, float]:
    """Wall milliseconds by name, in the order in which they came first."""
    found: dict[str, float] = {}
    for each in phases:
        found[each.name] = round(found.get(each.name, 0.0) + each.wall_ms, 3)
    return found
