"""Entries beyond their lifetime, and leases that replace what is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.engine import key

from trivet.aio import AsyncCache
from trivet.cache import Cache, Hit, Lease, Miss
from trivet.codecs import Bytes
from trivet.entries import Descriptor
from trivet.events import EventKind, MissReason, Tier
from trivet.testing import FakeClock, Recorder

BYTES = Bytes()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def events() -> Recorder:
    return Recorder()


@pytest.fixture
def cache(tmp_path: Path, clock: FakeClock, events: Recorder) -> Iterator[Cache]:
    with Cache.open(tmp_path / "c", clock=clock, sink=events, strict=True) as cache:
        yield cache


def keep(cache: Cache, value: bytes = b"old", **terms: Any) -> Descriptor:
    lease = cache.acquire(key(1), BYTES, tags=("t",))
    assert isinstance(lease, Lease)
    lease.commit(value, **{"lifetime": 10.0, "stale": 5.0, **terms})
    found = cache.get(key(1), BYTES)
    assert isinstance(found, Hit)
    return found.descriptor


def stale(cache: Cache, seconds: float = 5.0) -> Hit[bytes] | None:
    return cache.engine.look_stale(key(1), BYTES, seconds)


def replace(cache: Cache, old: Descriptor, **more: Any) -> Any:
    return cache.acquire(key(1), BYTES, tags=("t",), wait=0.0, replacing=old, **more)


# -- stale -------------------------------------------------------------------------------------


@pytest.mark.parametrize("from_memory", [True, False])
def test_beyond_its_lifetime_an_entry_answers_only_who_accepts_that(
    cache: Cache, clock: FakeClock, events: Recorder, from_memory: bool
) -> None:
    keep(cache)
    fresh = stale(cache)
    assert fresh is not None
    assert not fresh.stale
    clock.advance(10.0)
    if not from_memory:
        cache._tiers.memory.clear()
    events.take()
    found = stale(cache)
    assert found is not None
    assert (found.value, found.stale, found.tier) == (b"old", True, Tier.HOST)
    assert events.kinds() == [EventKind.STALE]
    assert cache.get(key(1), BYTES) == Miss(MissReason.EXPIRED)
    assert cache.engine.look_live(key(1), BYTES) is None
    assert stale(cache) is not None, "who doesn't accept it takes it from nobody"
    clock.advance(5.0)
    assert stale(cache) is None


def test_the_lesser_of_what_the_entry_allows_and_the_reader_accepts_holds(
    cache: Cache, clock: FakeClock
) -> None:
    keep(cache)
    clock.advance(13.0)
    assert stale(cache, 2.0) is None
    assert stale(cache, 60.0) is not None
    clock.advance(3.0)
    assert stale(cache, 60.0) is None


def test_memory_alone_answers_without_input_or_output(cache: Cache, clock: FakeClock) -> None:
    keep(cache)
    clock.advance(12.0)
    found = cache.engine.look_stale(key(1), BYTES, 5.0, live=True)
    assert found is not None
    assert found.tier is Tier.MEMORY
    cache._tiers.memory.clear()
    assert cache.engine.look_stale(key(1), BYTES, 5.0, live=True) is None
    with Cache(clock=clock) as alone:
        keep(alone)
        clock.advance(12.0)
        assert stale(alone) is not None


def test_an_entry_that_is_over_leaves_the_memory(cache: Cache, clock: FakeClock) -> None:
    keep(cache)
    clock.advance(12.0)
    cache.get(key(1), BYTES)
    assert cache._tiers.memory.stats().entries == 1
    clock.advance(3.0)
    cache.get(key(1), BYTES)
    assert cache._tiers.memory.stats().entries == 0


def test_what_is_invalidated_is_never_served_stale(cache: Cache, clock: FakeClock) -> None:
    keep(cache)
    clock.advance(12.0)
    cache.invalidate("t")
    assert stale(cache) is None
    assert cache.engine.look_stale(key(1), BYTES, 5.0, live=True) is None


def test_a_clock_that_was_set_back_makes_nothing_stale(cache: Cache, clock: FakeClock) -> None:
    keep(cache)
    clock.jump(-3600.0)
    assert stale(cache) is None


def test_garbage_is_what_nobody_accepts_any_more(cache: Cache, clock: FakeClock) -> None:
    keep(cache)
    assert cache.store is not None
    clock.advance(12.0)
    assert cache.store.gc().expired == 0
    clock.advance(3.0)
    assert cache.store.gc().expired == 1


def test_a_descriptor_without_it_is_what_it_was() -> None:
    plain = Descriptor(codec="bytes/1", created=1.0, expires=2.0)
    assert b"stale" not in plain.encode()
    assert Descriptor.decode(msgspec.structs.replace(plain, stale=3.0).encode()).stale == 3.0
    assert not Descriptor(codec="bytes/1", created=1.0, stale=3.0).is_over(1e18)


def test_a_recorded_failure_is_newer_than_a_stale_live_copy(
    cache: Cache, tmp_path: Path, clock: FakeClock
) -> None:
    keep(cache)
    clock.advance(12.0)
    with Cache.open(tmp_path / "c", clock=clock) as other:
        lease = other.acquire(key(1), BYTES)
        assert isinstance(lease, Lease)
        lease.refuse(ValueError("no"), lifetime=60.0)
    assert stale(cache) is None


# -- replacing ---------------------------------------------------------------------------------


def test_a_valid_entry_is_replaced_under_a_lease_and_answers_until_then(
    cache: Cache, clock: FakeClock
) -> None:
    old = keep(cache)
    clock.advance(1.0)
    lease = replace(cache, old)
    assert isinstance(lease, Lease)
    assert lease.reason is MissReason.EXPIRED
    found = cache.get(key(1), BYTES)
    assert isinstance(found, Hit)
    assert found.value == b"old"
    lease.commit(b"new", lifetime=10.0)
    for _ in range(2):
        found = cache.get(key(1), BYTES)
        assert isinstance(found, Hit)
        assert found.value == b"new"
        cache._tiers.memory.clear()


def test_one_replaces_and_the_others_do_not_wait(cache: Cache, clock: FakeClock) -> None:
    old = keep(cache)
    clock.advance(1.0)
    leases = [replace(cache, old) for _ in range(3)]
    reasons = [each.reason for each in leases]
    assert reasons == [MissReason.EXPIRED, MissReason.WAIT_TIMEOUT, MissReason.WAIT_TIMEOUT]
    assert clock.slept == []


def test_who_comes_after_the_commit_gets_the_new_value(
    cache: Cache, tmp_path: Path, clock: FakeClock
) -> None:
    old = keep(cache)
    clock.advance(1.0)
    with Cache.open(tmp_path / "c", clock=clock) as other:
        lease = replace(other, old)
        assert isinstance(replace(cache, old), Lease), "locked by the other"
        lease.commit(b"new", lifetime=10.0)
        found = replace(cache, old)
        assert isinstance(found, Hit)
        assert (found.value, found.tier) == (b"new", Tier.HOST)
        live = cache.engine.look_live(key(1), BYTES)
        assert isinstance(live, Hit)
        assert live.value == b"new"


def test_without_a_folder_too(clock: FakeClock) -> None:
    with Cache(clock=clock) as cache:
        old = keep(cache)
        clock.advance(1.0)
        lease = replace(cache, old)
        assert isinstance(lease, Lease)
        lease.commit(b"new", lifetime=10.0)
        found = replace(cache, old)
        assert isinstance(found, Hit)
        assert found.value == b"new"


def test_a_lease_that_is_abandoned_leaves_the_old_entry(cache: Cache, clock: FakeClock) -> None:
    old = keep(cache)
    clock.advance(12.0)
    replace(cache, old).abandon(ValueError("no"))
    assert stale(cache) is not None
    assert isinstance(replace(cache, old), Lease)


def test_invalidating_while_it_is_replaced_drops_the_new_value_too(
    cache: Cache, clock: FakeClock, events: Recorder
) -> None:
    old = keep(cache)
    clock.advance(12.0)
    lease = replace(cache, old)
    cache.invalidate("t")
    assert lease.commit(b"new", lifetime=10.0) == b"new"
    assert events.count(EventKind.DROPPED) == 1
    assert stale(cache) is None
    assert isinstance(cache.get(key(1), BYTES), Miss)


def test_whoever_misses_meanwhile_waits_for_the_same_lease(cache: Cache, clock: FakeClock) -> None:
    old = keep(cache)
    clock.advance(20.0)

    async def main() -> object:
        lease = replace(cache, old)
        asking = asyncio.create_task(AsyncCache(cache).acquire(key(1), BYTES))
        while not cache.counts().get(EventKind.WAITED):
            await asyncio.sleep(0)
        lease.commit(b"new", lifetime=10.0)
        found = await asking
        assert isinstance(found, Hit)
        return found.value

    assert asyncio.run(main()) == b"new"


def test_tasks_replace_as_threads_do(cache: Cache, clock: FakeClock) -> None:
    old = keep(cache)
    clock.advance(1.0)

    async def main() -> None:
        face = AsyncCache(cache)
        lease, other = [
            await face.acquire(key(1), BYTES, wait=0.0, replacing=old) for _ in range(2)
        ]
        assert isinstance(lease, Lease)
        assert isinstance(other, Lease)
        assert other.reason is MissReason.WAIT_TIMEOUT
        lease.commit(b"new", lifetime=10.0)
        found = await face.acquire(key(1), BYTES, replacing=old)
        assert isinstance(found, Hit)
        assert found.value == b"new"

    asyncio.run(main())
