"""A full disk: `StoreFull`, nothing half-written left, what was there still readable."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.disks import fill, small_disk
from tests.support.store_entries import artifact_is_whole, entry, files_below, publish

from trivet.errors import StoreError, StoreFull
from trivet.stores.host import HostStore
from trivet.testing.crash import run_forked

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 4) as path:
        yield path


def write_many(store: HostStore) -> None:
    """More small values than any of the disks here holds."""
    for i in range(1000):
        store.write(*entry(f"s{i}", 20 * KIB))


@pytest.mark.needs("root")
def test_a_full_disk_refuses_new_entries_and_keeps_old_ones(disk: Path) -> None:
    root = disk / "c"
    store = HostStore.open(root)
    small, large = entry("s"), entry("l", 200 * KIB)
    store.write(*small)
    store.write(*large)
    plan, _ = publish(store, "p", {"f": 100 * KIB})
    filler = fill(disk)
    before = files_below(root)
    with pytest.raises(StoreFull) as caught:
        store.write(*entry("l2", 300 * KIB))
    assert caught.value.hint
    with pytest.raises(StoreFull):
        write_many(store)
    with pytest.raises((StoreFull, OSError)):
        publish(store, "q", {"f": 300 * KIB})
    os.unlink(filler)
    store.gc()  # the caller's own staging, which it could not fill, goes with its process
    assert {name for name in files_below(root) if not name.startswith("staging")} == before
    assert store.read(small[0]) == small[1]
    assert store.read(large[0]) == large[1]
    artifact = store.artifact(plan)
    assert artifact is not None
    assert artifact_is_whole(*artifact)
    store.write(*entry("l2", 300 * KIB))
    assert all(each.problem is None for each in store.verify())
    store.close()


@pytest.mark.needs("root")
def test_a_publish_that_finds_the_disk_full_removes_its_staging(disk: Path) -> None:
    root = disk / "c"
    store = HostStore.open(root)
    staging = store.staging()
    (staging / "f").write_bytes(b"x")
    filler = fill(disk)
    with pytest.raises(StoreFull):
        store.publish(*entry("p", 100 * KIB), staging)
    assert os.listdir(root / "staging") == []
    os.unlink(filler)
    store.write(*entry("a"))
    store.close()


@pytest.mark.needs("root")
def test_a_folder_on_a_full_disk_opens_for_reading_and_later_for_writing(disk: Path) -> None:
    root = disk / "c"
    store = HostStore.open(root)
    small = entry("s")
    store.write(*small)
    plan, _ = publish(store, "p", {"f": 100 * KIB})
    store.close()
    filler = fill(disk)
    store = HostStore.open(root)
    assert store.read_only
    assert store.read(small[0]) == small[1]
    artifact = store.artifact(plan)
    assert artifact is not None
    assert artifact_is_whole(*artifact)
    with pytest.raises(StoreError):
        store.write(*entry("more"))
    os.unlink(filler)
    store.write(*entry("more"))
    assert not store.read_only
    assert store.read(entry("more")[0]) == entry("more")[1]
    store.close()


@pytest.mark.needs("root")
def test_an_empty_folder_on_a_full_disk_is_an_error_that_says_so(disk: Path) -> None:
    (disk / "c").mkdir(mode=0o700)
    fill(disk)
    with pytest.raises(StoreFull):
        HostStore.open(disk / "c")


def test_a_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    """The same without the right to mount."""
    root = tmp_path / "c"
    HostStore.open(root).close()

    def work() -> None:
        store = HostStore.open(root)
        store.write(*entry("s"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 * KIB, 256 * KIB))
        with pytest.raises(StoreFull):
            store.write(*entry("large", MIB))
        with pytest.raises(StoreFull):
            write_many(store)
        assert store.read(entry("s")[0]) == entry("s")[1]
        assert files_below(root) == set()

    assert run_forked(work) == 0
    store = HostStore.open(root)
    assert store.read(entry("s")[0]) == entry("s")[1]
    assert all(each.problem is None for each in store.verify())
    store.write(*entry("large", MIB))
    store.close()
