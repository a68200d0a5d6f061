"""Dropping a family of entries by its tag: the cost is that of one, however many there are."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.engine import key
from tests.support.store_entries import entry

from trivet import Cache
from trivet.cache import Hit, Miss
from trivet.codecs import Bytes
from trivet.events import MissReason
from trivet.keys import Key

BYTES, MANY = Bytes(), 100_000


def name(n: int) -> Key:
    return Key("test/1", {"name": f"member {n}"})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_family_of_a_hundred_thousand_goes_as_fast_as_one_of_ten(tmp_path: Path) -> None:
    """Interleaved, on one folder with all of them; the tag of ten is asked for as often."""
    cache = Cache.open(tmp_path, memory_bytes=1 << 20, group_entries=None, strict=True)
    store = cache.store
    assert store is not None
    for n in range(MANY):
        store.write(*entry(f"member {n}", tags={"many": 0}))
    for n in range(10):
        cache.get_or_compute(key(n), lambda: b"x", BYTES, tags=["few"])
    for n in range(0, MANY, 5000):
        assert isinstance(cache.get(name(n), BYTES), Hit)
    seconds: dict[str, list[float]] = {"many": [], "few": []}
    for _ in range(15):
        for tag, taken in seconds.items():
            started = time.perf_counter()
            cache.invalidate(tag)
            taken.append(time.perf_counter() - started)
    assert sorted(seconds["many"])[7] < 5 * sorted(seconds["few"])[7], "the medians"
    assert min(seconds["many"]) < 0.05
    for n in range(0, MANY, 1000):
        found = cache.get(name(n), BYTES)
        assert isinstance(found, Miss)
        assert found.reason is MissReason.INVALIDATED
    cache.close()
