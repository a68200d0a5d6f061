"""How one cache reaches its shared tier: the epochs, the judgement, and what to do when it fails.

A tier that is out of reach is an event, and an error only when ``strict``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from trivet.cache.epoch_view import EpochView
from trivet.cache.near import Near
from trivet.cache.notes import Notes
from trivet.cache.outcomes import Miss
from trivet.cache.shared import Shared
from trivet.cache.validity import judge
from trivet.entries import Descriptor, Sealed, unseal
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreError
from trivet.events import EventKind, MissReason, Tier
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.cache.tiers import Tiers


class SharedAccess:
    """What reading and writing the shared tier have in common."""

    def __init__(self, tiers: Tiers, parts: Shared) -> None:
        self.tiers = tiers
        self.parts = parts
        store = tiers.store
        self.notes = Notes(None if store is None else store.root / "shared", parts.where)
        self.view = EpochView(parts.epochs, self.notes, self._epochs_here, tiers.clock)
        self.near: Near | None = None
        if parts.values is not None:
            answered = partial(parts.answered, parts.values)
            self.near = Near(tiers, parts.values, self.view, answered)

    def refresh(self) -> None:
        """Compare the copy of the epochs with the shared tier, if that is due."""
        if self.view.settled:
            return
        if not self.view.is_fresh():
            if self.near is not None:
                self.near.start()
            self._ask(lambda: self.view.refresh(self._ask_source))

    def epochs(self, tags: Iterable[str]) -> dict[str, int]:
        """The shared epochs of ``tags`` as far as they are known, no older than the bound."""
        self.refresh()
        if self.view.reachable:
            self._ask(lambda: self.view.learn(tags, self._ask_source))
        return self.view.known(tags)

    def epochs_now(self, tags: Iterable[str]) -> dict[str, int] | None:
        """The shared epochs of ``tags`` at this moment; None when they can't be asked."""

        def ask() -> None:
            self.view.refresh(self._ask_source)
            self.view.learn(tags, self._ask_source)

        return self.view.known(tags) if self._ask(ask) else None

    def is_current(self, descriptor: Descriptor) -> bool:
        """Whether no other host invalidated an entry of this host's tier, as far as is known."""
        stamps = descriptor.shared
        return all(stamps.get(tag) == epoch for tag, epoch in self.epochs(descriptor.tags).items())

    def judge(self, key: Key, codec_id: str, raw: bytes) -> Sealed | Miss:
        """Verify and judge an entry of the shared tier, as any host would."""
        try:
            sealed = unseal(raw, cryptographic=True)
        except CorruptEntry as error:
            return Miss(MissReason.CORRUPT, error.message)
        except IncompatibleEntry as error:
            return Miss(MissReason.INCOMPATIBLE, error.message)
        if sealed.key != key.canonical:
            return Miss(MissReason.KEY_MISMATCH, "another key has the same digest")
        descriptor = sealed.descriptor
        current = self.epochs_now(descriptor.tags) if descriptor.tags else {}
        if current is None:
            return Miss(MissReason.UNAVAILABLE, "the shared epochs can't be asked")
        reason = judge(descriptor, codec_id, self.tiers.clock.time(), current)
        return sealed if reason is None else Miss(reason)

    def failed(self, error: Exception, action: str) -> Miss:
        """Report that the shared tier could not do something; raise when ``strict``."""
        self.tiers.tier_failed(error, action, tier=Tier.SHARED)
        return Miss(MissReason.UNAVAILABLE, str(error))

    def remove(self, key: Key, store: object, detail: str, remove: Callable[[], object]) -> Miss:
        """What is damaged for everybody goes, so that the next one who has it writes it anew."""
        try:
            self.parts.tell(store, remove)
        except StoreError as error:
            self.failed(error, "delete")
        self.tiers.emit(
            EventKind.QUARANTINED, Tier.SHARED, key=key, reason=MissReason.CORRUPT, detail=detail
        )
        return Miss(MissReason.CORRUPT, detail)

    def announce(self, digest: bytes | None) -> None:
        """Tell other hosts that an entry, or epochs, which are not in Valkey have changed."""
        values = self.parts.values
        if values is not None:
            try:
                self.parts.tell(values, lambda: values.announce(digest))
            except StoreError as error:
                # They notice later.
                self.tiers.tier_failed(error, "announce", raises=False, tier=Tier.SHARED)

    def _ask(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except StoreError as error:
            self.failed(error, "epochs")
            return False
        return True

    def _ask_source(self, work: Callable[[], None]) -> None:
        self.parts.ask(self.parts.epochs, work)

    def _epochs_here(self, tags: Iterable[str]) -> Mapping[str, int]:
        store = self.tiers.store
        return dict.fromkeys(tags, 0) if store is None else store.epochs(tags)
