"""What things are called in Valkey.

A Cluster keeps names together that have the same text in braces; of an entry that is the first four
hexadecimal digits of its digest, so its lease and its news are where it is. The number of the last
lease is kept for all entries with the same four.
"""

from __future__ import annotations

from typing import NamedTuple

ENTRY = b"trivet:entry:"
NEWS = b"trivet:news:"
EPOCHS = b"trivet:{epochs}"
_TAG = 4


class News(NamedTuple):
    """What a name of news says. ``digest`` is None where epochs were raised."""

    digest: bytes | None
    host: bytes
    cache: bytes


def entry_name(digest: bytes) -> bytes:
    """Under which a sealed entry is kept."""
    return ENTRY + _braced(digest)


def digest_of(name: bytes) -> bytes | None:
    """The digest in an `entry_name`; None for another name."""
    return _digest(name[len(ENTRY) :])


def lease_name(digest: bytes) -> bytes:
    """Under which the lease on ``digest`` is kept."""
    return b"trivet:lease:" + _braced(digest)


def last_lease_name(digest: bytes) -> bytes:
    """Under which the number of the last lease on ``digest``, and others, is kept."""
    return b"trivet:last-lease:{%s}" % digest.hex().encode()[:_TAG]


def news_name(digest: bytes | None, writer: bytes) -> bytes:
    """That changes when ``writer`` changes the entry, or epochs."""
    return NEWS + (b"{epochs}" if digest is None else _braced(digest)) + b":" + writer


def parse_news(name: bytes) -> News | None:
    """What a name says; None where it isn't understood."""
    subject, _, writer = name[len(NEWS) :].partition(b":")
    host, dot, cache = writer.partition(b".")
    if not name.startswith(NEWS) or not dot:
        return None
    if subject == b"{epochs}":
        return News(None, host, cache)
    digest = _digest(subject)
    return None if digest is None else News(digest, host, cache)


def _braced(digest: bytes) -> bytes:
    text = digest.hex().encode()
    return b"{%s}%s" % (text[:_TAG], text[_TAG:])


def _digest(braced: bytes) -> bytes | None:
    try:
        return bytes.fromhex((braced[1 : 1 + _TAG] + braced[2 + _TAG :]).decode("ascii"))
    except ValueError:
        return None
