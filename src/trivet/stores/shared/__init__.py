"""What all hosts share: an object store for files and entries, Valkey for values and leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily
from trivet.stores.shared.faces import EpochSource

if TYPE_CHECKING:
    from trivet.stores.shared.leases import HostLease, Leases
    from trivet.stores.shared.objects import ObjectStore
    from trivet.stores.shared.pieces import Pieces
    from trivet.stores.shared.push import Push
    from trivet.stores.shared.valkey import ValkeyStore

__getattr__ = lazily(
    __name__,
    {
        "HostLease": "leases",
        "Leases": "leases",
        "ObjectStore": "objects",
        "Pieces": "pieces",
        "Push": "push",
        "ValkeyStore": "valkey",
    },
)

__all__ = ["EpochSource", "HostLease", "Leases", "ObjectStore", "Pieces", "Push", "ValkeyStore"]
