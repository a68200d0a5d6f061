"""What the host store drops when its budget, or a group's, is reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.store_entries import entry, files_below, publish

from trivet.events import Event, EventKind
from trivet.stores.host import HostStore
from trivet.stores.host.records import Uses, worth
from trivet.testing import FakeClock

KIB = 1 << 10
MIB = 1 << 20


def test_worth_orders_by_use_cost_size_and_age() -> None:
    base = Uses(2, 1000.0, 1000, 1.0, "")
    now = 1000.0
    assert worth(base._replace(frequency=3), now) > worth(base, now)
    assert worth(base._replace(cost=2.0), now) > worth(base, now)
    assert worth(base._replace(size=2000), now) < worth(base, now)
    assert worth(base, now + 3600) == pytest.approx(worth(base, now) / 2)
    assert worth(base._replace(last=now + 999), now) == worth(base, now), "a clock that jumped back"


@pytest.mark.parametrize("size", [1 * KIB, 60 * KIB])
def test_the_budget_is_kept_for_small_and_large_values(tmp_path: Path, size: int) -> None:
    budget = 200 * size
    events: list[Event] = []
    store = HostStore.open(tmp_path / "c", budget_bytes=budget, sink=events.append)
    for i in range(500):
        store.write(*entry(str(i), size))
        assert store.stats().size <= budget
    stats = store.stats()
    assert stats.size > budget * 0.9, "evicting more than a little"
    assert len([each for each in events if each.kind is EventKind.EVICTED]) == 500 - stats.entries
    files = {name for name in files_below(tmp_path / "c") if name.startswith("objects")}
    assert len(files) == (stats.entries if size > 32 * KIB else 0)
    store.close()


def test_what_is_cheap_to_compute_goes_first(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c", budget_bytes=400 * KIB)
    for i in range(100):
        store.write(*entry(f"dear{i}", KIB, cost=100.0))
    for i in range(2_000):
        store.write(*entry(f"cheap{i}", KIB, cost=0.01))
    kept = sum(store.read(entry(f"dear{i}")[0]) is not None for i in range(100))
    assert kept >= 98
    store.close()


def test_what_is_used_stays(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c", budget_bytes=400 * KIB)
    for i in range(50):
        store.write(*entry(f"hot{i}", KIB))
    for i in range(1_500):
        store.write(*entry(f"once{i}", KIB))
        store.touch(entry(f"hot{i % 50}")[0])
    kept = sum(store.read(entry(f"hot{i}")[0]) is not None for i in range(50))
    assert kept >= 48
    store.close()


def test_what_was_popular_long_ago_goes(tmp_path: Path) -> None:
    clock = FakeClock()
    store = HostStore.open(tmp_path / "c", budget_bytes=100 * KIB, clock=clock)
    old = entry("old", KIB)[0]
    store.write(*entry("old", KIB))
    for _ in range(100):
        store.touch(old)
    clock.sleep(30 * 24 * 3600)
    for i in range(300):
        store.write(*entry(str(i), KIB))
    assert store.read(old) is None
    store.close()


def test_a_large_artifact_makes_room_for_itself_and_stays(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c", budget_bytes=2 * MIB)
    for i in range(900):
        store.write(*entry(str(i), KIB))
    digest, _ = publish(store, "plan", {"f": 1900 * KIB})
    assert store.artifact(digest) is not None
    assert store.stats().size <= 2 * MIB
    store.close()


def test_one_more_artifact_drops_one_not_all(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c", budget_bytes=1100 * KIB)
    for i in range(11):
        publish(store, str(i), {"f": 100 * KIB - 1 * KIB})
    assert store.stats().entries >= 10
    store.close()


def test_a_replaced_entry_counts_once(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c", budget_bytes=MIB)
    for i in range(50):
        store.write(*entry("same", 300 * KIB, version=str(i)))
    assert store.stats().entries == 1
    assert len(files_below(tmp_path / "c")) == 1
    store.close()


def test_a_group_evicts_its_own_least_recently_used(tmp_path: Path) -> None:
    clock = FakeClock()
    store = HostStore.open(tmp_path / "c", group_entries=3, clock=clock)
    for i in range(5):
        store.write(*entry(f"calm{i}", 10, group=f"m/{i}"))
    for i in range(3):
        clock.sleep(1)
        store.write(*entry(f"wild{i}", 10, group="m/wild"))
    clock.sleep(1)
    store.touch(entry("wild0")[0])
    store.write(*entry("wild3", 10, group="m/wild"))
    alive = {i for i in range(4) if store.read(entry(f"wild{i}")[0]) is not None}
    assert alive == {0, 2, 3}, "number 1 was used least recently"
    assert all(store.read(entry(f"calm{i}")[0]) is not None for i in range(5))
    store.close()


def test_a_group_is_held_to_its_bytes(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c", group_bytes=250 * KIB)
    publish(store, "other", {"f": 240 * KIB}, group="calm")
    for i in range(4):
        publish(store, str(i), {"f": 100 * KIB}, group="wild")
    assert [store.artifact(entry(str(i))[0]) is not None for i in range(4)] == [0, 0, 1, 1]
    assert store.artifact(entry("other")[0]) is not None
    store.close()


def test_gc_takes_the_store_under_a_smaller_budget(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c")
    for i in range(300):
        store.write(*entry(str(i), KIB))
    store.close()
    store = HostStore.open(tmp_path / "c", budget_bytes=100 * KIB)
    report = store.gc()
    assert report.over_budget > 200
    assert store.stats().size <= 100 * KIB
    store.close()


def test_damaged_totals_are_counted_anew(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c")
    for i in range(10):
        store.write(*entry(str(i), KIB, group="g"))
    before = store.stats()
    with store.folder.env.write() as txn:
        for key in list(txn.cursor(store.folder.env.totals).iternext(values=False)):
            txn.put(key, b"\xff" * 32, db=store.folder.env.totals)
    assert store.stats() == before
    store.write(*entry("x", KIB, group="g"))
    store.delete(entry("x")[0])
    assert (store.stats().entries, store.stats().size) == (before.entries, before.size)
    store.close()
