"""Frameworks whose threads don't survive a fork: a child would wait for them for ever."""

from __future__ import annotations

import os


class Threads:
    """Those of one framework, in the process that first used them.

    Args:
        framework: its name, for people.
    """

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._process: int | None = None

    def require(self) -> None:
        """They are used here. Raises `OSError` in a process that was forked from one that used
        them."""
        process = os.getpid()
        if self._process is None:
            self._process = process
        elif self._process != process:
            raise OSError(
                f"this process was forked from one that used {self._framework}, whose threads are "
                "not here; load plans after the fork only, or start workers by spawn"
            )
