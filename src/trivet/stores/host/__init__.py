"""The host store: all processes of one machine share a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily
from trivet.stores.host.records import INLINE_LIMIT
from trivet.stores.host.safety import network_filesystem
from trivet.stores.host.store import HostStore

if TYPE_CHECKING:
    from trivet.stores.host.contents import HostStats, StoredItem
    from trivet.stores.host.upkeep import Collected
    from trivet.stores.host.verify import Verdict

__getattr__ = lazily(
    __name__,
    {
        "Collected": "upkeep",
        "HostStats": "contents",
        "StoredItem": "contents",
        "Verdict": "verify",
    },
)

__all__ = [
    "INLINE_LIMIT",
    "Collected",
    "HostStats",
    "HostStore",
    "StoredItem",
    "Verdict",
    "network_filesystem",
]
