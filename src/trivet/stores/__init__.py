"""Stores: tiers that keep sealed entries outside the process."""

from trivet.stores.store import FileStore, Store, StoredHead

__all__ = ["FileStore", "Store", "StoredHead"]
