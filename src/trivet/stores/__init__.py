"""Stores: tiers that keep sealed entries outside the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily
from trivet.stores.store import FileStore, Store, StoredHead

if TYPE_CHECKING:
    from trivet.stores.wrappers import Guarded, ReadOnly

__getattr__ = lazily(__name__, {"Guarded": "wrappers", "ReadOnly": "wrappers"})

__all__ = ["FileStore", "Guarded", "ReadOnly", "Store", "StoredHead"]
