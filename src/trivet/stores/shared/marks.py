"""What is about to be collected from an object store, for who sends files there.

Below the url's prefix, ``collection/unused``: MessagePack, names of objects that nothing named when
they were looked at, to when that was, in seconds of the store's clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import msgspec

from trivet.stores.shared.requests import Requests

_NAME = "collection/unused"
_FRESH_SECONDS = 600.0
_decode = msgspec.msgpack.Decoder(dict[str, float]).decode


class Marks:
    """The marks of one store, as a writer sees them: no older than ten minutes."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._marks: Mapping[str, float] | None = {}

    def has(self, name: str) -> bool:
        """Whether the object may be removed soon: who wants it to stay sends it again."""
        with self._lock:
            now = time.monotonic()
            if self._read_at is None or now - self._read_at > _FRESH_SECONDS:
                self._marks = read_marks(self._requests)
                self._read_at = now
            return self._marks is None or name in self._marks


def read_marks(requests: Requests) -> dict[str, float] | None:
    """The marks; None where they can't be read as such. Raises `StoreError`."""
    raw = requests.get(_NAME)
    try:
        return {} if raw is None else _decode(raw)
    except (ValueError, RecursionError):
        return None


def write_marks(requests: Requests, marks: Mapping[str, float]) -> None:
    """Replace the marks. Raises `StoreError`."""
    requests.put(_NAME, msgspec.msgpack.encode(dict(marks)))
