"""Processes that start something at the same time."""

from __future__ import annotations

import os
import time
from pathlib import Path

_PATIENCE = 120.0  # seconds


def meet(folder: str, count: int) -> None:
    """Wait until ``count`` processes have come here. Raises TimeoutError when some don't."""
    here = Path(folder)
    (here / str(os.getpid())).touch()
    until = time.monotonic() + _PATIENCE
    while len(list(here.iterdir())) < count:
        if time.monotonic() > until:
            raise TimeoutError("the other processes did not come")
        time.sleep(0.005)
