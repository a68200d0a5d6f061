"""Is an index sound? Looked at from outside, before LMDB maps it."""

from __future__ import annotations

import struct
from pathlib import Path

_PAGE_SIZES = frozenset(1 << bits for bits in range(9, 16))
_MAGIC = 0xBEEFC0DE
_HEAD = 16  # of a page
_LAST_PAGE = 120  # offset of the last used page's number in a meta record
_META_SIZE = 136


def truncation(data: Path) -> str | None:
    """What is wrong with the two meta pages or the length of ``data.mdb``; None if nothing is.

    LMDB maps the file: a file shorter than its meta pages claim would end the process by SIGBUS.
    Costs two small reads.
    """
    with data.open("rb") as file:
        first = file.read(_HEAD + _META_SIZE)
        if len(first) < _HEAD + _META_SIZE:
            return "the file ends inside its first page"
        page = int.from_bytes(first[_HEAD + 24 : _HEAD + 28], "little")
        if page not in _PAGE_SIZES:
            return f"the page size {page} is impossible"
        file.seek(page)
        second = file.read(_HEAD + _META_SIZE)
        # Last: a process that writes meanwhile makes the file longer before it says so.
        length = file.seek(0, 2)
    for raw in (first, second):
        if len(raw) < _HEAD + _META_SIZE:
            return "the file ends inside its second page"
        magic, version = struct.unpack_from("<II", raw, _HEAD)
        if magic != _MAGIC or version != 1:
            return "a meta page does not begin as one"
        if int.from_bytes(raw[_HEAD + 24 : _HEAD + 28], "little") != page:
            return "the meta pages disagree about the page size"
        last = int.from_bytes(raw[_HEAD + _LAST_PAGE :][:8], "little")
        if (last + 1) * page > length:
            return f"the file has {length} bytes, its meta page claims {(last + 1) * page}"
    return None


def damage(index: Path) -> str | None:
    """What is wrong with the structure of an index that nobody writes to; None if nothing is.

    Walks every page without LMDB: seconds for an index of a gigabyte.
    """
    from lmdb import verify as structure  # needed after a crash only

    try:
        problems: list[str] = structure.verify(str(index), True)  # type: ignore[no-untyped-call]
    except (structure.VerifyError, OSError) as error:
        return str(error)
    return problems[0] if problems else None
