"""Whether a program is ready, by a file that it writes or an address that answers."""

from __future__ import annotations

import os
import threading

_LOOK = 0.25  # seconds between looks


class Readiness:
    """What tells that a program is ready; a file left by an earlier one does not."""

    def __init__(self, ready: str) -> None:
        self._ready = ready
        self._before = self._stamp()
        self.seen = threading.Event()

    def look(self, over: threading.Event) -> None:
        """Until it is ready or ``over``."""
        while not over.is_set():
            if self._is_ready():
                self.seen.set()
                return
            over.wait(_LOOK)

    def _is_ready(self) -> bool:
        if "://" not in self._ready:
            return self._stamp() not in (None, self._before)
        import http.client  # who names a file, or nothing, doesn't need it
        import urllib.request

        # What is asked is this machine: never by way of a proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self._ready, timeout=5.0) as answer:
                return bool(200 <= (answer.status or 0) < 300)
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            facts = os.stat(self._ready)
        except (OSError, ValueError):
            return None
        return (facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns)
