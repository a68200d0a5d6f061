"""Time as an argument, so that tests can turn it."""

from __future__ import annotations

import time as _time
from typing import Protocol


class Clock(Protocol):
    """What the engine asks of time."""

    def time(self) -> float:
        """Seconds since the epoch; may jump. For ages that outlive the process."""

    def monotonic(self) -> float:
        """Seconds that never run backwards. For time-outs and durations."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for ``seconds``."""


class SystemClock:
    """The machine's clock."""

    time = staticmethod(_time.time)
    monotonic = staticmethod(_time.perf_counter)
    sleep = staticmethod(_time.sleep)
