"""What each policy is for, on small histories with a known right answer."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from trivet.policies import GDSF, LRU, S3FIFO, Grouped, MakePolicy, Policy, Quota, Token


def evict(policy: Policy) -> Token | None:
    victim = policy.victim()
    if victim is not None:
        policy.removed(victim)
    return victim


def replay(
    policy: Policy, requests: Iterator[tuple[Token, int, float]], budget: int
) -> tuple[float, float]:
    """Part of requests, and of seconds, that a cache of ``budget`` bytes spares."""
    held: dict[Token, int] = {}
    used, hits, asked, saved, spent = 0, 0, 0, 0.0, 0.0
    for token, size, cost in requests:
        asked += 1
        spent += cost
        if token in held:
            hits += 1
            saved += cost
            policy.touched(token)
            continue
        policy.inserted(token, size, cost)
        held[token] = size
        used += size
        while used > budget:
            victim = policy.victim()
            assert victim is not None
            used -= held.pop(victim)
            policy.removed(victim)
        assert used <= budget
    return hits / asked, saved / spent


def zipf(count: int, seed: int, *, scans: bool = False, costs: bool = False) -> Iterator[
    tuple[Token, int, float]
]:  # fmt: skip
    """Requests over 2 000 objects, the n-th asked for in proportion to 1/n."""
    rng = random.Random(seed)
    weights = [1 / rank for rank in range(1, 2_001)]
    price = [rng.lognormvariate(0, 2) if costs else 1.0 for _ in weights]
    once = 10_000
    for name in rng.choices(range(2_000), weights, k=count):
        yield name, 10, price[name]
        if scans and rng.random() < 0.3:
            once += 1
            yield once, 10, 1.0


# --- GDSF


def test_gdsf_evicts_what_saves_least_per_byte() -> None:
    policy = GDSF()
    policy.inserted("cheap and large", 1_000, 0.1)
    policy.inserted("dear and large", 1_000, 100.0)
    policy.inserted("cheap and small", 1, 0.1)
    policy.inserted("dear and small", 1, 100.0)
    order = [evict(policy) for _ in range(4)]
    assert order[0] == "cheap and large"
    assert order[-1] == "dear and small"


def test_gdsf_counts_uses() -> None:
    policy = GDSF()
    for token in "abc":
        policy.inserted(token, 10, 1.0)
    policy.touched("a")
    policy.touched("a")
    policy.touched("c")
    assert [evict(policy) for _ in range(3)] == ["b", "c", "a"]


def test_gdsf_lets_go_of_what_was_valuable_long_ago() -> None:
    policy = GDSF()
    policy.inserted("old treasure", 1, 50.0)
    for i in range(200):
        policy.inserted(i, 1, 1.0)
        policy.touched(i)
        if evict(policy) == "old treasure":
            return
    pytest.fail("ageing never caught up with an entry that nobody uses")


def test_gdsf_takes_new_facts_of_a_tracked_token() -> None:
    policy = GDSF()
    policy.inserted("a", 1, 100.0)
    policy.inserted("b", 1, 10.0)
    policy.inserted("a", 1_000_000, 1.0)
    assert evict(policy) == "a"


def test_gdsf_still_uses_frequency_where_no_cost_is_known() -> None:
    policy = GDSF()
    for token in "ab":
        policy.inserted(token, 10, 0.0)
    policy.touched("a")
    assert evict(policy) == "b"


def test_gdsf_does_not_grow_with_its_history() -> None:
    policy = GDSF()
    for i in range(20_000):
        policy.inserted(i % 10, 1, 1.0)
        policy.touched(i % 10)
        policy.removed((i + 1) % 10)
    assert len(policy._heap) < 200


def test_gdsf_saves_more_compute_than_lru_where_costs_differ() -> None:
    gdsf = replay(GDSF(), zipf(20_000, 7, costs=True), 1_000)
    lru = replay(LRU(), zipf(20_000, 7, costs=True), 1_000)
    assert gdsf[1] > lru[1] + 0.15


@pytest.mark.parametrize("make", [GDSF, LRU])
def test_victims_come_in_the_reverse_order_of_rank(make: MakePolicy) -> None:
    policy, rng = make(), random.Random(3)
    for token in range(300):
        policy.inserted(token, rng.randrange(1, 100), rng.lognormvariate(0, 2))
    for _ in range(2_000):
        policy.touched(rng.randrange(300))
    for _ in range(50):
        evict(policy)
    ranked = policy.ranked()
    assert [evict(policy) for _ in range(250)] == ranked[::-1]


# --- LRU


def test_lru_evicts_in_order_of_last_use() -> None:
    policy = LRU()
    for token in "abc":
        policy.inserted(token, 1, 1.0)
    policy.touched("a")
    policy.inserted("b", 1, 1.0)
    assert [evict(policy) for _ in range(4)] == ["c", "a", "b", None]


# --- S3-FIFO


def test_s3fifo_keeps_what_is_used_through_a_scan() -> None:
    policy = S3FIFO()
    hot = [f"hot {i}" for i in range(5)]
    for token in hot:
        policy.inserted(token, 10, 1.0)
        policy.touched(token)
        policy.touched(token)
    for i in range(1_000):
        policy.inserted(i, 10, 1.0)
        if i >= 5:
            assert evict(policy) not in hot


def test_s3fifo_remembers_what_it_evicted() -> None:
    policy = S3FIFO()
    for token in "abcdefgh":
        policy.inserted(token, 10, 1.0)
    assert evict(policy) == "a"
    policy.inserted("a", 10, 1.0)  # known: straight to the main queue
    assert [evict(policy) for _ in range(6)] == list("bcdefg")
    assert set(policy._main.entries) == {"a"}


def test_s3fifo_does_not_remember_what_was_invalidated() -> None:
    policy = S3FIFO()
    for token in "abc":
        policy.inserted(token, 10, 1.0)
    policy.removed("a")
    assert list(policy._ghosts) == []


def test_s3fifo_remembers_no_more_than_it_tracks() -> None:
    policy = S3FIFO()
    for i in range(5_000):
        policy.inserted(i, 10, 1.0)
        if i >= 50:
            evict(policy)
    assert len(policy._ghosts) <= 50


def test_s3fifo_hits_more_than_lru_where_scans_pass_through() -> None:
    s3fifo = replay(S3FIFO(), zipf(20_000, 3, scans=True), 1_000)
    lru = replay(LRU(), zipf(20_000, 3, scans=True), 1_000)
    assert s3fifo[0] > lru[0] + 0.02


# --- groups


@pytest.mark.parametrize("make", [GDSF, LRU, S3FIFO])
def test_a_flood_evicts_only_its_own_group(make: MakePolicy) -> None:
    policy = Grouped({"quiet": Quota(size=500), "loud": Quota(size=500)}, make=make)
    quiet = {f"quiet {i}" for i in range(4)}
    for token in quiet:
        policy.inserted(token, 50, 0.001, "quiet")
    lost = []
    for i in range(1_000):  # dearer, newer and more often used than anything of the other group
        policy.inserted(i, 50, 100.0, "loud")
        policy.touched(i)
        full = 200 + 50 * (i + 1 - len(lost)) > 600
        while (victim := policy.victim(full)) is not None:
            policy.removed(victim)
            lost.append(victim)
            full = False
    assert len(lost) == 1_000 - 8
    assert quiet.isdisjoint(lost)


def test_quotas_of_entries_and_of_bytes_both_count() -> None:
    policy = Grouped({"a": Quota(size=100, entries=2)}, make=LRU)
    for token in "xyz":
        policy.inserted(token, 1, 1.0, "a")
    assert policy.victim(full=False) == "x"
    policy.removed("x")
    assert policy.victim(full=False) is None
    policy.inserted("big", 100, 1.0, "a")
    assert policy.victim(full=False) == "y"


def test_a_value_over_its_quota_is_its_own_victim_at_last() -> None:
    policy = Grouped({"a": Quota(size=100)}, make=LRU)
    policy.inserted("x", 101, 1.0, "a")
    assert policy.victim(full=False) == "x"


def test_the_default_quota_is_for_groups_without_one() -> None:
    policy = Grouped({"a": Quota()}, default=Quota(entries=1), make=LRU)
    for token in "xy":
        policy.inserted(token, 1, 1.0, "a")
    assert policy.victim(full=False) is None
    for token in "pq":
        policy.inserted(token, 1, 1.0, "other")
    assert policy.victim(full=False) == "p"


def test_without_room_the_fullest_group_gives() -> None:
    policy = Grouped({"a": Quota(size=100), "b": Quota(size=1_000)}, make=LRU)
    policy.inserted("a1", 90, 1.0, "a")  # 90 % of its quota
    policy.inserted("b1", 400, 1.0, "b")  # 40 %
    policy.inserted("b2", 400, 1.0, "b")  # 80 %
    assert policy.victim() == "a1"
    policy.inserted("b3", 150, 1.0, "b")  # 95 %
    assert policy.victim() == "b1"


def test_a_token_that_changes_its_group_is_counted_once() -> None:
    policy = Grouped({"a": Quota(entries=1), "b": Quota(entries=1)}, make=LRU)
    policy.inserted("x", 1, 1.0, "a")
    policy.inserted("x", 1, 1.0, "b")
    policy.inserted("y", 1, 1.0, "a")
    assert policy.victim(full=False) is None
    assert {evict(policy), evict(policy)} == {"x", "y"}


def test_a_group_is_forgotten_with_its_last_entry() -> None:
    policy = Grouped(default=Quota(entries=5))
    for i in range(1_000):
        policy.inserted(i, 1, 1.0, f"group {i}")
        policy.removed(i)
    assert policy._groups == {}
    assert policy._where == {}


def test_many_groups_share_a_budget_exactly() -> None:
    policy, held, used = Grouped(default=Quota(size=300), make=GDSF), dict[Token, int](), 0
    rng = random.Random(1)
    for i in range(3_000):
        size = rng.randrange(1, 100)
        policy.inserted(i, size, rng.random(), f"group {rng.randrange(6)}")
        held[i] = size
        used += size
        while (victim := policy.victim(full=used > 1_000)) is not None:
            policy.removed(victim)
            used -= held.pop(victim)
        assert used <= 1_000
        assert used == sum(held.values())
