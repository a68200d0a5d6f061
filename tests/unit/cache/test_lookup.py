"""What a look-up answers, and every reason for a miss made to happen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.engine import key

from trivet.cache import Cache, Failed, Hit, Lease, Miss
from trivet.codecs import Arrays, Bytes, MsgPack
from trivet.entries import Descriptor, seal
from trivet.errors import ComputeFailed, StoreUnavailable, UnsafeFolder
from trivet.events import Event, EventKind, MissReason, Tier
from trivet.testing import FakeClock

BYTES = Bytes()


def commit(cache: Cache, n: object, value: bytes, **options: object) -> None:
    lease = cache.acquire(key(n), BYTES, tags=options.pop("tags", ()))  # type: ignore[arg-type]
    assert isinstance(lease, Lease)
    lease.commit(value, **options)  # type: ignore[arg-type]


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(tmp_path: Path, events: list[Event], clock: FakeClock) -> Cache:
    return Cache.open(tmp_path / "c", sink=events.append, clock=clock, strict=True)


def fresh(cache: Cache) -> Cache:
    """The same folder without what is live in memory."""
    cache._tiers.memory.clear()
    return cache


def test_a_value_comes_back_from_memory_and_from_the_host_store(cache: Cache) -> None:
    commit(cache, 1, b"one")
    live = cache.get(key(1), BYTES)
    assert isinstance(live, Hit)
    assert (live.value, live.tier) == (b"one", Tier.MEMORY)
    stored = fresh(cache).get(key(1), BYTES)
    assert isinstance(stored, Hit)
    assert (stored.value, stored.tier) == (b"one", Tier.HOST)


def test_what_was_never_stored_is_absent(cache: Cache, events: list[Event]) -> None:
    assert cache.get(key(1), BYTES) == Miss(MissReason.ABSENT)
    assert [(each.kind, each.reason) for each in events] == [(EventKind.MISS, MissReason.ABSENT)]


@pytest.mark.parametrize("where", ["memory", "host"])
def test_a_value_is_not_used_after_its_lifetime(cache: Cache, clock: FakeClock, where: str) -> None:
    commit(cache, 1, b"one", lifetime=10.0)
    clock.advance(9.0)
    assert isinstance(cache.get(key(1), BYTES), Hit)
    clock.advance(1.0)
    found = (cache if where == "memory" else fresh(cache)).get(key(1), BYTES)
    assert found == Miss(MissReason.EXPIRED)


def test_a_clock_set_back_ends_lifetimes_instead_of_prolonging_them(
    cache: Cache, clock: FakeClock
) -> None:
    commit(cache, 1, b"one", lifetime=10.0)
    commit(cache, 2, b"two")
    clock.jump(-86400.0)
    assert cache.get(key(1), BYTES) == Miss(MissReason.EXPIRED)
    assert isinstance(cache.get(key(2), BYTES), Hit)


@pytest.mark.parametrize("where", ["memory", "host"])
def test_an_invalidated_tag_takes_its_own_entries_and_no_others(cache: Cache, where: str) -> None:
    commit(cache, 1, b"one", tags=("release=1",))
    commit(cache, 2, b"two", tags=("release=2",))
    cache.invalidate("release=1")
    if where == "host":
        fresh(cache)
    assert cache.get(key(1), BYTES) == Miss(MissReason.INVALIDATED)
    assert isinstance(cache.get(key(2), BYTES), Hit)


def test_another_key_with_the_same_digest_is_never_a_hit(cache: Cache) -> None:
    """Two keys of one digest: a hash selects, the key confirms."""
    other = seal(key(2).canonical, Descriptor(codec=BYTES.id, created=0.0), b"of another key")
    assert cache.store is not None
    cache.store.write(key(1).digest, other)
    found = cache.get(key(1), BYTES)
    assert isinstance(found, Miss)
    assert found.reason is MissReason.KEY_MISMATCH


def damage(cache: Cache, n: object) -> None:
    assert cache.store is not None
    raw = bytearray(cache.store.read(key(n).digest) or b"")
    raw[-1] ^= 1
    cache.store.write(key(n).digest, bytes(raw))


def test_corrupt_is_quarantined_and_healed_by_computing(cache: Cache, events: list[Event]) -> None:
    commit(cache, 1, b"one")
    damage(fresh(cache), 1)
    found = cache.get(key(1), BYTES)
    assert isinstance(found, Miss)
    assert found.reason is MissReason.CORRUPT
    assert EventKind.QUARANTINED in [each.kind for each in events]
    assert cache.get(key(1), BYTES) == Miss(MissReason.ABSENT)
    commit(cache, 1, b"one")
    assert isinstance(fresh(cache).get(key(1), BYTES), Hit)


def test_corrupt_twice_in_a_row_opens_the_breaker_of_that_key_for_a_while(
    cache: Cache, clock: FakeClock
) -> None:
    for _ in range(2):
        commit(cache, 1, b"one")
        damage(fresh(cache), 1)
        cache.get(key(1), BYTES)
    found = cache.get(key(1), BYTES)
    assert isinstance(found, Miss)
    assert found.reason is MissReason.BREAKER_OPEN
    assert cache.get_or_compute(key(1), lambda: b"again", BYTES) == b"again"
    assert isinstance(cache.get(key(2), BYTES), Miss)
    clock.advance(601.0)
    fresh(cache)
    commit(cache, 1, b"one")
    assert isinstance(fresh(cache).get(key(1), BYTES), Hit)


def test_one_good_read_forgets_the_strike(cache: Cache) -> None:
    for _ in range(3):
        commit(cache, 1, b"one")
        assert isinstance(fresh(cache).get(key(1), BYTES), Hit)
        damage(fresh(cache), 1)
        found = cache.get(key(1), BYTES)
        assert isinstance(found, Miss)
        assert found.reason is MissReason.CORRUPT


@pytest.mark.parametrize("where", ["memory", "host"])
def test_an_entry_of_another_codec_is_incompatible(cache: Cache, where: str) -> None:
    commit(cache, 1, b"one")
    if where == "host":
        fresh(cache)
    found = cache.get(key(1), MsgPack(int))
    assert isinstance(found, Miss)
    assert found.reason is MissReason.INCOMPATIBLE


def test_a_payload_that_its_own_codec_refuses_is_corrupt(cache: Cache) -> None:
    numbers = MsgPack(int)
    assert cache.store is not None
    wrong = seal(key(1).canonical, Descriptor(codec=numbers.id, created=0.0), b"\xa3abc")
    cache.store.write(key(1).digest, wrong)
    found = cache.get(key(1), numbers)
    assert isinstance(found, Miss)
    assert found.reason is MissReason.CORRUPT


def test_an_entry_of_another_format_version_is_incompatible(cache: Cache) -> None:
    commit(cache, 1, b"one")
    assert cache.store is not None
    raw = bytearray(cache.store.read(key(1).digest) or b"")
    raw[24] = 99
    cache.store.write(key(1).digest, bytes(raw))
    found = fresh(cache).get(key(1), BYTES)
    assert isinstance(found, Miss)
    assert found.reason is MissReason.INCOMPATIBLE


def test_unavailable_is_a_miss_and_an_event_unless_strict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Event] = []
    for strict in (False, True):
        cache = Cache.open(tmp_path / str(strict), strict=strict, sink=seen.append)
        assert cache.store is not None

        def broken(digest: bytes) -> bytes:
            raise StoreUnavailable("the disk is gone")

        monkeypatch.setattr(cache.store, "read", broken)
        if strict:
            with pytest.raises(StoreUnavailable):
                cache.get(key(1), BYTES)
        else:
            found = cache.get(key(1), BYTES)
            assert isinstance(found, Miss)
            assert found.reason is MissReason.UNAVAILABLE
            assert EventKind.TIER_FAILED in [each.kind for each in seen]
            assert cache.get_or_compute(key(1), lambda: b"x", BYTES) == b"x"


def test_a_recorded_failure_answers_until_its_time_is_up(cache: Cache, clock: FakeClock) -> None:
    calls = []

    def compute() -> bytes:
        calls.append(1)
        raise ValueError("unsupported operator Foo")

    def ask() -> bytes:
        return cache.get_or_compute(
            key(1), compute, BYTES, record=(ValueError,), record_lifetime=60.0
        )

    with pytest.raises(ValueError, match="Foo"):
        ask()
    for where in (cache, fresh(cache)):
        assert isinstance(where.get(key(1), BYTES), Failed)
        with pytest.raises(ComputeFailed, match="ValueError: unsupported operator Foo") as caught:
            ask()
        assert caught.value.error_class == "ValueError"
    assert len(calls) == 1
    clock.advance(61.0)
    with pytest.raises(ValueError, match="Foo"):
        ask()
    assert len(calls) == 2


def test_a_failure_whose_text_is_not_unicode_is_recorded_all_the_same(cache: Cache) -> None:
    lease = cache.acquire(key(1), BYTES)
    assert isinstance(lease, Lease)
    lease.refuse(ValueError("no such file: \udcff" + "x" * 10_000), lifetime=60.0)
    found = fresh(cache).get(key(1), BYTES)
    assert isinstance(found, Failed)
    assert found.error_text.startswith("no such file: ?xx")


def test_a_recorded_failure_ends_when_what_it_depends_on_changes(cache: Cache) -> None:
    lease = cache.acquire(key(1), BYTES, tags=("backend=1",))
    assert isinstance(lease, Lease)
    lease.refuse(ValueError("no"), lifetime=1e6)
    assert isinstance(cache.get(key(1), BYTES), Failed)
    cache.invalidate("backend=1")
    assert cache.get(key(1), BYTES) == Miss(MissReason.INVALIDATED)


def test_errors_that_were_not_declared_are_not_recorded(cache: Cache) -> None:
    def compute() -> bytes:
        raise MemoryError

    with pytest.raises(MemoryError):
        cache.get_or_compute(key(1), compute, BYTES, record=(ValueError,))
    assert cache.get(key(1), BYTES) == Miss(MissReason.ABSENT)


def test_values_that_can_be_changed_are_not_shared_between_callers(cache: Cache) -> None:
    lists = MsgPack(list[int])
    lease = cache.acquire(key(1), lists)
    assert isinstance(lease, Lease)
    mine = lease.commit([1, 2])
    mine.append(3)
    for _ in range(2):
        for where in (cache, fresh(cache)):
            found = where.get(key(1), lists)
            assert isinstance(found, Hit)
            assert found.value == [1, 2]
            found.value.append(4)


def test_arrays_of_the_cache_can_not_be_written(cache: Cache) -> None:
    import numpy as np

    lease = cache.acquire(key(1), Arrays())
    assert isinstance(lease, Lease)
    mine = np.arange(4.0)
    lease.commit({"x": mine})
    mine[0] = 99.0
    for where in (cache, fresh(cache)):
        found = where.get(key(1), Arrays())
        assert isinstance(found, Hit)
        assert found.value["x"].tolist() == [0.0, 1.0, 2.0, 3.0]
        with pytest.raises(ValueError, match="read-only"):
            found.value["x"][0] = 1.0
        with pytest.raises(ValueError, match=r"(?i)writeable"):
            found.value["x"].flags.writeable = True


def test_forget_reaches_live_copies_of_other_caches_on_the_folder(tmp_path: Path) -> None:
    first, second = Cache.open(tmp_path / "c"), Cache.open(tmp_path / "c")
    commit(first, 1, b"one", tags=("a",))
    assert isinstance(second.get(key(1), BYTES), Hit)
    assert isinstance(second.get(key(1), BYTES), Hit)
    assert first.forget(key(1))
    assert second.get(key(1), BYTES) == Miss(MissReason.ABSENT)
    commit(first, 1, b"one", tags=("a",))
    assert isinstance(second.get(key(1), BYTES), Hit)
    first.invalidate("a")
    assert second.get(key(1), BYTES) == Miss(MissReason.INVALIDATED)


def test_a_sink_that_raises_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def sink(event: Event) -> None:
        raise RuntimeError("metrics are down")

    cache = Cache.open(tmp_path / "c", sink=sink)
    assert cache.get_or_compute(key(1), lambda: b"x", BYTES) == b"x"
    assert "the event sink raised" in caplog.text


def test_memory_only_cache_works_without_a_folder() -> None:
    cache = Cache()
    assert cache.get_or_compute(key(1), lambda: b"x", BYTES) == b"x"
    found = cache.get(key(1), BYTES)
    assert isinstance(found, Hit)
    assert found.tier is Tier.MEMORY
    cache.invalidate("any")
    assert isinstance(cache.get(key(1), BYTES), Miss)


def test_a_world_writable_folder_is_refused_loudly_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    os.chmod(folder, 0o777)
    with pytest.raises(UnsafeFolder):
        Cache.open(folder, strict=True)
    cache = Cache.open(folder)
    assert "working without the cache folder" in caplog.text
    assert cache.store is None
    assert cache.get_or_compute(key(1), lambda: b"x", BYTES) == b"x"
    assert os.listdir(folder) == []


def test_nearest_names_the_fields_that_differ(cache: Cache) -> None:
    for n, size in ((1, 10), (2, 20)):
        lease = cache.acquire(key(n, size=size), BYTES)
        assert isinstance(lease, Lease)
        lease.commit(b"x")
    (nearest,) = cache.nearest(key(1, size=20, extra=True))
    assert {each.name for each in nearest.differences} in ({"size", "extra"}, {"n", "extra"})
    (exact,) = cache.nearest(key(2, size=20))
    assert exact.differences == ()
