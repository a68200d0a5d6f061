"""Quarantine, collection and clearing of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from trivet.entries import Descriptor, peek
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.stores.host.catalog import Catalog
from trivet.stores.host.disk import (
    discard,
    make_folder,
    remove,
    storage,
    sync_folder,
    write_file,
)
from trivet.stores.host.folder import Folder
from trivet.stores.host.layout import Layout, parse_name, path_of
from trivet.stores.host.rebuild import empty_index
from trivet.stores.host.records import where_is
from trivet.stores.host.running import look, sweep_staging

KEEP_QUARANTINED = 32


class Collected(msgspec.Struct, kw_only=True):
    """What `HostStore.gc` removed, by reason; ``size`` is the bytes of dropped entries."""

    expired: int = 0
    invalidated: int = 0
    over_budget: int = 0
    orphans: int = 0
    staging: int = 0
    quarantined: int = 0
    size: int = 0


def quarantine(folder: Folder, digest: bytes, record: bytes, reason: str, now: float) -> Path:
    """Move an entry aside; returns the folder that holds it and ``report.json``."""
    layout = folder.layout
    aside = layout.quarantine / f"{digest.hex()}.{folder.nonce().hex()}"
    where = where_is(record)
    report = {
        "digest": digest.hex(),
        "reason": reason,
        "time": datetime.fromtimestamp(now, UTC).isoformat(),
        "size": where.size if where is not None else len(record),
        "artifact": where is not None and where.is_artifact,
    }
    with storage("quarantine an entry"):
        make_folder(aside)
        write_file(aside / "report.json", msgspec.json.encode(report), folder.temporary())
        if where is None:
            write_file(aside / "entry", record, folder.temporary())
        else:
            with suppress(FileNotFoundError):
                os.rename(path_of(layout, digest, where), aside / "entry")
    with folder.env.write() as txn:
        catalog = Catalog(folder.env, txn)
        if catalog.record(digest) == record:
            catalog.remove(digest)
    return aside


def count_quarantined(layout: Layout) -> int:
    """How many entries lie in quarantine."""
    with suppress(FileNotFoundError):
        return len(os.listdir(layout.quarantine))
    return 0


def clear(folder: Folder) -> None:
    """Remove all entries: a new index first, so that no pointer outlives its file for long."""
    layout = folder.layout
    with storage("clear the folder"), folder.locked():
        with folder.env.write() as txn:
            empty_index(folder.env, txn)
        for top in (layout.objects, layout.artifacts):
            for each in top.iterdir():
                discard(each, layout.trash)
            sync_folder(top)
        with folder.generation.exclusive():
            folder.generation.bump()


def sweep(folder: Folder, report: Collected) -> None:
    """Remove what no living process needs: staging, trash, orphan files, old quarantine."""
    layout = folder.layout
    with storage("collect garbage"), folder.locked():
        alive = look(layout, bury=True).alive
        report.staging += sweep_staging(layout, alive)
        for each in layout.trash.iterdir():
            remove(each)
        for path, digest, nonce in _files(layout):
            # A living process may be about to publish its file.
            if nonce[:4].hex() not in alive and not _is_used(folder, path, digest):
                discard(path, layout.trash)
                report.orphans += 1
        old = sorted(layout.quarantine.iterdir(), key=lambda each: each.stat().st_mtime_ns)
        for each in old[:-KEEP_QUARANTINED]:
            remove(each)
            report.quarantined += 1


def is_dead(head: bytes, folder: Folder, now: float) -> str | None:
    """``"expired"`` or ``"invalidated"`` for an entry that can never be a hit again, else None."""
    try:
        facts: Descriptor = peek(head)[1]
    except (CorruptEntry, IncompatibleEntry):
        return None
    if facts.is_over(now):
        return "expired"
    if facts.tags and folder.epochs.current(facts.tags) != facts.tags:
        return "invalidated"
    return None


def _files(layout: Layout) -> Iterator[tuple[Path, bytes, bytes]]:
    for top in (layout.objects, layout.artifacts):
        for folder in top.iterdir():
            for path in folder.iterdir():
                name = parse_name(path.name)
                if name is not None:
                    yield path, *name


def _is_used(folder: Folder, path: Path, digest: bytes) -> bool:
    with folder.env.read() as txn:
        record = Catalog(folder.env, txn).record(digest)
    where = where_is(record)
    return where is not None and path_of(folder.layout, digest, where) == path
