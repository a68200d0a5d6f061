"""The stores that ship, against the public contract."""

from __future__ import annotations

import pytest

from trivet.stores import Store
from trivet.testing import FaultyStore, MemoryStore, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestFaultyStoreWithoutFaults(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return FaultyStore(MemoryStore(), rate=0.0)
