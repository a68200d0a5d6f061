"""The stores that ship, against the public contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trivet.stores import FileStore, Store
from trivet.stores.host import HostStore
from trivet.testing import FaultyStore, FileStoreContract, MemoryStore, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestFaultyStoreWithoutFaults(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return FaultyStore(MemoryStore(), rate=0.0)


class TestHostStore(FileStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FileStore]:
        store = HostStore.open(tmp_path / "cache", budget_bytes=1 << 28)
        yield store
        store.close()
