"""The tiers that `Cache.open` is asked for, as far as they can be used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trivet import log
from trivet.cache.place import user_folder
from trivet.clock import Clock
from trivet.errors import StoreError
from trivet.events import Sink, Tier
from trivet.stores.host import HostStore

if TYPE_CHECKING:
    from trivet.cache.shared import Shared
    from trivet.stores.layers import Layer


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What could be opened. ``troubles`` says of which tier something could not, and why."""

    store: HostStore | None
    layers: Sequence[Layer]
    shared: Shared | None
    troubles: Sequence[tuple[Tier, str]]


def open_tiers(
    folder: str | Path | None,
    layers: str | Path | Sequence[str | Path],
    shared: str | Sequence[str] | None,
    *,
    disk_bytes: int,
    group_entries: int | None,
    strict: bool,
    sink: Sink | None,
    clock: Clock,
) -> Opened:
    """As `Cache.open` says; with ``strict``, a tier that can't be used raises."""
    tier: Shared | None = None
    if shared is not None:
        from trivet.cache.shared import Shared

        tier = Shared.open(shared, clock=clock)
    troubles: list[tuple[Tier, str]] = []
    path = Path(folder) if folder is not None else None
    store: HostStore | None = None
    try:
        path = path or user_folder()
        store = HostStore.open(
            path, budget_bytes=disk_bytes, group_entries=group_entries, clock=clock, sink=sink
        )
    except (StoreError, OSError) as error:
        if strict:
            raise
        trouble = str(error)  # the error itself would keep what it was raised from open
        troubles.append((Tier.HOST, trouble))
        log.warning("working without the cache folder %s: %s", path or "of this user", trouble)
    opened: list[Layer] = []
    if layers:
        from trivet.stores.layers import open_layers

        folders = [layers] if isinstance(layers, str | Path) else layers
        opened, unusable = open_layers(folders, strict=strict)
        troubles += [(Tier.LAYER, each) for each in unusable]
    return Opened(store=store, layers=opened, shared=tier, troubles=troubles)
