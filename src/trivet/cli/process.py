"""How long this process has been alive: the part of a start that no code of ours can time."""

from __future__ import annotations

import os
import time
from pathlib import Path


def age_seconds() -> tuple[float, float]:
    """Wall and CPU seconds since the process was started; wall time in steps of 10 ms.

    Where ``/proc`` can't be read, wall time is taken to be CPU time.
    """
    cpu = time.process_time()
    try:
        # Field 22; the second one, the command in parentheses, may contain anything.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        wall = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError):
        return cpu, cpu
    return max(wall, 0.0), cpu
