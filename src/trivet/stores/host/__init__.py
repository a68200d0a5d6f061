"""The host store: all processes of one machine share a folder."""

from trivet.stores.host.records import INLINE_LIMIT
from trivet.stores.host.safety import network_filesystem
from trivet.stores.host.store import HostStats, HostStore, StoredItem
from trivet.stores.host.upkeep import Collected
from trivet.stores.host.verify import Verdict

__all__ = [
    "INLINE_LIMIT",
    "Collected",
    "HostStats",
    "HostStore",
    "StoredItem",
    "Verdict",
    "network_filesystem",
]
