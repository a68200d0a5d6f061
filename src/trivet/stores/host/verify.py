"""BLAKE3 of everything that a folder holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from trivet.entries import Manifest, unseal
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreError
from trivet.stores.files import check_file
from trivet.stores.host.layout import Layout, path_of
from trivet.stores.host.records import record_size, where_is


class Verdict(NamedTuple):
    """The outcome for one entry: bytes that were read, and what is wrong (None: nothing is)."""

    digest: bytes
    size: int
    is_artifact: bool
    problem: str | None


def verdict_on(
    layout: Layout,
    digest: bytes,
    record: bytes,
    read: Callable[[bytes, bytes], bytes | memoryview | None],
) -> Verdict:
    """Check one entry. ``read`` gets its sealed bytes, by digest and record, where they lie in a
    file."""
    where = where_is(record)
    size, is_artifact = record_size(record), where is not None and where.is_artifact
    try:
        sealed = record if where is None else read(digest, record)
    except StoreError as error:
        return Verdict(digest, size, is_artifact, error.message)
    problem = _sealed_problem(digest, sealed) if sealed is not None else "its file is gone"
    if problem is None and where is not None and where.is_artifact:
        problem = _files_problem(where.sealed, path_of(layout, digest, where) / "files")
    return Verdict(digest, size, is_artifact, problem)


def _sealed_problem(digest: bytes, sealed: bytes | memoryview) -> str | None:
    """What is wrong with sealed bytes that are stored under ``digest``."""
    try:
        key = unseal(sealed, cryptographic=True).key
    except (CorruptEntry, IncompatibleEntry) as error:
        return error.message
    return None if blake3(key).digest() == digest else "the key is not the one of the digest"


def _files_problem(sealed: bytes, files: Path) -> str | None:
    """What is wrong with the files of an artifact whose sealed manifest is sound."""
    try:
        manifest = Manifest.decode(unseal(sealed).payload)
        known = {each.name for each in manifest.files}
        for name in _names(files):
            if name not in known:
                return f"the manifest does not know {name}"
        for each in manifest.files:
            check_file(files / each.name, each)
    except CorruptEntry as error:
        return error.message
    except OSError as error:
        return f"a file can't be read: {error}"
    return None


def _names(files: Path) -> Iterator[str]:
    for path in sorted(files.rglob("*")):
        if not path.is_dir():
            yield path.relative_to(files).as_posix()
