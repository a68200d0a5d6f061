"""Every kind of event is produced by what it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.engine import finish, key, start

from trivet.cache import ArtifactLease, Cache, Hit, Lease, Miss
from trivet.codecs import Bytes
from trivet.events import Event, EventKind, MissReason, Tier
from trivet.stores.host import HostStore

BYTES = Bytes()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def cache(tmp_path: Path, events: list[Event]) -> Cache:
    return Cache.open(tmp_path / "c", sink=events.append, strict=True)


def lease(cache: Cache, n: object = 1) -> Lease[bytes]:
    found = cache.acquire(key(n), BYTES, tags=("t",))
    assert isinstance(found, Lease)
    return found


def of(events: list[Event], kind: EventKind) -> Event:
    (one,) = [each for each in events if each.kind is kind]
    return one


def test_a_commit_and_the_hits_after_it(cache: Cache, events: list[Event]) -> None:
    lease(cache).commit(b"four", cost=2.5)
    committed = of(events, EventKind.COMMITTED)
    assert (committed.digest, committed.space) == (key(1).digest, "test/1")
    assert (committed.seconds, committed.size) == (2.5, 4)
    cache.get(key(1), BYTES)
    assert of(events, EventKind.HIT).tier is Tier.MEMORY
    events.clear()
    cache._tiers.memory.clear()
    cache.get(key(1), BYTES)
    assert of(events, EventKind.HIT).tier is Tier.HOST


def test_a_refusal_and_the_answers_from_its_record(cache: Cache, events: list[Event]) -> None:
    lease(cache).refuse(ValueError("no such operator"), lifetime=60.0)
    assert of(events, EventKind.REFUSED).detail == "ValueError"
    cache.get(key(1), BYTES)
    assert of(events, EventKind.FAILURE_HIT).tier is Tier.MEMORY


def test_an_invalidation_names_the_tag(cache: Cache, events: list[Event]) -> None:
    cache.invalidate("t")
    assert of(events, EventKind.INVALIDATED).detail == "t"


def test_an_abandoned_lease_names_the_error(cache: Cache, events: list[Event]) -> None:
    with pytest.raises(ZeroDivisionError), lease(cache):
        raise ZeroDivisionError
    assert of(events, EventKind.ABANDONED).detail == "ZeroDivisionError"


def test_an_eviction_reaches_the_sink_of_the_cache(tmp_path: Path, events: list[Event]) -> None:
    with Cache.open(tmp_path / "c", disk_bytes=1 << 20, sink=events.append) as small:
        for n in range(40):
            lease(small, n).commit(bytes(50_000))
    assert EventKind.EVICTED in [each.kind for each in events]


def test_a_quarantined_entry_is_reported_once(cache: Cache, events: list[Event]) -> None:
    lease(cache).commit(b"x")
    assert cache.store is not None
    raw = bytearray(cache.store.read(key(1).digest) or b"")
    raw[-1] ^= 1
    cache.store.write(key(1).digest, bytes(raw))
    cache._tiers.memory.clear()
    cache.get(key(1), BYTES)
    reported = of(events, EventKind.QUARANTINED)
    assert (reported.digest, reported.reason) == (key(1).digest, MissReason.CORRUPT)


def test_what_verify_finds_reaches_the_sink(tmp_path: Path, events: list[Event]) -> None:
    store = HostStore.open(tmp_path / "c", sink=events.append)
    store.write(key(1).digest, b"not a sealed entry" * 10)
    (verdict,) = store.verify()
    assert verdict.problem is not None
    assert of(events, EventKind.QUARANTINED).digest == key(1).digest
    store.close()


def test_a_rebuilt_index_reaches_the_sink(tmp_path: Path, events: list[Event]) -> None:
    store = HostStore.open(tmp_path / "c", sink=events.append)
    store.rebuild()
    store.close()
    assert of(events, EventKind.REBUILT).tier is Tier.HOST


def test_a_process_that_died_while_loading_leaves_a_mark(
    cache: Cache, events: list[Event], tmp_path: Path
) -> None:
    making = cache.acquire_files(key("plan"))
    assert isinstance(making, ArtifactLease)
    (making.staging / "plan.bin").write_bytes(b"native code")
    making.commit()
    code = """
import os, signal, sys
from trivet.cache import Cache
from trivet.keys import Key
found = Cache.open(sys.argv[1]).get_files(Key("test/1", {"n": "plan"}))
with found.value.loading():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start(code, tmp_path / "c")
    process.communicate()
    assert process.returncode == -9
    found = cache.get_files(key("plan"))
    assert isinstance(found, Miss)
    assert found.reason is MissReason.CRASHED
    assert [each.reason for each in events if each.kind is EventKind.MISS][-1] is found.reason
    assert isinstance(cache.acquire_files(key("plan")), ArtifactLease)


def test_a_process_that_loads_well_leaves_no_mark(cache: Cache, tmp_path: Path) -> None:
    making = cache.acquire_files(key("plan"))
    assert isinstance(making, ArtifactLease)
    (making.staging / "plan.bin").write_bytes(b"native code")
    making.commit()
    code = """
import sys
from trivet.cache import Cache
from trivet.keys import Key
found = Cache.open(sys.argv[1]).get_files(Key("test/1", {"n": "plan"}))
with found.value.loading():
    print(found.value.verify().name)
"""
    for _ in range(2):
        finish(start(code, tmp_path / "c"))
    assert isinstance(cache.get_files(key("plan")), Hit)
