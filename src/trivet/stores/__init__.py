"""Stores: tiers that keep sealed entries outside the process."""

from trivet.stores.store import FileStore, Store, StoredHead
from trivet.stores.wrappers import Guarded, ReadOnly

__all__ = ["FileStore", "Guarded", "ReadOnly", "Store", "StoredHead"]
