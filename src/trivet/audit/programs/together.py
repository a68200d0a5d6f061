"""Processes that start something at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

_PATIENCE = 120.0  # seconds


def meet(folder: str, count: int) -> None:
    """Wait until ``count`` processes have come here. Raises TimeoutError when some don't."""
    here = Path(folder)
    (here / str(os.getpid())).touch()
    _wait_until(lambda: len(list(here.iterdir())) >= count)


def tell_and_wait(ready: str, go: str) -> None:
    """Say that this process is ready, and wait until it is told to go on. Raises TimeoutError."""
    Path(ready).touch()
    _wait_until(Path(go).exists)


def _wait_until(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE
    while not is_true():
        if time.monotonic() > until:
            raise TimeoutError("the other processes did not come")
        time.sleep(0.005)
