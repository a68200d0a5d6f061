"""The host store in one process: what is kept, where, and what is told about it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.store_entries import artifact_is_whole, entry, publish

from trivet.entries import unseal
from trivet.errors import StoreError, StoreFull, StoreUnavailable
from trivet.events import Event, EventKind
from trivet.stores.host import INLINE_LIMIT, HostStore, layout
from trivet.testing import FakeClock

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def store(root: Path) -> Iterator[HostStore]:
    opened = HostStore.open(root)
    yield opened
    opened.close()


@pytest.mark.parametrize("size", [0, 1, INLINE_LIMIT - 200, INLINE_LIMIT, 3 * MIB])
def test_values_survive_a_reopening(root: Path, size: int) -> None:
    digest, sealed = entry("a", size)
    first = HostStore.open(root)
    first.write(digest, sealed)
    first.close()
    second = HostStore.open(root)
    found = second.read(digest)
    second.close()
    assert found is not None
    assert bytes(found) == sealed


def test_bytes_that_look_like_a_pointer_are_kept_as_they_are(store: HostStore) -> None:
    for i, odd in enumerate((b"\0F" + bytes(40), b"\0", b"")):
        store.write(bytes([i]) * 32, odd)
        assert store.read(bytes([i]) * 32) == odd


def test_the_folder_is_private_and_tagged_as_a_cache(store: HostStore, root: Path) -> None:
    store.write(*entry("large", MIB))
    publish(store, "art", {"a": 10, "sub/b": 20})
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    tag = (root / "CACHEDIR.TAG").read_text()
    assert tag.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


def test_an_artifact_that_is_replaced_leaves_no_files(store: HostStore) -> None:
    _, first = publish(store, "plan", {"model": 1000, "sub/weights": 100_000})
    digest, second = publish(store, "plan", {"model": 2000}, version="2")
    assert not first.exists()
    found = store.artifact(digest)
    assert found is not None
    assert found[1] == second
    assert artifact_is_whole(*found)


def test_a_value_may_replace_an_artifact_and_the_other_way_round(store: HostStore) -> None:
    digest, folder = publish(store, "x", {"a": 10})
    _, sealed = entry("x", 50)
    store.write(digest, sealed)
    assert store.artifact(digest) is None
    assert store.read(digest) == sealed
    assert not folder.exists()
    publish(store, "x", {"a": 10})
    assert store.artifact(digest) is not None


def test_an_artifact_with_a_link_is_refused_and_leaves_nothing(
    store: HostStore, root: Path
) -> None:
    staging = store.staging()
    (staging / "link").symlink_to("/etc/passwd")
    digest, sealed = entry("x")
    with pytest.raises(StoreError, match="files and folders only"):
        store.publish(digest, sealed, staging)
    assert store.artifact(digest) is None
    assert os.listdir(root / "staging") == []


def test_publish_takes_only_folders_from_staging(store: HostStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="staging"):
        store.publish(*entry("x"), tmp_path)


def test_an_artifact_whose_folder_vanished_is_a_miss_and_forgotten(store: HostStore) -> None:
    digest, folder = publish(store, "x", {"a": 10})
    (folder / "a").unlink()
    folder.rmdir()
    assert store.artifact(digest) is None
    assert store.stats().entries == 0


def test_a_value_whose_file_vanished_is_a_miss_and_forgotten(store: HostStore, root: Path) -> None:
    digest, sealed = entry("x", MIB)
    store.write(digest, sealed)
    next((root / "objects").glob("*/*")).unlink()
    assert store.read(digest) is None
    assert store.stats().entries == 0


def test_a_truncated_value_is_handed_out_short_instead_of_killing_the_reader(
    store: HostStore, root: Path
) -> None:
    digest, sealed = entry("x", MIB)
    store.write(digest, sealed)
    os.truncate(next((root / "objects").glob("*/*")), 1000)
    assert store.read(digest) == sealed[:1000]


def test_a_value_larger_than_the_budget_is_refused(root: Path) -> None:
    store = HostStore.open(root, budget_bytes=MIB)
    with pytest.raises(StoreFull, match="whole budget"):
        store.write(*entry("x", 2 * MIB))
    with pytest.raises(StoreFull, match="whole budget"):
        publish(store, "y", {"a": MIB, "b": MIB})
    assert os.listdir(root / "staging") == []
    assert store.stats().entries == 0
    store.close()


def test_items_tell_size_and_use(root: Path) -> None:
    clock = FakeClock()
    store = HostStore.open(root, clock=clock)
    digest, sealed = entry("x", 500)
    store.write(digest, sealed)
    clock.sleep(100)
    store.touch(digest)
    store.touch(digest)
    for _ in range(2):  # before and after the counts are written back
        (item,) = store.items()
        assert item.digest == digest
        assert item.size == len(sealed)
        assert item.uses == 3
        assert item.last_use == clock.time()
        assert unseal(sealed).key == item.head[96 : 96 + len(unseal(sealed).key)]
        store.flush()
    store.close()


def test_stats_count_what_is_there(store: HostStore) -> None:
    small, large = entry("s", 100), entry("l", MIB)
    store.write(*small)
    store.write(*large)
    digest, _ = publish(store, "a", {"f": 1000})
    manifest = store.read(digest)
    assert manifest is not None
    expected = len(small[1]) + len(large[1]) + 1000 + len(manifest)
    assert (store.stats().entries, store.stats().size) == (3, expected)
    store.delete(large[0])
    store.write(small[0], entry("s", 10)[1])
    expected -= len(large[1]) + 90
    assert (store.stats().entries, store.stats().size) == (2, expected)
    store.clear()
    assert (store.stats().entries, store.stats().size) == (0, 0)


def test_quarantine_moves_values_and_artifacts_aside_with_a_report(
    root: Path,
) -> None:
    store = HostStore.open(root)
    small, large = entry("s", 100), entry("l", MIB)
    store.write(*small)
    store.write(*large)
    plan, _ = publish(store, "p", {"f": 1000})
    for digest in (small[0], large[0], plan):
        folder = store.quarantine(digest, "a test")
        assert folder is not None
        report = json.loads((folder / "report.json").read_text())
        assert report["digest"] == digest.hex()
        assert report["reason"] == "a test"
        assert (folder / "entry").exists()
        assert store.read(digest) is None
    assert store.quarantine(plan, "again") is None
    assert store.stats().quarantined == 3
    store.close()


def test_verify_finds_and_quarantines_what_is_damaged(store: HostStore, root: Path) -> None:
    good, bad = entry("good", MIB), entry("bad", MIB)
    store.write(*good)
    plan, folder = publish(store, "p", {"f": 1000, "g": 5})
    sound, _ = publish(store, "q", {"f": 1000})
    store.write(*bad)
    store.write(bytes(32), entry("misplaced")[1])
    (file,) = (root / "objects").glob(f"*/{bad[0].hex()}.*")
    with file.open("r+b") as raw:
        raw.seek(MIB // 2)
        raw.write(b"!")
    (folder / "f").write_bytes(b"x" * 1000)
    steps: list[tuple[int, int]] = []
    verdicts = {each.digest: each.problem for each in store.verify(lambda *at: steps.append(at))}
    assert verdicts[good[0]] is None
    assert verdicts[sound] is None
    assert "checksum" in str(verdicts[bad[0]])
    assert "f is not what was stored" in str(verdicts[plan])
    assert "key" in str(verdicts[bytes(32)])
    assert len(steps) == 5
    assert steps[-1][0] == steps[-1][1]
    assert {each.digest for each in store.scan()} == {good[0], sound}
    assert store.stats().quarantined == 3


def test_verify_finds_a_file_too_many_in_an_artifact(store: HostStore) -> None:
    _, folder = publish(store, "p", {"f": 10})
    (folder / "extra").write_bytes(b"")
    (verdict,) = store.verify()
    assert "does not know extra" in str(verdict.problem)


def test_gc_removes_expired_invalidated_and_orphaned(root: Path) -> None:
    clock = FakeClock()
    store = HostStore.open(root, clock=clock)
    now = clock.time()
    store.write(*entry("old", 10, expires=now + 10))
    store.write(*entry("tagged", MIB, tags={"release": 0}))
    keep = entry("keep", 10, tags={"other": 0}, expires=now + 1000)
    store.write(*keep)
    store.raise_epochs(["release"])
    clock.sleep(11)
    nobody = root / "objects" / "ab"
    nobody.mkdir()
    (nobody / f"{'ab' * 32}.{'00' * 8}").write_bytes(b"half a value of a dead process")
    (root / "staging" / "deadbeef.1").write_bytes(b"")
    (root / "trash" / "left").mkdir()
    report = store.gc()
    assert (report.expired, report.invalidated, report.orphans, report.staging) == (1, 1, 1, 1)
    assert [each.digest for each in store.scan()] == [keep[0]]
    assert os.listdir(root / "trash") == []
    assert store.gc().size == 0
    store.close()


def test_gc_keeps_the_newest_of_the_quarantine(store: HostStore) -> None:
    for i in range(35):
        store.write(*entry(str(i)))
        store.quarantine(entry(str(i))[0], "test")
    assert store.gc().quarantined == 3
    assert store.stats().quarantined == 32


def test_gc_spares_a_file_that_a_living_process_is_about_to_publish(
    store: HostStore, root: Path
) -> None:
    digest, sealed = entry("x", MIB)
    nonce = store.folder.nonce()
    path = store.folder.layout.object_path(digest, nonce)
    path.parent.mkdir()
    path.write_bytes(sealed)
    assert store.gc().orphans == 0
    assert path.exists()


def test_clear_forgets_entries_and_keeps_epochs(store: HostStore, root: Path) -> None:
    store.write(*entry("a", 10))
    store.write(*entry("b", MIB))
    digest, _ = publish(store, "c", {"f": 10})
    store.raise_epochs(["t"])
    before = store.generation()
    store.clear()
    assert store.generation() != before
    assert list(store.scan()) == []
    assert store.artifact(digest) is None
    assert list((root / "objects").iterdir()) == []
    assert store.epochs(["t"]) == {"t": 1}
    store.write(*entry("b", MIB))
    assert store.stats().entries == 1


def test_rebuild_finds_files_again_and_loses_small_values(root: Path) -> None:
    events: list[Event] = []
    store = HostStore.open(root, sink=events.append)
    store.write(*entry("small"))
    large = entry("large", MIB)
    store.write(*large)
    plan, _ = publish(store, "plan", {"f": 10})
    assert store.rebuild() == 2
    assert store.read(entry("small")[0]) is None
    assert store.read(large[0]) == large[1]
    artifact = store.artifact(plan)
    assert artifact is not None
    assert artifact_is_whole(*artifact)
    assert [event.kind for event in events] == [EventKind.REBUILT]
    store.close()


def test_rebuild_takes_the_newest_file_of_a_digest(store: HostStore, root: Path) -> None:
    old, new = entry("x", MIB, version="old"), entry("x", MIB, version="new")
    store.write(*new)
    (file,) = (root / "objects").glob("*/*")
    left = file.with_name(f"{old[0].hex()}.{'00' * 8}")
    left.write_bytes(old[1])
    os.utime(left, ns=(1, 1))
    store.rebuild()
    assert store.read(new[0]) == new[1]


def test_two_stores_of_one_folder_share_it_whatever_the_path(root: Path, tmp_path: Path) -> None:
    first = HostStore.open(root)
    link = tmp_path / "link"
    link.symlink_to(root)
    second = HostStore.open(link)
    digest, sealed = entry("x")
    first.write(digest, sealed)
    assert second.read(digest) == sealed
    first.close()
    assert second.read(digest) == sealed
    with pytest.raises(StoreUnavailable):
        first.read(digest)
    second.close()
    third = HostStore.open(root)
    assert third.read(digest) == sealed
    third.close()


def test_a_folder_of_a_later_format_is_refused(root: Path) -> None:
    HostStore.open(root).close()
    where = layout.Layout(root)
    facts = layout.read_format(where)
    assert facts is not None
    layout.write_format(where, msgspec.structs.replace(facts, version=layout.FORMAT + 1))
    with pytest.raises(StoreUnavailable, match="has format"):
        HostStore.open(root)


def test_a_full_index_evicts_and_goes_on(root: Path) -> None:
    store = HostStore.open(root, budget_bytes=100 * MIB, map_bytes=MIB)
    for i in range(400):
        digest, sealed = entry(str(i), 8_000)
        store.write(digest, sealed)
        assert store.read(digest) == sealed
    assert 10 < store.stats().entries < 130
    store.close()
