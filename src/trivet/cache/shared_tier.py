"""The shared tier of one cache, as the engine sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trivet.cache.shared import Shared
from trivet.cache.shared_access import SharedAccess
from trivet.cache.shared_read import SharedReader
from trivet.cache.shared_write import SharedWriter
from trivet.errors import StoreError, StoreUnavailable

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

    def raise_epochs(self, tags: tuple[str, ...]) -> StoreUnavailable | None:
        """Tell the other hosts that ``tags`` are invalid; the error if that failed.

        Then what the shared tier has is not used here any more either: call it before this host's
        own epochs are raised.
        """
        try:
            self.parts.ask(self.parts.epochs, lambda: self.parts.epochs.raise_epochs(tags))
        except StoreError as error:
            self.notes.distrust(tags, self._epochs_here(tags))
            failed = StoreUnavailable(
                f"invalidated on this host; other hosts could not be told: {error.message}",
                hint="invalidate again when the shared tier answers",
            )
            failed.__cause__ = error
            return failed
        if self.parts.epochs is not self.parts.values:
            self.announce(None)
        self.epochs_now(tags)
        return None

    def agree(self, here: Mapping[str, int]) -> None:
        """After both were raised: this host's epochs that go with the shared ones of now."""
        self.notes.agree(self.view.known(here), here)

    def close(self) -> None:
        """See `Shared.close`."""
        if self.near is not None:
            self.near.close()
        self.parts.close()
