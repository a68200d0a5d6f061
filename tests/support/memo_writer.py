"""A process that keeps values of a memo until it is killed, and how to tell that they are right."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from trivet import Cache
from trivet.values import memo


def size_of(n: int) -> int:
    """Repetitions: of what lies in the index, and of what lies in files."""
    return (10, 1000, 20_000)[n % 3]


def expected(n: int) -> tuple[str, bytes]:
    """What the memo keeps for ``n``."""
    data = (b"%d," % n) * size_of(n)
    return hashlib.sha256(data).hexdigest(), data


def content_memo(cache: Cache) -> Any:
    """The memo."""

    @memo(cache, version="1")
    def content(n: int) -> tuple[str, bytes]:
        return expected(n)

    return content


def main() -> None:
    """``FOLDER FIRST``: keep what begins with ``FIRST``, and forget some of it."""
    content = content_memo(Cache.open(sys.argv[1], group_entries=None))
    print("ready", flush=True)
    for n in range(int(sys.argv[2]), 10**9):
        assert content(n) == expected(n)
        if n % 5 == 0:
            content.forget(n - 3)
