"""Uses of entries: counted on every hit, dated by the second, written back now and then."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.store_entries import entry

from trivet.stores.host import HostStore
from trivet.stores.host.catalog import Catalog
from trivet.stores.host.touches import Touches
from trivet.testing import FakeClock


def digest(n: int) -> bytes:
    return n.to_bytes(32, "big")


def test_a_use_is_dated_when_it_was_and_not_when_the_process_woke_up_again(tmp_path: Path) -> None:
    clock = FakeClock()
    store = HostStore.open(tmp_path / "c", clock=clock)
    old, new = entry("old"), entry("new")
    store.write(*old)
    store.write(*new)
    clock.advance(60)
    store.generation()
    store.touch(old[0])
    used = clock.time()
    clock.advance(3600)
    store.generation()  # as every hit does
    store.touch(new[0])
    last = {each.digest: each.last_use for each in store.items()}
    assert last == {old[0]: used, new[0]: clock.time()}
    store.close()


def test_touches_reach_other_processes_in_batches(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c")
    used, sealed = entry("x")
    store.write(used, sealed)
    for i in range(4_200):
        store.touch(digest(i) if i else used)
    with store.folder.env.read() as txn:
        raw = txn.get(used, db=store.folder.env.uses)
    assert raw is not None
    assert int.from_bytes(raw[4:8], "little") == 2
    store.close()


def test_a_process_that_reads_many_entries_writes_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    monkeypatch.setattr(Catalog, "touch", lambda self, touches: written.append(len(list(touches))))
    clock = FakeClock()
    store = HostStore.open(tmp_path / "c", clock=clock)
    for n in range(20_000):
        store.touch(digest(n))
    assert len(written) == 1
    clock.advance(1.0)
    store.generation()
    for n in range(20_000, 25_000):
        store.touch(digest(n))
    assert len(written) == 2
    store.flush()
    assert sum(written) <= 5_000, "the rest was dropped, not kept"
    store.close()


def test_what_waited_longest_is_taken_first() -> None:
    touches = Touches(100, FakeClock().time, lambda: None)
    for n in range(10):
        touches.note(digest(n))
    touches.date()
    touches.note(digest(0))
    assert [(each, uses[0]) for each, uses in touches.take(3)] == [
        (digest(0), 2),
        (digest(1), 1),
        (digest(2), 1),
    ]
    assert len(touches) == 7
    touches.clear()
    assert touches.take(100) == []


def test_of_more_digests_than_the_limit_the_known_ones_go_on_counting() -> None:
    touches = Touches(10, FakeClock().time, lambda: None)
    for _ in range(2):
        for n in range(20):
            touches.note(digest(n))
        touches.date()
    assert len(touches) == 10
    assert {touches.of(digest(n))[0] for n in range(10)} == {2}
    assert touches.of(digest(15))[0] == 0


def test_threads_may_note_date_and_take_at_the_same_time() -> None:
    touches = Touches(1000, FakeClock().time, lambda: None)
    errors: list[BaseException] = []
    taken: list[Any] = []

    def note() -> None:
        try:
            for n in range(20_000):
                touches.note(digest(n % 700))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=note) for _ in range(4)]
    for each in threads:
        each.start()
    while any(each.is_alive() for each in threads):
        touches.date()
        taken += touches.take(50)
    assert errors == []
    total = sum(uses[0] for _, uses in taken + touches.take(1000))
    assert 0 < total <= 80_000
