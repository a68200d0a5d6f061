"""`OwnEpochs`: invalidation where no folder keeps the epochs of tags, and no other host knows."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class OwnEpochs:
    """The epochs of one process; see `FileStore.epochs`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._raised: dict[str, int] = {}
        self._generation = 0

    def generation(self) -> int:
        """Changes with every invalidation."""
        return self._generation

    def current(self, tags: Iterable[str]) -> dict[str, int]:
        """The epoch of each tag."""
        return {tag: self._raised.get(tag, 0) for tag in tags}

    def raise_all(self, tags: Iterable[str]) -> None:
        """Make all that depends on one of ``tags`` invalid."""
        with self._lock:
            for tag in tags:
                self._raised[tag] = self._raised.get(tag, 0) + 1
            self._generation += 1
