"""A new index, from the files: what an index that can't be trusted is replaced by."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trivet.entries import Manifest, peek, unseal
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.stores.host.catalog import Catalog
from trivet.stores.host.disk import discard, sync_folder
from trivet.stores.host.environment import Environment
from trivet.stores.host.layout import Layout, parse_name
from trivet.stores.host.records import Pointer, Uses, read_head

_BATCH = 500


class _Found(NamedTuple):
    digest: bytes
    modified: int
    record: bytes
    uses: Uses


def replace_index(layout: Layout, map_size: int, name: str) -> int:
    """Put a new index in place; returns the number of entries in it.

    Call it with the folder's lock held. Large values and artifacts are found again by their files;
    values that were kept in the old index are lost, and so is how often entries were used.
    ``name`` is unique and begins with this process's slot.
    """
    fresh = layout.staging / f"{name}.index"
    create_index(fresh)
    env = Environment(lambda: None)
    with env.exclusive():
        env.attach(fresh, map_size, bytearray(4096), read_only=False)
    count = _fill(layout, env)
    env.sync()
    with env.exclusive():
        env.detach()
    if layout.index.exists():
        discard(layout.index, layout.trash)
    os.rename(fresh, layout.index)
    sync_folder(layout.root)
    return count


def create_index(folder: Path) -> None:
    """An empty folder for `Environment.attach`.

    The table of readers gets its disk blocks now: it is mapped, and a full disk at a later write
    to it would end the process by SIGBUS.
    """
    os.mkdir(folder, 0o700)
    descriptor = os.open(
        folder / "lock.mdb", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
    )
    try:
        os.posix_fallocate(descriptor, 0, 72 << 10)  # 64 bytes for each of `MAX_READERS`, and more
    finally:
        os.close(descriptor)


def empty_index(env: Environment, txn: Any) -> None:
    """Remove every record of an index."""
    for table in (env.entries, env.uses, env.groups, env.totals):
        txn.drop(table, delete=False)


def _fill(layout: Layout, env: Environment) -> int:
    newest: dict[bytes, _Found] = {}
    for found in _scan(layout):
        known = newest.get(found.digest)
        if known is None or known.modified < found.modified:
            newest[found.digest] = found
    members = list(newest.values())
    for at in range(0, len(members), _BATCH):
        with env.write() as txn:
            catalog = Catalog(env, txn)
            for each in members[at : at + _BATCH]:
                catalog.insert(each.digest, each.record, each.uses)
    return len(members)


def _scan(layout: Layout) -> Iterator[_Found]:
    for top, describe in ((layout.objects, _object), (layout.artifacts, _artifact)):
        for folder in top.iterdir():
            for path in folder.iterdir():
                name = parse_name(path.name)
                if name is None:
                    continue
                try:
                    yield describe(path, *name)
                except (CorruptEntry, IncompatibleEntry, FileNotFoundError, NotADirectoryError):
                    continue  # not in the index: the next collection removes it


def _object(path: Path, digest: bytes, nonce: bytes) -> _Found:
    facts = path.stat()
    head = read_head(path)
    peek(head)
    uses = Uses.of(head, facts.st_size, facts.st_mtime)
    record = Pointer(nonce, facts.st_size, b"", False).encode()
    return _Found(digest, facts.st_mtime_ns, record, uses)


def _artifact(path: Path, digest: bytes, nonce: bytes) -> _Found:
    sealed = (path / "manifest").read_bytes()
    manifest = Manifest.decode(unseal(sealed).payload)
    for each in manifest.files:
        if (path / "files" / each.name).stat().st_size != each.size:
            raise CorruptEntry(f"{each.name} is not as long as the manifest says")
    size = manifest.size + len(sealed)
    facts = path.stat()
    record = Pointer(nonce, size, sealed, True).encode()
    return _Found(digest, facts.st_mtime_ns, record, Uses.of(sealed, size, facts.st_mtime))
