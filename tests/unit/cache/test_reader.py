"""Values read from memory by the short way: never what the long way would refuse."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import key

from trivet.cache import Cache, Hit, Lease
from trivet.codecs import Bytes, MsgPack
from trivet.events import Event, EventKind
from trivet.testing import FakeClock

LISTS: MsgPack[list[int]] = MsgPack(list[int])
ABSENT = object()


def read(cache: Cache, codec: Any = LISTS) -> Callable[[], object]:
    reader = cache.engine.reader(codec)
    return lambda: reader(key(1), ABSENT)


def commit(cache: Cache, codec: Any = LISTS, value: Any = (1, 2), **options: Any) -> None:
    lease = cache.acquire(key(1), codec, tags=options.pop("tags", ()))
    assert isinstance(lease, Lease)
    lease.commit(value, **options)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(tmp_path: Path, clock: FakeClock) -> Cache:
    return Cache.open(tmp_path / "c", clock=clock, strict=True)


def test_a_value_in_memory_is_read_and_counted_and_nothing_else_is(cache: Cache) -> None:
    value = read(cache)
    assert value() is ABSENT
    commit(cache)
    hits = cache.counts().get("hit", 0)
    first, second = value(), value()
    assert first == second == [1, 2]
    assert first is not second, "every caller has a list of its own"
    assert cache.counts()["hit"] == hits + 2
    cache._tiers.memory.clear()
    assert value() is ABSENT, "it asks memory alone"


def test_what_may_be_shared_is(cache: Cache) -> None:
    commit(cache, Bytes(), b"x" * 100)
    assert read(cache, Bytes())() is read(cache, Bytes())()
    assert read(cache)() is ABSENT, "of another codec"


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.forget(key(1)),
        lambda cache: cache.invalidate("t"),
        lambda cache: cache.invalidate("u"),  # looked at again, and found in the store
    ],
)
def test_what_another_process_does_to_the_folder_is_noticed(
    cache: Cache, tmp_path: Path, clock: FakeClock, change: Callable[[Cache], object]
) -> None:
    commit(cache, tags=("t",))
    value = read(cache)
    assert value() == [1, 2]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if value() == [1, 2]:  # a child has its parent's values
                change(cache)
                status = 0 if value() is ABSENT else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert value() is ABSENT
    with Cache.open(tmp_path / "c", clock=clock) as other:
        assert isinstance(other.get(key(1), LISTS), Hit) == isinstance(
            cache.get(key(1), LISTS), Hit
        )


def test_a_lifetime_ends(cache: Cache, clock: FakeClock) -> None:
    commit(cache, lifetime=10.0)
    value = read(cache)
    assert value() == [1, 2]
    clock.advance(9.0)
    assert value() == [1, 2]
    clock.advance(2.0)
    assert value() is ABSENT


def test_a_recorded_failure_is_no_value(cache: Cache) -> None:
    lease = cache.acquire(key(1), LISTS)
    assert isinstance(lease, Lease)
    lease.refuse(ValueError("bad"), lifetime=60.0)
    assert read(cache)() is ABSENT


def test_another_key_of_the_same_digest_is_no_hit(cache: Cache) -> None:
    commit(cache)
    value = read(cache)
    entry = cache._tiers.memory.get(key(1).digest)
    assert entry is not None
    entry.key = key(2)
    assert value() is ABSENT


def test_a_sink_is_told(tmp_path: Path) -> None:
    events: list[Event] = []
    with Cache.open(tmp_path / "c", sink=events.append) as cache:
        commit(cache)
        events.clear()
        assert read(cache)() == [1, 2]
        assert [each.kind for each in events] == [EventKind.HIT]


def test_a_folder_in_another_s_place_is_noticed(
    cache: Cache, tmp_path: Path, clock: FakeClock
) -> None:
    commit(cache)
    value = read(cache)
    (tmp_path / "c").rename(tmp_path / "away")
    with Cache.open(tmp_path / "c") as other:
        other.invalidate("something")
    clock.advance(2.0)
    assert value() is ABSENT
