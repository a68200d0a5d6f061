"""Between the tiers: what a faster one evicts the slower one has, and a hit brings it back."""

from __future__ import annotations

from pathlib import Path

from trivet import Cache, Hit, Key
from trivet.codecs import Bytes
from trivet.events import Tier
from trivet.policies import GDSF, LRU, Grouped, Quota

CODEC = Bytes()
KILO = 1000


def key(n: object) -> Key:
    return Key("value/1", {"n": str(n)})


def keep(cache: Cache, n: object, cost: float, size: int = 5 * KILO, group: str = "") -> None:
    lease = cache.acquire(key(n), CODEC)
    lease.commit(bytes(size), cost=cost, group=group)  # type: ignore[union-attr]


def where(cache: Cache, n: object) -> Tier | None:
    found = cache.get(key(n), CODEC)
    return found.tier if isinstance(found, Hit) else None


def live(cache: Cache) -> set[str]:
    """What is in memory; looking changes nothing."""
    return {entry.key["n"] for _, entry, _ in cache.engine.tiers.memory.items()}


def test_what_memory_evicts_is_on_the_host_and_comes_back(tmp_path: Path) -> None:
    with Cache.open(tmp_path, memory_bytes=20 * KILO, strict=True) as cache:
        keep(cache, "cheap", 0.01)
        for n in range(3):
            keep(cache, n, 1.0)
        assert where(cache, "cheap") is Tier.HOST
        assert where(cache, "cheap") is Tier.HOST, "worth less than all that is in memory"
        assert live(cache) == {"0", "1", "2"}
        keep(cache, "dear", 100.0)
        (gone,) = {"0", "1", "2"} - live(cache)
        cache.forget(key("dear"))
        assert where(cache, gone) is Tier.HOST
        assert where(cache, gone) is Tier.MEMORY, "promoted by the look before"


def test_what_the_host_evicts_is_with_all_hosts_and_comes_back(tmp_path: Path) -> None:
    shared = f"file://{tmp_path}/shared"
    (tmp_path / "shared").mkdir(mode=0o700)
    with Cache.open(
        tmp_path / "c", shared=shared, memory_bytes=0, disk_bytes=40 * KILO, strict=True
    ) as cache:
        for n in range(20):
            keep(cache, n, 1.0)
        assert cache.store is not None
        stored = {n for n in range(20) if cache.store.read(key(n).digest) is not None}
        assert len(stored) < 10
        missing = min(set(range(20)) - stored)
        assert where(cache, missing) is Tier.SHARED
        assert where(cache, missing) is Tier.HOST, "promoted by the look before"


def test_the_policy_in_memory_can_be_chosen(tmp_path: Path) -> None:
    for policy, survivor in ((LRU, "recent"), (GDSF, "dear")):
        with Cache.open(tmp_path / survivor, memory_bytes=15 * KILO, memory_policy=policy) as cache:
            keep(cache, "dear", 100.0)
            keep(cache, "recent", 0.1)
            keep(cache, "last", 1.0)
            assert live(cache) == {survivor, "last"}


def test_groups_have_shares_of_memory(tmp_path: Path) -> None:
    def policy() -> Grouped:
        return Grouped({"loud": Quota(entries=2)}, make=LRU)

    cache = Cache(memory_policy=policy)
    keep(cache, "quiet", 0.001, group="quiet")
    for n in range(9):
        keep(cache, n, 100.0, group="loud")
    assert [where(cache, n) for n in range(9)] == [None] * 7 + [Tier.MEMORY] * 2
    assert where(cache, "quiet") is Tier.MEMORY
