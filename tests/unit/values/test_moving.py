"""Programs written for joblib and diskcache, with another import."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from trivet.errors import StoreFull, Unkeyable
from trivet.values.moving import DiskCache, Memory


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[DiskCache]:
    with DiskCache(tmp_path) as cache:
        yield cache


def test_a_program_of_joblib_runs_as_before(tmp_path: Path) -> None:
    calls: list[int] = []
    memory = Memory(tmp_path, verbose=0)

    @memory.cache(ignore=["calls", "n_jobs"])
    def square(x: int, n_jobs: int = 1) -> int:
        calls.append(x)
        return x * x

    plain = memory.cache(lambda x: -x)
    assert [square(3), square(3, n_jobs=4), plain(2), memory.eval(abs_of, -7)] == [9, 9, -2, 7]
    assert calls == [3]
    memory.clear(warn=False)
    assert square(3) == 9
    assert calls == [3, 3]


def abs_of(x: int) -> int:
    return abs(x)


def test_a_program_of_diskcache_runs_as_before(cache: DiskCache, tmp_path: Path) -> None:
    cache["key"] = {"a": (1, 2)}
    cache.set(("user", 7), np.arange(3), expire=60, tag="users")
    assert cache["key"] == {"a": (1, 2)}
    assert cache.get(("user", 7)).tolist() == [0, 1, 2]
    cache["key"] = "another"
    assert (cache["key"], cache.add("key", "no"), cache.add("new", None)) == (
        "another",
        False,
        True,
    )
    assert "new" in cache
    assert cache.get("new", 1) is None
    with DiskCache(tmp_path) as other:
        assert other["key"] == "another"
    cache.evict("users")
    assert ("user", 7) not in cache
    assert (cache.pop("key"), cache.pop("key", 0)) == ("another", 0)
    del cache["new"]
    for missing in (lambda: cache["new"], lambda: cache.__delitem__("new")):
        with pytest.raises(KeyError, match="new"):
            missing()


def test_keys_are_told_apart_by_type(cache: DiskCache) -> None:
    for each in (1, True, 1.0, "1", b"1", (1,), None):
        cache[each] = repr(each)
    assert [cache[each] for each in (1, True, 1.0, "1")] == ["1", "True", "1.0", "'1'"]
    with pytest.raises(Unkeyable, match="lock"):
        cache[threading.Lock()] = 1
    with pytest.raises(TypeError, match="plain value"):
        cache["x"] = threading.Lock()
    assert "x" not in cache


def test_memoize_expires_and_is_dropped_by_its_tag(cache: DiskCache) -> None:
    calls: list[int] = []

    @cache.memoize(expire=60, tag="squares", ignore=["calls"])
    def square(x: int) -> int:
        calls.append(x)
        return x * x

    square(2), square(2)
    cache.evict("squares")
    square(2)
    assert calls == [2, 2]
    (entry,) = cache.store.entries()
    assert entry.descriptor.expires is not None


def test_threads_that_set_the_same_key_all_return(cache: DiskCache) -> None:
    def work(number: int) -> None:
        for n in range(50):
            cache["shared"] = (number, n)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert cache["shared"][1] == 49


def test_what_can_not_be_kept_leaves_what_is_there(cache: DiskCache) -> None:
    cache["key"] = "old"
    with pytest.raises(TypeError, match="plain value"):
        cache["key"] = threading.Lock()
    assert cache["key"] == "old"


def test_who_reads_while_it_is_set_anew_finds_something(cache: DiskCache) -> None:
    def read() -> None:
        while not ended.is_set():
            found.append(cache.get("key"))

    found: list[object] = []
    ended = threading.Event()
    cache["key"] = 0
    thread = threading.Thread(target=read)
    thread.start()
    for n in range(200):
        cache["key"] = n
    ended.set()
    thread.join()
    assert None not in found


def test_without_a_location_nothing_is_kept() -> None:
    calls: list[int] = []
    memory = Memory(None)

    @memory.cache(ignore=["calls"])
    def square(x: int) -> int:
        calls.append(x)
        return x * x

    assert [square(3), square(3)] == [9, 9]
    assert calls == [3, 3]


def test_what_could_not_be_written_does_not_leave_the_old_value(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache["key"] = "old"
    store = cache.store.store
    assert store is not None

    def full(*_: object) -> None:
        raise StoreFull("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(store, "write", full)
        cache["key"] = "new"
    assert cache.get("key") is None
