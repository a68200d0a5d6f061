"""Epochs of all hosts: another one after every invalidation and after every loss of memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.servers import Valkey

from trivet.stores.shared import EpochSource, ObjectStore, ValkeyStore
from trivet.stores.shared.names import EPOCHS


@pytest.fixture(params=["folder", "s3", "valkey", "cluster"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EpochSource]:
    store: ObjectStore | ValkeyStore
    if request.param == "valkey":
        store = ValkeyStore(request.getfixturevalue("valkey"), timeout=10)
    elif request.param == "cluster":
        store = ValkeyStore(request.getfixturevalue("cluster").url, timeout=10)
    elif request.param == "s3":
        store = ObjectStore(request.getfixturevalue("s3"), timeout=30)
    else:
        store = ObjectStore(f"file://{tmp_path}/shared")
    yield store
    store.close()


def test_nothing_happens_by_itself(source: EpochSource) -> None:
    assert source.mark() == source.mark()
    assert source.epochs(["a", "b"]) == source.epochs(["a", "b"])
    assert source.epochs([]) == {}


def test_an_invalidation_changes_its_tags_and_the_mark(source: EpochSource) -> None:
    mark, before = source.mark(), source.epochs(["a", "b", "c"])
    source.raise_epochs(["a", "c"])
    after = source.epochs(["a", "b", "c"])
    assert after["b"] == before["b"]
    assert after["a"] != before["a"]
    assert after["c"] != before["c"]
    assert source.mark() != mark
    assert all(0 <= epoch < 1 << 62 for epoch in (*before.values(), *after.values()))


def test_no_epoch_comes_twice(source: EpochSource) -> None:
    seen = set()
    for _ in range(20):
        seen.add(source.epochs(["a"])["a"])
        source.raise_epochs(["a"])
    assert len(seen) == 20


def test_an_emptied_bucket_makes_every_epoch_new(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}/shared")
    mark, virgin = store.mark(), store.epochs(["a", "b"])
    store.raise_epochs(["a"])
    raised = store.epochs(["a"])
    shutil.rmtree(tmp_path / "shared" / "epochs")
    after = store.epochs(["a", "b"])
    assert after["a"] not in (virgin["a"], raised["a"])
    assert after["b"] != virgin["b"]
    assert store.mark() != mark


def test_a_flushed_valkey_makes_every_epoch_new(valkey: str) -> None:
    store = ValkeyStore(valkey, timeout=10)
    mark, virgin = store.mark(), store.epochs(["a", "b"])
    store.raise_epochs(["a"])
    store.client.flushall()
    after = store.epochs(["a", "b"])
    assert all(after[tag] != virgin[tag] for tag in "ab")
    assert store.mark() != mark


def test_a_valkey_that_went_back_in_time_makes_every_epoch_new(own_valkey: Valkey) -> None:
    store = ValkeyStore(own_valkey.url, timeout=10)
    store.raise_epochs(["a"])
    store.client.save()
    saved, mark = store.epochs(["a", "b"]), store.mark()
    store.raise_epochs(["a"])  # lost
    lost = store.epochs(["a"])
    own_valkey.kill()
    own_valkey.start()
    assert store.client.hget(EPOCHS, "tag:a") == b"1", "it did go back"
    after = store.epochs(["a", "b"])
    assert after["a"] not in (saved["a"], lost["a"])
    assert after["b"] != saved["b"]
    assert store.mark() != mark
    store.raise_epochs(["a"])
    assert store.epochs(["a"])["a"] != lost["a"], "the same count again, and yet another epoch"
