"""Many values at once: written in batches, read back, and gone on with after a kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engine import start

from trivet import Cache, Hit, Key, Miss, MissReason
from trivet.cache import fill as filling
from trivet.cache.fill import Mark, fill_from
from trivet.codecs import Bytes
from trivet.errors import CorruptEntry, StoreUnavailable
from trivet.stores.host import HostStore
from trivet.testing import FakeClock
from trivet.values import ByCost, memo

CODEC = Bytes()


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "BATCH", 64)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(tmp_path: Path, clock: FakeClock) -> Iterator[Cache]:
    with Cache.open(tmp_path / "c", clock=clock, strict=True) as cache:
        yield cache


@pytest.fixture
def other(tmp_path: Path, clock: FakeClock) -> Iterator[Cache]:
    with Cache.open(tmp_path / "other", clock=clock, strict=True) as cache:
        yield cache


def key(n: object) -> Key:
    return Key("value/1", {"n": str(n)})


def value(n: int) -> bytes:
    return n.to_bytes(4, "little") * 50


def rows(numbers: range) -> Iterator[tuple[Key, bytes, float]]:
    return ((key(n), value(n), 0.5) for n in numbers)


def read(cache: Cache, n: object) -> bytes | None:
    found = cache.get(key(n), CODEC)
    return found.value if isinstance(found, Hit) else None


def store_of(cache: Cache) -> HostStore:
    assert isinstance(cache.store, HostStore)
    return cache.store


def test_what_is_filled_in_is_found_with_what_is_known_of_it(
    cache: Cache, clock: FakeClock
) -> None:
    told: list[int] = []
    done = cache.fill(
        rows(range(1000)), CODEC, tags=["t"], lifetime=9.0, progress=lambda d: told.append(d.rows)
    )
    assert (done.rows, done.written, done.known, done.evicted) == (1000, 1000, 0, 0)
    assert told == [*range(64, 1000, 64), 1000]
    assert all(read(cache, n) == value(n) for n in range(1000))
    found = cache.get(key(7), CODEC)
    assert isinstance(found, Hit)
    facts = found.descriptor
    assert (facts.cost, facts.size, facts.expires) == (0.5, 200, clock.time() + 9)
    stats = store_of(cache).stats()
    assert (stats.entries, stats.size) == (1000, done.size)
    assert [each.problem for each in store_of(cache).verify()] == [None] * 1000
    cache.invalidate("t")
    missed = cache.get(key(7), CODEC)
    assert isinstance(missed, Miss)
    assert missed.reason is MissReason.INVALIDATED


def test_what_is_kept_and_may_be_used_stays(cache: Cache, clock: FakeClock) -> None:
    cache.get_or_compute(key(1), lambda: b"mine", CODEC)
    cache.get_or_compute(key(2), lambda: b"old", CODEC, lifetime=5.0)
    cache.get_or_compute(key(3), lambda: b"dropped", CODEC, tags=["t"])
    cache.invalidate("t")
    clock.sleep(10)
    done = cache.fill(rows(range(5)), CODEC)
    assert (done.written, done.known) == (4, 1)
    assert [read(cache, n) for n in range(5)] == [value(0), b"mine", value(2), value(3), value(4)]
    assert cache.fill(rows(range(5)), CODEC).written == 0


def test_a_value_takes_the_place_of_a_recorded_failure(cache: Cache) -> None:
    cache.acquire(key(1), CODEC).refuse(ValueError("no"), lifetime=1e6)  # type: ignore[union-attr]
    assert read(cache, 1) is None
    assert cache.fill(rows(range(2)), CODEC).written == 2
    assert read(cache, 1) == value(1)


def test_large_values_and_small_ones_and_repeated_keys(cache: Cache) -> None:
    large = b"x" * 100_000
    given = [(key("a"), b"1", 0.0), (key("b"), large, 0.0), (key("a"), b"2", 0.0)]
    assert cache.fill(given, CODEC).written == 2
    assert (read(cache, "a"), read(cache, "b")) == (b"2", large)
    assert store_of(cache).stats().entries == 2


def test_what_is_invalidated_meanwhile_is_so_for_all(cache: Cache) -> None:
    def given() -> Iterator[tuple[Key, bytes, float]]:
        yield from rows(range(100))
        cache.invalidate("t")
        yield from rows(range(100, 200))

    cache.fill(given(), CODEC, tags=["t"])
    assert [read(cache, n) for n in range(200)] == [None] * 200


def test_a_small_budget_is_kept_and_told(tmp_path: Path) -> None:
    with Cache.open(tmp_path, disk_bytes=100_000, strict=True) as cache:
        done = cache.fill(rows(range(1000)), CODEC)
        assert store_of(cache).stats().size <= 100_000
        assert done.evicted + done.written == 1000
        assert sum(read(cache, n) is not None for n in range(1000)) > 200


def test_an_entry_that_comes_back_damaged_is_an_error(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_many(store: HostStore, digests: list[bytes]) -> dict[bytes, bytes]:
        return {each: bytes(100) for each in digests[:1]} if store.stats().entries else {}

    monkeypatch.setattr(HostStore, "read_many", read_many)
    with pytest.raises(CorruptEntry):
        cache.fill(rows(range(3)), CODEC)


def test_a_damaged_entry_is_not_taken_for_known(cache: Cache) -> None:
    cache.fill([(key("a"), b"x" * 100_000, 0.0)], CODEC)
    (file,) = (store_of(cache).root / "objects").glob("*/*")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    assert cache.fill([(key("a"), b"x" * 100_000, 0.0)], CODEC).written == 1
    assert read(cache, "a") == b"x" * 100_000


def test_a_cache_without_a_folder_cannot_be_filled() -> None:
    with pytest.raises(StoreUnavailable):
        Cache().fill([], CODEC)


def test_a_memo_is_filled_with_what_was_computed_elsewhere(cache: Cache, clock: FakeClock) -> None:
    @memo(cache, version="1", lifetime=ByCost(factor=10, least=1, most=1e6))
    def double(x: int) -> int:
        raise AssertionError("it is kept")

    done = double.fill((double.key(x), 2 * x, float(x)) for x in range(100))
    assert done.written == 100
    assert [double(x) for x in range(100)] == [2 * x for x in range(100)]
    found = double.look(50)
    assert isinstance(found, Hit)
    assert found.descriptor.expires == clock.time() + 500
    cache.invalidate(double.tag)
    assert isinstance(double.look(50), Miss)


# -- from another folder ---------------------------------------------------------------------------


def test_a_folder_is_filled_from_another(cache: Cache, other: Cache, clock: FakeClock) -> None:
    other.fill(rows(range(300)), CODEC, tags=["model=1"])
    other.get_or_compute(key("large"), lambda: b"y" * 70_000, CODEC)
    other.get_or_compute(key("short"), lambda: b"s", CODEC, lifetime=5.0)
    other.get_or_compute(key("dropped"), lambda: b"d", CODEC, tags=["gone"])
    other.invalidate("gone")
    lease = other.acquire_files(key("plan"))
    (lease.staging / "f").write_bytes(b"x")  # type: ignore[union-attr]
    lease.commit()  # type: ignore[union-attr]
    clock.sleep(10)
    cache.get_or_compute(key(3), lambda: b"mine", CODEC)
    cache.invalidate("model=1")  # tags have other epochs here
    done = fill_from(cache, store_of(other))
    assert (done.rows, done.written, done.known, done.refused) == (303, 300, 1, 2)
    assert [read(cache, n) for n in range(300) if n != 3] == [
        value(n) for n in range(300) if n != 3
    ]
    assert read(cache, 3) == b"mine"
    assert read(cache, "large") == b"y" * 70_000
    assert read(cache, "short") is read(cache, "dropped") is None
    cache.invalidate("model=1")
    assert read(cache, 5) is None


def test_damage_does_not_travel(cache: Cache, other: Cache) -> None:
    other.get_or_compute(key("large"), lambda: b"y" * 70_000, CODEC)
    (file,) = (store_of(other).root / "objects").glob("*/*")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    done = fill_from(cache, store_of(other))
    assert (done.refused, done.written) == (1, 0)


def test_parts_of_a_folder_are_apart(cache: Cache, other: Cache) -> None:
    other.fill(rows(range(300)), CODEC)
    middle = b"\x80" + bytes(31)
    first = fill_from(cache, store_of(other), last=middle)
    second = fill_from(cache, store_of(other), first=middle)
    assert first.written + second.written == 300
    assert min(first.written, second.written) > 100


FILL = """
import sys
from trivet import Cache, Key
from trivet.cache import fill
fill.BATCH = 64
with Cache.open(sys.argv[1], strict=True) as cache, Cache.open(sys.argv[2], strict=True) as other:
    mark = fill.Mark(cache, Key("fill/1", {"source": "other"}))
    done = lambda filled: print(filled.rows, flush=True)
    fill.fill_from(cache, other.store, mark=mark, progress=done)
"""


@pytest.mark.parametrize("batches", [1, 7])
def test_a_killed_filling_goes_on_where_it_was(
    cache: Cache, other: Cache, tmp_path: Path, batches: int
) -> None:
    other.fill(rows(range(3000)), CODEC)
    child = start(FILL, tmp_path / "c", tmp_path / "other")
    assert child.stdout is not None
    for _ in range(batches):
        child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    before = store_of(cache).stats().entries - 1
    assert 64 * batches <= before < 3000
    mark = Mark(cache, Key("fill/1", {"source": "other"}))
    done = fill_from(cache, store_of(other), mark=mark)
    assert done.rows == done.written == 3000 - before, "nothing was done twice"
    assert [read(cache, n) for n in range(3000)] == [value(n) for n in range(3000)]
    assert store_of(cache).read(mark.key.digest) is None
    assert all(each.problem is None for each in store_of(cache).verify())


def test_what_another_host_invalidated_does_not_travel(tmp_path: Path) -> None:
    """By way of a folder whose own processes had not heard of it."""

    def host(name: str) -> Cache:
        return Cache.open(tmp_path / name, shared=f"file://{tmp_path}/shared", strict=True)

    with host("first") as first, host("second") as second, host("third") as third:
        for n in range(3):
            first.get_or_compute(key(n), lambda: b"x", CODEC, tags=[f"tag {n}"])
        second.invalidate("tag 1")
        assert isinstance(first.store, HostStore)
        done = fill_from(third, first.store)
        assert (done.written, done.refused) == (2, 1)
        found = [isinstance(third.get(key(n), CODEC), Hit) for n in range(3)]
        assert found == [True, False, True]
