"""What holds the bytes, and what holds them for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engine import finish, start

from trivet import Cache, Hit, Key, Miss, MissReason
from trivet.codecs import Bytes
from trivet.events import Tier
from trivet.testing import FakeClock
from trivet.values import memo

CODEC = Bytes()
DAY = 86400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(tmp_path: Path, clock: FakeClock) -> Iterator[Cache]:
    with Cache.open(tmp_path / "c", clock=clock, strict=True) as cache:
        yield cache


def key(n: object, space: str = "value/1") -> Key:
    return Key(space, {"function": "app.embed", "n": str(n)})


def keep(cache: Cache, n: object, size: int = 100, lifetime: float | None = None) -> Key:
    name = key(n)
    cache.get_or_compute(name, lambda: bytes(size), CODEC, lifetime=lifetime)
    return name


@pytest.mark.parametrize("tier", [Tier.MEMORY, Tier.HOST])
def test_bytes_are_told_by_function_size_and_age(
    cache: Cache, clock: FakeClock, tier: Tier
) -> None:
    @memo(cache, lifetime=60 * DAY)
    def shout(text: str) -> str:
        return text.upper()

    for n in range(3):
        keep(cache, n, 50_000)
    clock.sleep(2 * DAY)
    shout("hello")
    cache.get_or_compute(Key("test/1", {"n": 1}), lambda: b"x", CODEC)
    usage = cache.usage(tier, by="function")
    by_name = {each.name: each for each in usage.names}
    assert usage.names[0].name == "app.embed", "the largest first"
    assert {name: each.entries for name, each in by_name.items()} == {
        "app.embed": 3,
        shout.tag.removeprefix("function="): 1,
        "test/1": 1,
    }
    assert 150_000 < by_name["app.embed"].size < 160_000
    assert (usage.total.entries, usage.total.without_lifetime) == (5, 4)
    assert usage.total.size == sum(each.size for each in usage.names)
    assert [(each.below, each.entries) for each in usage.ages] == [(3600.0, 2), (7 * DAY, 3)]
    assert {each.below: each.entries for each in usage.sizes}[1e5] == 3
    size = cache.store.stats().size if tier is Tier.HOST else cache.engine.tiers.memory.stats().size  # type: ignore[union-attr]
    assert usage.total.size == size


def test_values_without_a_lifetime_are_given_one_from_when_they_were_made(
    cache: Cache, clock: FakeClock, tmp_path: Path
) -> None:
    old, large = keep(cache, "old"), keep(cache, "large", 100_000)
    clock.sleep(3 * DAY)
    new, has_one = keep(cache, "new"), keep(cache, "has one", lifetime=90 * DAY)
    looked = cache.limit_lifetimes(None, space="value")
    assert (looked.looked, looked.without_lifetime, looked.given, looked.dropped) == (4, 3, 0, 0)
    done = cache.limit_lifetimes(5 * DAY, space="value")
    assert (done.without_lifetime, done.given, done.dropped) == (3, 3, 0)
    assert cache.limit_lifetimes(5 * DAY, space="value").without_lifetime == 0, "now all have one"
    with Cache.open(tmp_path / "c", clock=clock, strict=True) as other:
        for each, days in ((old, 2), (large, 2), (new, 5)):
            for one in (cache, other):
                found = one.get(each, CODEC)
                assert isinstance(found, Hit)
                assert found.descriptor.expires == clock.time() + days * DAY
        clock.sleep(2.5 * DAY)
        for one in (cache, other):
            missed = one.get(old, CODEC)
            assert isinstance(missed, Miss)
            assert missed.reason is MissReason.EXPIRED
            assert isinstance(one.get(new, CODEC), Hit)
            assert isinstance(one.get(has_one, CODEC), Hit)
    assert [each.problem for each in cache.store.verify()] == [None] * 4  # type: ignore[union-attr]


def test_values_older_than_the_lifetime_are_dropped_with_their_files(
    cache: Cache, clock: FakeClock
) -> None:
    for n in range(3):
        keep(cache, n, 100_000)
    clock.sleep(10 * DAY)
    young = keep(cache, "young")
    done = cache.limit_lifetimes(5 * DAY, space="value")
    assert (done.given, done.dropped) == (1, 3)
    assert isinstance(cache.get(key(0), CODEC), Miss), "its live copy, too, is gone"
    assert isinstance(cache.get(young, CODEC), Hit)
    assert cache.limit_lifetimes(0, space="value").without_lifetime == 0
    assert not list((cache.store.root / "objects").glob("*/*"))  # type: ignore[union-attr]


def test_what_is_in_another_space_or_has_files_is_left_alone(cache: Cache) -> None:
    other = key("x", "other/1")
    cache.get_or_compute(other, lambda: b"x", CODEC)
    lease = cache.acquire_files(key("plan"))
    (lease.staging / "f").write_bytes(b"x")  # type: ignore[union-attr]
    lease.commit()  # type: ignore[union-attr]
    assert cache.limit_lifetimes(0, space="value").without_lifetime == 0
    assert isinstance(cache.get(other, CODEC), Hit)
    assert cache.limit_lifetimes(0, space="other").dropped == 1


def test_one_that_is_interrupted_has_done_a_part_and_live_copies_follow(cache: Cache) -> None:
    for n in range(600):
        keep(cache, n, 1)

    def interrupt(looked: int) -> None:
        if looked >= 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.limit_lifetimes(0, space="value", progress=interrupt)
    assert sum(isinstance(cache.get(key(n), CODEC), Hit) for n in range(600)) == 600 - 256
    told: list[int] = []
    assert cache.limit_lifetimes(DAY, space="value", progress=told.append).given == 600 - 256
    assert told == [128, 256, 344]


def test_a_cache_in_memory_alone_is_looked_at_too(clock: FakeClock) -> None:
    cache = Cache(clock=clock)
    keep(cache, "old")
    clock.sleep(3 * DAY)
    keep(cache, "new")
    done = cache.limit_lifetimes(2 * DAY, space="value")
    assert (done.without_lifetime, done.given, done.dropped) == (2, 1, 1)
    assert isinstance(cache.get(key("new"), CODEC), Hit)
    clock.sleep(3 * DAY)
    assert isinstance(cache.get(key("new"), CODEC), Miss)


WRITER = """
import sys, time
from trivet import Cache, Key
from trivet.codecs import Bytes
codec, slowest = Bytes(), 0.0
with Cache.open(sys.argv[1], memory_bytes=0, strict=True) as cache:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(400):
        started = time.perf_counter()
        key = Key("value/1", {"function": "app.embed", "n": str(n)})
        cache.forget(key)
        cache.get_or_compute(key, lambda: b"new", codec, lifetime=1e6)
        slowest = max(slowest, time.perf_counter() - started)
print(slowest)
"""


def test_another_process_writes_meanwhile_and_what_it_wrote_stays(tmp_path: Path) -> None:
    with Cache.open(tmp_path, memory_bytes=0, strict=True) as cache:
        for n in range(400):
            keep(cache, n, 2000)
        writer = start(WRITER, tmp_path)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        done = threading.Event()

        def scan() -> None:
            while not done.is_set():
                cache.limit_lifetimes(DAY, space="value")

        scanner = threading.Thread(target=scan)
        scanner.start()
        try:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
            slowest = float(finish(writer))
        finally:
            done.set()
            scanner.join()
        assert slowest < 5.0
        for n in range(400):
            found = cache.get(key(n), CODEC)
            assert isinstance(found, Hit)
            assert found.value == b"new"
            lifetime = found.descriptor.expires - found.descriptor.created  # type: ignore[operator]
            assert lifetime == pytest.approx(1e6)
