"""A process that starts with what the one before it had in memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.engine import finish, start

from trivet import Arrays, Cache, Hit, Key
from trivet.codecs import Bytes
from trivet.errors import StoreError
from trivet.events import MissReason, Tier
from trivet.testing import FakeClock, Recorder

CODEC = Bytes()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path / "c", strict=True) as cache:
        yield cache


def key(n: object) -> Key:
    return Key("value/1", {"n": str(n)})


def keep(cache: Cache, n: object, cost: float = 1.0, size: int = 1000) -> None:
    lease = cache.acquire(key(n), CODEC)
    lease.commit(bytes(size), cost=cost)  # type: ignore[union-attr]


def is_live(cache: Cache, n: object) -> bool:
    found = cache.get(key(n), CODEC)
    return isinstance(found, Hit) and found.tier is Tier.MEMORY


def test_what_was_in_memory_is_there_again(cache: Cache, tmp_path: Path) -> None:
    for n in range(50):
        keep(cache, n)
    assert cache.snapshot("server") == 50
    with Cache.open(tmp_path / "c", strict=True) as other:
        assert not is_live(other, 50)
        loaded = other.preload("server", codecs=[CODEC]).wait(20)
        assert (loaded.total, loaded.done, loaded.kept) == (50, 50, 50)
        assert (loaded.missing, loaded.unknown, loaded.finished, loaded.why) == (0, 0, True, "")
        assert all(is_live(other, n) for n in range(50))


CHILD = """
import sys
from trivet import Cache
from trivet.values import memo
cache = Cache.open(sys.argv[1], strict=True)
@memo(cache, version="1")
def double(x: int) -> int:
    return 2 * x
if sys.argv[2] == "first":
    for x in range(100):
        double(x)
    print(cache.snapshot())
else:
    print(cache.preload().wait(20).kept)
    assert [double(x) for x in range(100)] == [2 * x for x in range(100)]
    print(sum(each.entries for each in cache.usage().names))
cache.close()
"""


def test_a_new_process_preloads_the_results_of_its_memos(tmp_path: Path) -> None:
    assert finish(start(CHILD, tmp_path, "first")) == "100\n"
    assert finish(start(CHILD, tmp_path, "then")) == "100\n100\n"


def test_the_most_valuable_come_first_within_the_bytes(cache: Cache, tmp_path: Path) -> None:
    for n in range(60):
        keep(cache, n, cost=float(n + 1))
    cache.snapshot()
    with Cache.open(tmp_path / "c", strict=True) as other:
        loaded = other.preload(codecs=[CODEC], most_bytes=60_000).wait(20)
        assert 0 < loaded.kept < 60
        assert other.usage().total.size <= 60_000
        live = {n for n in range(60) if is_live(other, n)}
        # Each look brings what is missing: what was live before it are the last ones.
        assert set(range(60 - loaded.kept + 1, 60)) <= live
    keep(cache, "small budget")
    with Cache.open(tmp_path / "c", memory_bytes=30_000, strict=True) as other:
        keep(other, "mine", cost=1e-9)
        loaded = other.preload(codecs=[CODEC]).wait(20)
        assert is_live(other, "mine"), "nothing is evicted for a preload"


def test_it_ends_when_its_time_is_up(cache: Cache, tmp_path: Path) -> None:
    keep(cache, 1)
    cache.snapshot()
    with Cache.open(tmp_path / "c", strict=True) as other:
        loaded = other.preload(codecs=[CODEC], seconds=0).wait(20)
        assert (loaded.kept, loaded.why) == (0, "the time is up")


def test_what_may_not_be_used_any_more_is_not_preloaded(tmp_path: Path) -> None:
    clock = FakeClock()
    with Cache.open(tmp_path, clock=clock, strict=True) as cache:
        for n, tags, lifetime in (("good", (), None), ("tagged", ("t",), None), ("old", (), 5.0)):
            lease = cache.acquire(key(n), CODEC, tags=tags)
            lease.commit(b"x", lifetime=lifetime)  # type: ignore[union-attr]
        keep(cache, "forgotten")
        keep(cache, "damaged", size=50_000)
        cache.snapshot()
        cache.invalidate("t")
        cache.forget(key("forgotten"))
    clock.sleep(10)
    (file,) = (tmp_path / "objects").glob("*/*")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    recorder = Recorder()
    with Cache.open(tmp_path, clock=clock, strict=True, sink=recorder) as other:
        loaded = other.preload(codecs=[CODEC]).wait(20)
        assert (loaded.total, loaded.kept, loaded.missing) == (5, 1, 4)
        assert other.usage().total.entries == 1
        assert other.counts()["quarantined:corrupt"] == 1


def test_codecs_that_nobody_named_are_told(cache: Cache, tmp_path: Path) -> None:
    cache.get_or_compute(key("a"), lambda: {"x": np.ones(3)}, Arrays())
    keep(cache, "b")
    cache.snapshot()
    with Cache.open(tmp_path / "c", strict=True) as other:
        loaded = other.preload(codecs=[CODEC]).wait(20)
        assert (loaded.kept, loaded.unknown) == (1, 1)
        loaded = other.preload(codecs=[CODEC, Arrays()]).wait(20)
        assert (loaded.kept, loaded.unknown) == (2, 0)


class Picky(Bytes):
    """Can't read some values, and says so as a program of its own would."""

    def decode(self, raw: memoryview) -> bytes:
        if len(raw) > 1000:
            raise KeyError("no such model")
        return bytes(raw)


def test_a_codec_that_fails_costs_only_its_own_entries_and_is_told(
    cache: Cache, tmp_path: Path
) -> None:
    for n, size in ((1, 10), (2, 2000), (3, 10), (4, 2000)):
        keep(cache, n, size=size)
    cache.snapshot()
    recorder = Recorder()
    with Cache.open(tmp_path / "c", strict=True, sink=recorder) as other:
        loaded = other.preload(codecs=[Picky()]).wait(20)
        assert (loaded.done, loaded.kept, loaded.failed, loaded.why) == (4, 2, 2, "")
        assert loaded.error == "codec bytes/1: KeyError: 'no such model'"
        told = [each for each in recorder.events if each.reason is MissReason.INCOMPATIBLE]
        assert {each.digest for each in told} == {key(2).digest, key(4).digest}
        assert {each.detail for each in told} == {loaded.error}
        assert isinstance(other.get(key(2), CODEC), Hit), "it is not to blame"


def test_without_a_snapshot_or_with_a_damaged_one_it_says_so(cache: Cache, tmp_path: Path) -> None:
    assert cache.preload("none").wait(20).why == "there is no snapshot"
    keep(cache, 1)
    cache.snapshot()
    file = tmp_path / "c/hot/default"
    file.write_bytes(file.read_bytes()[:-3])
    assert cache.preload(codecs=[CODEC]).wait(20).why == "the snapshot is damaged"
    with pytest.raises(ValueError, match="name"):
        cache.snapshot("../x")
    memory = Cache()
    assert memory.snapshot() == 0
    assert memory.preload().wait(20).total == 0


def test_a_folder_that_cannot_be_written_is_an_error(cache: Cache, tmp_path: Path) -> None:
    keep(cache, 1)
    (tmp_path / "c/hot").write_text("in the way")
    with pytest.raises(StoreError):
        cache.snapshot()


def test_closing_ends_a_preload(cache: Cache, tmp_path: Path) -> None:
    for n in range(300):
        keep(cache, n)
    cache.snapshot()
    other = Cache.open(tmp_path / "c", strict=True)
    preload = other.preload(codecs=[CODEC])
    other.close()
    assert preload.progress().finished


KILLED = """
import sys
from trivet import Cache, Key
from trivet.codecs import Bytes
cache = Cache.open(sys.argv[1], strict=True)
for n in range(2000):
    cache.get_or_compute(Key("value/1", {"n": str(n)}), lambda: b"x" * 10, Bytes())
print("ready", flush=True)
while True:
    cache.snapshot()
"""


def test_a_kill_while_writing_leaves_a_whole_snapshot(tmp_path: Path) -> None:
    with Cache.open(tmp_path, strict=True) as cache:
        keep(cache, 0)
        cache.snapshot()
    for pause in (0.0, 0.01, 0.02, 0.03):
        child = start(KILLED, tmp_path)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with Cache.open(tmp_path, strict=True) as cache:
            cache.clock.sleep(pause)
            os.kill(child.pid, signal.SIGKILL)
            child.communicate()
            loaded = cache.preload(codecs=[CODEC]).wait(20)
            assert loaded.why == ""
            assert loaded.kept == loaded.total >= 1
    with Cache.open(tmp_path, strict=True) as cache:
        cache.store.gc()  # type: ignore[union-attr]
        assert list((tmp_path / "staging").iterdir()) == [], "nothing is left over"
