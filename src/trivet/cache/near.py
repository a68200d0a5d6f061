"""The near cache: this process's copies of what is shared, dropped when others change it."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from blake3 import blake3

from trivet.errors import StoreError
from trivet.events import Tier
from trivet.forks import in_children
from trivet.stores.host.layout import boot_id
from trivet.stores.shared import Push, ValkeyStore

if TYPE_CHECKING:
    from trivet.cache.epoch_view import EpochView
    from trivet.cache.tiers import Tiers
    from trivet.stores.shared.names import News

_STRIPES = 4096
_BEATS = 60


class Near:
    """Listens to a `Push`, and keeps what was read before a change from being kept after it."""

    def __init__(
        self, tiers: Tiers, store: ValkeyStore, view: EpochView, answered: Callable[[], None]
    ) -> None:
        self._tiers = tiers
        self._store = store
        self._answered = answered  # closes the circuit, or what is told could not be asked for
        self._view = view
        self._push = Push(store, self)
        self._seen = [0] * _STRIPES
        self._flushes = 0
        self._refused = ""
        host = None if tiers.store is None else _host_of(tiers.store.root)
        self._host = host or secrets.token_hex(8).encode()
        self._reset()
        _every.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._live = self._view.pushed = False
        self._beats = 0
        self._own = secrets.token_hex(8).encode()
        self._store.writer = self._host + b"." + self._own

    def start(self) -> None:
        """Begin to listen, in this process."""
        self._push.start()

    def close(self) -> None:
        """End listening."""
        self._push.close()

    # -- for who reads ---------------------------------------------------------------------------

    def is_told(self) -> bool:
        """Whether changes by others are told now."""
        return self._live

    def version(self, digest: bytes) -> int:
        """A number that grows with every change to the entry, and to some others."""
        return self._flushes + self._seen[_stripe(digest)]

    def keep(self, digest: bytes, version: int, keep: Callable[[], object]) -> bool:
        """``keep()``, unless the entry has changed since it had ``version``."""
        with self._lock:
            if self.version(digest) != version:
                return False
            keep()
            return True

    # -- in the thread of the push ---------------------------------------------------------------

    def connected(self) -> None:
        """See `Listener.connected`. What was read before may have changed since."""
        self._answered()
        self._view.pushed = True
        self._flush()
        self._refused = ""
        self._live = True

    def lost(self, why: str) -> None:
        """See `Listener.lost`."""
        self._live = self._view.pushed = False
        self._flush()
        self._report(why)

    def beat(self) -> None:
        """See `Listener.beat`. Now and then somebody asks all the same."""
        self._beats += 1
        if self._beats % _BEATS == 0:
            self._view.expire()

    def refused(self, why: str) -> None:
        """See `Listener.refused`."""
        if why != self._refused:
            self._refused = why
            self._report(why)

    def changed(self, news: Sequence[News]) -> None:
        """See `Listener.changed`."""
        for each in news:
            if each.cache == self._own:
                continue
            if each.digest is None:
                self._view.expire()
                continue
            if each.host != self._host:  # the processes of one host write to its folder first
                # Counted before, for who has read it from the shared tier and is about to write it
                # to the folder; and after, for who has read it from the folder.
                self._count(each.digest)
                self._drop_from_host(each.digest)
            with self._lock:
                self._count(each.digest)
                self._tiers.memory.remove(each.digest)

    def _count(self, digest: bytes) -> None:
        with self._lock:
            self._seen[_stripe(digest)] += 1

    def _drop_from_host(self, digest: bytes) -> None:
        tiers = self._tiers
        store = tiers.store
        if store is None:
            return
        try:
            if store.read(digest) is not None or store.artifact(digest) is not None:
                store.evict(digest)
        except (StoreError, OSError) as error:
            tiers.tier_failed(error, "evict", raises=False)

    def _flush(self) -> None:
        with self._lock:
            self._flushes += 1
            self._tiers.memory.clear()
        self._view.expire()

    def _report(self, why: str) -> None:
        error = StoreError(f"changes by others are noticed within seconds, not at once: {why}")
        self._tiers.tier_failed(error, "push", raises=False, tier=Tier.SHARED)


def _stripe(digest: bytes) -> int:
    return int.from_bytes(digest[:2]) % _STRIPES


def _host_of(root: os.PathLike[str]) -> bytes | None:
    """Equal in all processes that use the folder, and in no others."""
    try:
        facts = os.stat(root)
    except OSError:
        return None
    name = f"{boot_id()} {facts.st_dev} {facts.st_ino}"
    return blake3(name.encode()).hexdigest(8).encode()


_every = in_children(Near._reset)
