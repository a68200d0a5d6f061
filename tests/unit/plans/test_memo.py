"""The memo that is kept in a cache: what it remembers, and whose turn it is to compute."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import eventually

from trivet.cache import Cache
from trivet.events import EventKind
from trivet.plans.memo import CacheMemo
from trivet.stores.host import HostStore
from trivet.testing import FakeClock, Recorder

KEY = b"k" * 32


@pytest.fixture(params=["one cache", "two caches", "memory only"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Cache, Cache]]:
    """Two users of one memo. File locks keep two caches apart as they do two processes."""
    if request.param == "memory only":
        cache = Cache()
        yield cache, cache
        return
    first = Cache.open(tmp_path / "c", strict=True)
    second = Cache.open(tmp_path / "c", strict=True) if request.param == "two caches" else first
    with first, second:
        yield first, second


class Second(threading.Thread):
    """Takes its turn in a thread of its own, and looks up what is remembered then."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(daemon=True)
        self._memo = CacheMemo(cache)
        self.found: list[bytes | None] = []

    def run(self) -> None:
        with self._memo.turn(KEY):
            self.found.append(self._memo.get(KEY))


def waits(cache: Cache) -> bool:
    return cache.counts().get(EventKind.WAITED, 0) > 0


def test_a_value_is_remembered_and_can_be_replaced(pair: tuple[Cache, Cache]) -> None:
    first, second = (CacheMemo(each) for each in pair)
    assert first.get(KEY) is None
    first.put(KEY, b"one")
    assert second.get(KEY) == b"one"
    second.put(KEY, b"two")
    assert second.get(KEY) == b"two"


def test_who_waits_for_a_turn_finds_what_was_put(pair: tuple[Cache, Cache]) -> None:
    memo, second = CacheMemo(pair[0]), Second(pair[1])
    with memo.turn(KEY):
        second.start()
        eventually(lambda: waits(pair[1]), "the second waits")
        assert not second.found
        memo.put(KEY, b"value")
    second.join(30)
    assert second.found == [b"value"]


def test_the_error_of_one_is_not_that_of_those_who_wait(pair: tuple[Cache, Cache]) -> None:
    second = Second(pair[1])

    def fail() -> None:
        with CacheMemo(pair[0]).turn(KEY):
            second.start()
            eventually(lambda: waits(pair[1]), "the second waits")
            raise MemoryError("this process alone has none left")

    with pytest.raises(MemoryError):
        fail()
    second.join(30)
    assert second.found == [None]


def test_one_who_waited_in_vain_keeps_nobody_waiting(pair: tuple[Cache, Cache]) -> None:
    """What can't be kept would else be computed by one after the other."""
    inside, leave = threading.Event(), threading.Event()

    def second() -> None:
        with CacheMemo(pair[1]).turn(KEY):
            inside.set()
            assert leave.wait(30)

    thread = threading.Thread(target=second, daemon=True)
    with CacheMemo(pair[0]).turn(KEY):
        thread.start()
        eventually(lambda: waits(pair[1]), "the second waits")
    assert inside.wait(30)
    waited = pair[0].counts()[EventKind.WAITED] if pair[0] is pair[1] else 0
    with CacheMemo(pair[0], wait=0.1).turn(KEY):
        assert pair[0].counts().get(EventKind.WAITED, 0) == waited, "nobody holds the lease"
    leave.set()
    thread.join(30)


def test_one_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    clock = FakeClock()
    with (
        Cache.open(tmp_path / "c", strict=True) as first,
        Cache.open(tmp_path / "c", strict=True, clock=clock) as second,
        CacheMemo(first).turn(KEY),
        CacheMemo(second, wait=7.0).turn(KEY),
    ):
        assert sum(clock.slept) == pytest.approx(7.0)


def test_a_turn_within_a_turn_of_the_same_key_does_not_hang(pair: tuple[Cache, Cache]) -> None:
    memo = CacheMemo(pair[0])
    with memo.turn(KEY), memo.turn(KEY):
        memo.put(KEY, b"value")
    assert memo.get(KEY) == b"value"


def test_a_store_that_fails_costs_the_memory_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    with Cache.open(tmp_path / "c", sink=recorder) as cache:

        def fail(*_: Any, **__: Any) -> Any:
            raise OSError(28, "No space left on device")

        for name in ("read", "write"):
            monkeypatch.setattr(HostStore, name, fail)
        (tmp_path / "c/locks").rmdir()
        (tmp_path / "c/locks").write_bytes(b"in the way")
        memo = CacheMemo(cache)
        with memo.turn(KEY):
            memo.put(KEY, b"value")
        with memo.turn(KEY):
            assert memo.get(KEY) in (b"value", None)
    assert recorder.count(EventKind.TIER_FAILED) > 0
