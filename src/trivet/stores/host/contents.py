"""Looking around in a folder: its entries one by one, and figures of it. No hit needs this."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from trivet.entries import HEAD_SIZE, head_length
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.stores.host.catalog import Catalog
from trivet.stores.host.environment import Environment
from trivet.stores.host.folder import Folder
from trivet.stores.host.layout import Layout, path_of
from trivet.stores.host.records import Uses, read_head, record_size, where_is
from trivet.stores.host.touches import Touches
from trivet.stores.host.upkeep import count_quarantined

_BATCH = 256


class StoredItem(msgspec.Struct, frozen=True):
    """One entry as the store knows it: bytes in all, uses, seconds since the epoch of the last."""

    digest: bytes
    head: bytes
    size: int
    uses: int
    last_use: float
    is_artifact: bool


class HostStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a store: bytes of entries, of the index's file, and of its address space."""

    root: str
    read_only: bool
    entries: int
    size: int
    budget: int
    index_size: int
    map_size: int
    readers: int
    quarantined: int


def records(env: Environment) -> Iterator[tuple[bytes, bytes]]:
    """Digest and record of all entries, read in short transactions."""
    after = None
    while True:
        with env.read() as txn:
            batch = Catalog(env, txn).records(after, _BATCH)
        if not batch:
            return
        yield from batch
        after = batch[-1][0]


def head_of(layout: Layout, digest: bytes, record: bytes) -> bytes | None:
    """The first bytes of an entry, as `StoredHead` has them; None when its file can't be read."""
    where = where_is(record)
    if where is not None and not where.is_artifact:
        try:
            return read_head(path_of(layout, digest, where))
        except (OSError, CorruptEntry, IncompatibleEntry):
            return None
    sealed = where.sealed if where is not None else record
    with suppress(CorruptEntry, IncompatibleEntry):
        if len(sealed) >= HEAD_SIZE:
            return sealed[: head_length(sealed)]
    return sealed


def item(folder: Folder, touches: Touches, digest: bytes, record: bytes, head: bytes) -> StoredItem:
    """All that is known about one entry, uses that are not yet written back included."""
    with folder.env.read() as txn:
        uses = Catalog(folder.env, txn).uses(digest) or Uses(0, 0.0, 0, 0.0, "")
    extra, last = touches.of(digest)
    where = where_is(record)
    return StoredItem(
        digest,
        head,
        record_size(record),
        uses.frequency + extra,
        max(uses.last, last),
        where is not None and where.is_artifact,
    )


def stats(folder: Folder, budget: int) -> HostStats:
    """Figures of a folder that may hold ``budget`` bytes."""
    info = folder.env.info()
    with folder.env.read() as txn:
        totals = Catalog(folder.env, txn).totals()
    return HostStats(
        root=str(folder.layout.root),
        read_only=folder.read_only,
        entries=totals.entries,
        size=totals.size,
        budget=budget,
        index_size=info["used"],
        map_size=info["map_size"],
        readers=info["readers"],
        quarantined=count_quarantined(folder.layout),
    )
