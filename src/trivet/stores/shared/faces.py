"""What the engine asks of a shared store beside `trivet.stores.Store`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from blake3 import blake3


class EpochSource(Protocol):
    """Keeps the epochs of tags for all hosts.

    An epoch is a number below 2**62 that is another one after every invalidation; nothing else is
    said about it. A source that lost its memory, in full or back to an older state, must give every
    tag an epoch that it never had before.
    """

    def mark(self) -> str:
        """Something that is different after any invalidation, and after a loss of memory."""

    def epochs(self, tags: Iterable[str]) -> dict[str, int]:
        """The current epoch of each tag."""

    def raise_epochs(self, tags: Iterable[str]) -> None:
        """Invalidate: give each tag another epoch. Seen by every read that begins afterwards."""


def number(*parts: str) -> int:
    """A number for an epoch from what identifies it: below 2**62, equal for equal parts only."""
    return int.from_bytes(blake3("\0".join(parts).encode()).digest(8)) >> 2
