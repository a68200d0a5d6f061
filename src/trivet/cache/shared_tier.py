"""The shared tier of one cache, as the engine sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.cache.shared import Shared
from trivet.cache.shared_access import SharedAccess
from trivet.cache.shared_read import SharedReader
from trivet.cache.shared_write import SharedWriter
from trivet.stores.shared import HostLease

if TYPE_CHECKING:
    from trivet.cache.tiers import Tiers


class SharedTier(SharedAccess):
    """A `Shared` in the hands of one `Tiers`.

    Attributes:
        reader, writer: look-up in it, and writing to it.
    """

    def __init__(self, tiers: Tiers, parts: Shared) -> None:
        super().__init__(tiers, parts)
        self.reader = SharedReader(self)
        self.writer = SharedWriter(self)

    def raise_epochs(self, tags: tuple[str, ...]) -> None:
        """Invalidate on all hosts. Raises `StoreUnavailable`."""
        self.parts.raise_epochs(tags)
        self.epochs_now(tags)

    def has_leases(self, *, files: bool) -> bool:
        """See `Shared.has_leases`."""
        return self.parts.has_leases(files=files)

    def try_take(self, digest: bytes) -> HostLease | None:
        """See `Leases.try_take`."""
        return self.parts.try_take(digest)

    def close(self) -> None:
        """See `Shared.close`."""
        self.parts.close()
