"""Bundles: the entries of a release in one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily

if TYPE_CHECKING:
    from trivet.stores.bundles.comparison import Difference, compare
    from trivet.stores.bundles.reader import Bundle, Item
    from trivet.stores.bundles.signing import (
        BadKey,
        Signature,
        SigningKey,
        Untrusted,
        fingerprint,
        make_key,
        read_writers,
        require_trusted,
    )
    from trivet.stores.bundles.writer import Source, Written, write_bundle

__getattr__ = lazily(
    __name__,
    {
        "BadKey": "signing",
        "Bundle": "reader",
        "Difference": "comparison",
        "Item": "reader",
        "Signature": "signing",
        "SigningKey": "signing",
        "Source": "writer",
        "Untrusted": "signing",
        "Written": "writer",
        "compare": "comparison",
        "fingerprint": "signing",
        "make_key": "signing",
        "read_writers": "signing",
        "require_trusted": "signing",
        "write_bundle": "writer",
    },
)

__all__ = [
    "BadKey",
    "Bundle",
    "Difference",
    "Item",
    "Signature",
    "SigningKey",
    "Source",
    "Untrusted",
    "Written",
    "compare",
    "fingerprint",
    "make_key",
    "read_writers",
    "require_trusted",
    "write_bundle",
]
