"""The fakes of the public kit do what third-party tests rely on."""

from __future__ import annotations

import contextlib
import doctest
import importlib
from concurrent.futures import ThreadPoolExecutor

import pytest

import trivet.testing
from trivet.clock import SystemClock
from trivet.entries import unseal
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreFull, StoreUnavailable
from trivet.events import Event, EventKind, MissReason, Tier
from trivet.testing import FakeClock, Fault, FaultyStore, MemoryStore, Recorder
from trivet.testing.store_contract import sealed_entry

DIGEST, SEALED = sealed_entry("a", b"payload")


@pytest.mark.parametrize("module", ["clock", "recorder", "stores"])
def test_the_examples_in_the_documentation_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"trivet.testing.{module}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_every_name_of_the_kit_can_be_imported() -> None:
    for name in trivet.testing.__all__:
        assert getattr(trivet.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="nonsense"):
        trivet.testing.nonsense  # noqa: B018


# --- clock


def test_time_stands_still_until_somebody_sleeps() -> None:
    clock = FakeClock(now=100.0)
    assert (clock.time(), clock.monotonic()) == (100.0, 0.0)
    clock.sleep(1.5)
    clock.advance(0.5)
    assert (clock.time(), clock.monotonic(), clock.slept) == (102.0, 2.0, [1.5])


def test_a_jump_moves_the_wall_clock_alone() -> None:
    clock = FakeClock(now=100.0)
    clock.jump(-1_000)
    assert (clock.time(), clock.monotonic()) == (-900.0, 0.0)
    with pytest.raises(ValueError, match="forwards"):
        clock.advance(-1)


def test_threads_may_share_a_clock() -> None:
    clock = FakeClock(now=0.0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(clock.sleep, [0.5] * 2_000))
    assert clock.monotonic() == 1_000.0


def test_the_machines_clock_has_the_same_face() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0)
    assert clock.monotonic() >= before
    assert clock.time() > 1_600_000_000


# --- recorder


def test_a_recorder_answers_what_happened() -> None:
    recorder = Recorder()
    miss = Event(kind=EventKind.MISS, tier=Tier.HOST, reason=MissReason.CORRUPT)
    hit = Event(kind=EventKind.HIT, tier=Tier.MEMORY)
    for event in (miss, hit, hit):
        recorder(event)
    assert recorder.kinds() == [EventKind.MISS, EventKind.HIT, EventKind.HIT]
    assert recorder.of(EventKind.HIT) == [hit, hit]
    assert recorder.count(EventKind.MISS) == 1
    assert recorder.reasons() == [MissReason.CORRUPT]
    assert recorder.take() == [miss, hit, hit]
    assert recorder.events == []


# --- faulty store


def test_scripted_faults_come_one_by_one_and_then_it_works() -> None:
    store = FaultyStore(MemoryStore())
    store.script("write", Fault.UNAVAILABLE, None, Fault.FULL)
    with pytest.raises(StoreUnavailable, match="injected"):
        store.write(DIGEST, SEALED)
    assert store.read(DIGEST) is None
    store.write(DIGEST, SEALED)
    with pytest.raises(StoreFull, match="injected"):
        store.write(DIGEST, b"other")
    store.write(DIGEST, SEALED)
    assert store.read(DIGEST) == SEALED
    assert store.injected == [("write", Fault.UNAVAILABLE), ("write", Fault.FULL)]


@pytest.mark.parametrize("operation", ["read", "delete", "scan"])
def test_every_operation_can_be_unavailable(operation: str) -> None:
    store = FaultyStore(MemoryStore())
    store.write(DIGEST, SEALED)
    store.script(operation, Fault.UNAVAILABLE)
    arguments = () if operation == "scan" else (DIGEST,)
    with pytest.raises(StoreUnavailable):
        getattr(store, operation)(*arguments)
    assert store.read(DIGEST) == SEALED


@pytest.mark.parametrize("fault", [Fault.FLIP, Fault.TRUNCATE])
@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("seed", range(20))
def test_injected_damage_is_found_when_the_entry_is_opened(
    fault: Fault, operation: str, seed: int
) -> None:
    store = FaultyStore(MemoryStore(), seed=seed)
    store.script(operation, fault)
    store.write(DIGEST, SEALED)
    found = store.read(DIGEST)
    assert found is not None
    with pytest.raises((CorruptEntry, IncompatibleEntry)):
        unseal(found)
    assert (len(found) < len(SEALED)) is (fault is Fault.TRUNCATE)
    assert (store.read(DIGEST) == SEALED) is (operation == "read"), "writes damage what is kept"


def test_a_slow_store_sleeps_on_the_clock_it_was_given() -> None:
    clock = FakeClock()
    store = FaultyStore(MemoryStore(), clock=clock, delay=30.0)
    store.script("read", Fault.SLOW)
    assert store.read(DIGEST) is None
    assert clock.slept == [30.0]


def test_random_faults_are_the_same_for_one_seed() -> None:
    def history(seed: int) -> list[tuple[str, Fault]]:
        store = FaultyStore(MemoryStore(), rate=0.3, seed=seed, clock=FakeClock())
        for i in range(200):
            with contextlib.suppress(StoreUnavailable, StoreFull):
                store.write(bytes([i]) * 32, SEALED)
            with contextlib.suppress(StoreUnavailable):
                list(store.scan())
        return list(store.injected)

    assert history(1) == history(1) != history(2)
    assert 60 < len(history(1)) < 180
    assert {fault for _, fault in history(1)} == set(Fault)


def test_random_faults_can_be_narrowed() -> None:
    store = FaultyStore(MemoryStore(), rate=1.0, faults=[Fault.FULL])
    store.read(DIGEST)
    list(store.scan())
    with pytest.raises(StoreFull):
        store.write(DIGEST, SEALED)


def test_faults_that_an_operation_can_not_have_are_refused() -> None:
    store = FaultyStore(MemoryStore())
    with pytest.raises(ValueError, match="read can't"):
        store.script("read", Fault.FULL)
    with pytest.raises(ValueError):
        store.script("rename", None)
