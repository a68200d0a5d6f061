"""Leases: one ending each, epochs, and what happens to those who wait."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import eventually, key

from trivet.aio import AsyncCache
from trivet.cache import Cache, Failed, Hit, Lease, Miss
from trivet.codecs import Bytes, MsgPack
from trivet.errors import LeaseLost, StoreFull
from trivet.events import Event, EventKind, MissReason
from trivet.flight import Flights

BYTES = Bytes()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def cache(tmp_path: Path, events: list[Event]) -> Cache:
    return Cache.open(tmp_path / "c", sink=events.append)


def lease_on(cache: Cache, n: object = 1, tags: tuple[str, ...] = ()) -> Lease[bytes]:
    lease = cache.acquire(key(n), BYTES, tags=tags)
    assert isinstance(lease, Lease)
    return lease


def kinds(events: list[Event]) -> list[EventKind]:
    return [each.kind for each in events]


def test_a_lease_says_why_it_was_given(cache: Cache) -> None:
    assert lease_on(cache).reason is MissReason.ABSENT


def test_a_lease_ends_once(cache: Cache) -> None:
    lease = lease_on(cache)
    lease.commit(b"x")
    for end in (
        lambda: lease.commit(b"y"),
        lambda: lease.drop(b"y", "why"),
        lambda: lease.refuse(ValueError(), lifetime=1.0),
    ):
        with pytest.raises(LeaseLost):
            end()
    lease.abandon()
    found = cache.get(key(1), BYTES)
    assert isinstance(found, Hit)
    assert found.value == b"x"


@pytest.mark.parametrize("why", ["the input changed", ""])
def test_drop_hands_out_without_storing(cache: Cache, events: list[Event], why: str) -> None:
    assert lease_on(cache).drop(b"x", why) == b"x"
    assert isinstance(cache.get(key(1), BYTES), Miss)
    (dropped,) = [each for each in events if each.kind is EventKind.DROPPED]
    assert dropped.detail == why


def test_a_block_that_ends_without_a_result_abandons(cache: Cache, events: list[Event]) -> None:
    with pytest.raises(ZeroDivisionError), lease_on(cache):
        raise ZeroDivisionError
    assert EventKind.ABANDONED in kinds(events)
    lease_on(cache).commit(b"x")


def test_a_forgotten_lease_is_abandoned_when_it_is_collected(cache: Cache) -> None:
    lease_on(cache)
    gc.collect()
    lease_on(cache).commit(b"x")


def test_a_value_without_a_byte_form_is_the_leaders_error_and_frees_the_key(cache: Cache) -> None:
    with pytest.raises(TypeError):
        cache.get_or_compute(key(1), object, MsgPack(object))
    assert cache.get_or_compute(key(1), lambda: 3, MsgPack(object)) == 3


@pytest.mark.parametrize("when", ["at acquire", "at commit"])
def test_invalidated_while_computing_is_handed_out_and_not_stored(
    cache: Cache, events: list[Event], when: str
) -> None:
    lease = lease_on(cache, tags=("model=7",) if when == "at acquire" else ())
    cache.invalidate("model=7")
    assert lease.commit(b"old", tags=("model=7",)) == b"old"
    assert EventKind.DROPPED in kinds(events)
    assert isinstance(cache.get(key(1), BYTES), Miss)


def test_who_asks_after_the_invalidation_does_not_get_what_was_begun_before(cache: Cache) -> None:
    lease = lease_on(cache, tags=("model=7",))
    cache.invalidate("model=7")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cache.get_or_compute, key(1), lambda: b"new", BYTES)
        eventually(lambda: EventKind.WAITED in cache.counts(), "the other waits")
        assert lease.commit(b"old") == b"old"
        assert asked.result(30) == b"new"


@pytest.mark.parametrize("when", ["at acquire", "at commit"])
def test_without_a_folder_an_invalidation_while_computing_counts_too(when: str) -> None:
    with Cache() as cache:
        lease = lease_on(cache, tags=("model=7",) if when == "at acquire" else ())
        cache.invalidate("model=7")
        assert lease.commit(b"old", tags=("model=7",)) == b"old"
        assert isinstance(cache.get(key(1), BYTES), Miss)
        lease_on(cache, tags=("model=7",)).commit(b"new")
        assert isinstance(cache.get(key(1), BYTES), Hit)
        assert cache.host_only is cache


def test_an_unrelated_invalidation_does_not_waste_the_value(cache: Cache) -> None:
    lease = lease_on(cache, tags=("model=7",))
    cache.invalidate("model=8")
    lease.commit(b"x")
    assert isinstance(cache.get(key(1), BYTES), Hit)


def test_an_entry_written_with_old_epochs_is_never_used(cache: Cache) -> None:
    """Even if the check before the write came too early, the reader finds out."""
    lease = lease_on(cache, tags=("model=7",))
    tiers = cache._tiers
    cache.invalidate("model=7")
    lease._still_valid = lambda grant, tags: True  # type: ignore[method-assign]
    lease.commit(b"old")
    tiers.memory.clear()
    assert cache.get(key(1), BYTES) == Miss(MissReason.INVALIDATED)


def test_a_full_store_costs_the_caller_nothing(
    cache: Cache, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.store is not None

    def full(digest: bytes, sealed: bytes) -> None:
        raise StoreFull("no space left on device")

    monkeypatch.setattr(cache.store, "write", full)
    assert cache.get_or_compute(key(1), lambda: b"x", BYTES) == b"x"
    assert EventKind.TIER_FAILED in kinds(events)
    assert isinstance(cache.get(key(1), BYTES), Hit), "it is still live in memory"


def test_a_computation_that_asks_for_its_own_key_does_not_wait_for_itself(cache: Cache) -> None:
    def compute(depth: int) -> bytes:
        if depth == 0:
            return b"x"
        return cache.get_or_compute(key(1), lambda: compute(depth - 1), BYTES)

    assert cache.get_or_compute(key(1), lambda: compute(2), BYTES) == b"x"


def test_two_threads_that_want_each_others_key_do_not_wait_for_ever(cache: Cache) -> None:
    both_lead = threading.Barrier(2)

    def outer(mine: int, other: int) -> bytes:
        def compute() -> bytes:
            both_lead.wait(30)
            return cache.get_or_compute(key(other), lambda: b"inner", BYTES)

        return cache.get_or_compute(key(mine), compute, BYTES)

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(outer, 1, 2), pool.submit(outer, 2, 1)]
        assert {each.result(30) for each in results} == {b"inner"}


def test_tasks_that_want_each_others_key_or_their_own_do_not_wait_for_ever(cache: Cache) -> None:
    tasks = AsyncCache(cache)

    async def outer(mine: int, other: int, both_lead: asyncio.Barrier) -> bytes:
        async def inner() -> bytes:
            return b"inner"

        async def compute() -> bytes:
            await both_lead.wait()
            own = await tasks.get_or_compute(key(mine), inner, BYTES)
            return own + await tasks.get_or_compute(key(other), inner, BYTES)

        return await tasks.get_or_compute(key(mine), compute, BYTES)

    async def main() -> None:
        both_lead = asyncio.Barrier(2)
        async with asyncio.timeout(30):
            await asyncio.gather(outer(1, 2, both_lead), outer(2, 1, both_lead))

    asyncio.run(main())
    assert isinstance(cache.get(key(1), BYTES), Hit)


def test_a_flight_that_its_leader_lost_is_given_up() -> None:
    flights = Flights()
    flight, _ = flights.join(b"k", 1)
    future = flight.future()
    del flight  # as by an interrupt before anybody could settle it
    assert future.result(0) is None
    assert len(flights) == 0
    assert flights.join(b"k", 2)[1]


def test_a_lease_that_is_collected_while_another_is_asked_for_stops_nobody(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Collecting(dict[bytes, Any]):
        """As the collector may run whenever something is made."""

        def get(self, *asked: Any) -> Any:
            gc.collect()
            return super().get(*asked)

    lost: list[Any] = [lease_on(cache)]
    lost.append(lost)
    flights = cache.engine._coordinator.flights
    monkeypatch.setattr(flights, "_flights", Collecting(flights._flights))
    del lost
    found: list[object] = []
    asking = threading.Thread(
        target=lambda: found.append(cache.acquire(key(2), BYTES)), daemon=True
    )
    asking.start()
    asking.join(20)
    assert [type(each) for each in found] == [Lease]
    assert isinstance(cache.acquire(key(1), BYTES, wait=0.0), Lease)
    assert EventKind.ABANDONED in cache.counts()


def test_a_waiter_that_waits_too_long_computes_for_itself(cache: Cache) -> None:
    held = lease_on(cache)
    with ThreadPoolExecutor(1) as other:
        found = other.submit(cache.acquire, key(1), BYTES, wait=0.05).result()
    assert isinstance(found, Lease)
    assert found.reason is MissReason.WAIT_TIMEOUT
    assert found.commit(b"mine") == b"mine"
    assert held.commit(b"yours") == b"yours"


def test_waiters_of_another_codec_do_not_get_the_leaders_value(cache: Cache) -> None:
    lease = lease_on(cache)
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(cache.acquire, key(1), MsgPack(int))
        eventually(lambda: EventKind.WAITED in cache.counts(), "the other waits")
        lease.commit(b"bytes")
        found = waiting.result()
    assert isinstance(found, Lease)
    assert found.reason in (MissReason.INCOMPATIBLE, MissReason.ABSENT)
    found.commit(3)


def test_waiters_get_a_recorded_failure_too(cache: Cache) -> None:
    lease = lease_on(cache)
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(cache.acquire, key(1), BYTES)
        eventually(lambda: EventKind.WAITED in cache.counts(), "the other waits")
        lease.refuse(ValueError("no"), lifetime=60.0)
        assert isinstance(waiting.result(), Failed)


def test_a_child_that_forks_while_the_parent_computes_can_use_the_cache(cache: Cache) -> None:
    lease = lease_on(cache)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            other = cache.get_or_compute(key(2), lambda: b"child", BYTES)
            status = 0 if other == b"child" else 2
        finally:
            os.write(writer, bytes([status]))
            os._exit(status)
    os.close(writer)
    assert os.read(reader, 1) == b"\0"
    os.waitpid(child, 0)
    os.close(reader)
    lease.commit(b"parent")
    found = cache.get(key(2), BYTES)
    assert isinstance(found, Hit)
    assert found.value == b"child"


def test_flights_of_the_parent_are_forgotten_in_a_child() -> None:
    flights = Flights()
    flight, leads = flights.join(b"d" * 32)
    assert leads
    child = os.fork()
    if child == 0:
        os._exit(0 if flights.join(b"d" * 32)[1] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not flights.join(b"d" * 32)[1]
    flight.abandon()
    assert len(flights) == 0


def test_a_thousand_waiters_one_call(cache: Cache) -> None:
    calls = 0
    entered = threading.Event()
    go_on = threading.Event()

    def compute() -> bytes:
        nonlocal calls
        calls += 1
        entered.set()
        go_on.wait(30)
        return b"x"

    def ask() -> bytes:
        return cache.get_or_compute(key(1), compute, BYTES)

    with ThreadPoolExecutor(1000) as pool:
        waiting = [pool.submit(ask) for _ in range(1000)]
        entered.wait(30)
        eventually(lambda: cache.counts().get(EventKind.WAITED, 0) >= 999, "999 wait", 60)
        go_on.set()
        assert {each.result(30) for each in waiting} == {b"x"}
    assert calls == 1
