"""The stores of the shared tier keep the contract of all stores, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.servers import ValkeyCluster

from trivet.stores import Store
from trivet.stores.shared import ObjectStore, ValkeyStore
from trivet.testing import StoreContract


class TestObjectsInAFolder(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = ObjectStore(f"file://{tmp_path}/shared")
        yield store
        store.close()


class TestObjectsInMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = ObjectStore("memory:///")
        yield store
        store.close()


class TestObjectsInS3(StoreContract):
    @pytest.fixture
    def store(self, s3: str) -> Iterator[Store]:
        store = ObjectStore(s3, timeout=30)
        yield store
        store.close()


class TestCluster(StoreContract):
    @pytest.fixture
    def store(self, cluster: ValkeyCluster) -> Iterator[Store]:
        store = ValkeyStore(cluster.url, timeout=10)
        yield store
        store.close()


class TestValkeyOnAUnixSocket(StoreContract):
    @pytest.fixture
    def store(self, socket_url: str) -> Iterator[Store]:
        store = ValkeyStore(socket_url, timeout=10)
        yield store
        store.close()


class TestValkey(StoreContract):
    @pytest.fixture
    def store(self, valkey: str) -> Iterator[Store]:
        store = ValkeyStore(valkey, timeout=10)
        yield store
        store.close()
