"""The memory tier: exact budgets, values by reference, threads, forks and finalizers."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.forks import run_in_time

from trivet.entries import Descriptor
from trivet.keys import Key
from trivet.memory import MemoryEntry, MemoryTier
from trivet.policies import GDSF, LRU, S3FIFO, Grouped, MakePolicy, Quota


class Value:
    """Something that can be watched."""


def digest(name: object) -> bytes:
    return Key("value/1", {"name": str(name)}).digest


def entry(value: object = None, *, group: str = "") -> MemoryEntry:
    facts = Descriptor(codec="bytes/1", created=0.0, group=group)
    return MemoryEntry(Key("value/1", {"name": str(value)}), value, facts)


def test_what_was_put_is_got_by_reference() -> None:
    tier, value = MemoryTier(100), Value()
    kept = MemoryEntry(entry().key, value, entry().descriptor, 7, 12.5)
    assert tier.put(digest("a"), kept, 10, 1.0)
    found = tier.get(digest("a"))
    assert found is kept
    assert found.value is value
    assert (found.generation, found.expires) == (7, 12.5)
    assert tier.get(digest("b")) is None


def test_stats_count_bytes_entries_hits_and_evictions() -> None:
    tier = MemoryTier(100, LRU)
    for name in "abc":
        tier.put(digest(name), entry(), 40, 1.0)
    tier.get(digest("c"))
    tier.get(digest("a"))  # evicted
    assert tier.stats() == (80, 100, 2, 1, 1)


def test_the_least_recently_used_goes_first_and_a_hit_is_a_use() -> None:
    tier = MemoryTier(100, LRU)
    tier.put(digest("a"), entry(), 50, 1.0)
    tier.put(digest("b"), entry(), 50, 1.0)
    tier.get(digest("a"))
    tier.put(digest("c"), entry(), 50, 1.0)
    assert tier.get(digest("b")) is None
    assert tier.get(digest("a")) is not None


def test_the_cheapest_to_compute_goes_first_by_default() -> None:
    tier = MemoryTier(100)
    tier.put(digest("dear"), entry(), 50, 20.0)
    tier.put(digest("cheap"), entry(), 50, 0.001)
    tier.put(digest("new"), entry(), 50, 1.0)
    assert tier.get(digest("dear")) is not None
    assert tier.get(digest("cheap")) is None


@pytest.mark.parametrize("make", [GDSF, LRU, S3FIFO, Grouped])
def test_a_value_over_the_budget_is_not_kept_and_evicts_nobody(make: MakePolicy) -> None:
    tier = MemoryTier(100, make)
    tier.put(digest("a"), entry(), 100, 1.0)
    assert not tier.put(digest("b"), entry(), 101, 1e6)
    assert tier.get(digest("b")) is None
    assert tier.get(digest("a")) is not None


def test_a_value_that_grew_over_the_budget_replaces_its_old_one_by_nothing() -> None:
    tier = MemoryTier(100)
    tier.put(digest("a"), entry("old"), 10, 1.0)
    assert not tier.put(digest("a"), entry("new"), 101, 1.0)
    assert tier.get(digest("a")) is None
    assert tier.stats().size == 0


def test_a_replacement_is_counted_once() -> None:
    tier = MemoryTier(100)
    for size in (10, 90, 30):
        assert tier.put(digest("a"), entry(size), size, 1.0)
    found = tier.get(digest("a"))
    assert found is not None
    assert found.value == 30
    assert tier.stats()[:3] == (30, 100, 1)


def test_a_newcomer_worth_less_than_all_is_not_kept() -> None:
    tier = MemoryTier(100)
    tier.put(digest("a"), entry(), 100, 10.0)
    assert not tier.put(digest("b"), entry(), 100, 0.001)
    assert tier.get(digest("a")) is not None


def test_removing_and_clearing_are_no_evictions() -> None:
    gone: list[bytes] = []
    tier = MemoryTier(100, on_evict=lambda digest, entry: gone.append(digest))
    for name in "abc":
        tier.put(digest(name), entry(), 10, 1.0)
    assert tier.remove(digest("a")) is True
    assert tier.remove(digest("a")) is False
    assert tier.stats()[:3] == (20, 100, 2)
    tier.clear()
    assert tier.stats()[:3] == (0, 100, 0)
    assert tier.get(digest("b")) is None
    assert tier.put(digest("b"), entry(), 100, 1.0)
    assert gone == [], "neither is an eviction"


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        MemoryTier(100).put(digest("a"), entry(), -1, 1.0)


def test_quotas_hold_while_there_is_room() -> None:
    tier = MemoryTier(1_000, lambda: Grouped({"loud": Quota(size=100)}, make=LRU))
    tier.put(digest("quiet"), entry(group="quiet"), 100, 1.0)
    for i in range(20):
        tier.put(digest(i), entry(group="loud"), 50, 1.0)
    assert tier.get(digest("quiet")) is not None
    assert tier.stats()[:3] == (200, 1_000, 3)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 120), st.floats(0, 9), st.booleans()),
        max_size=60,
    ),
    st.sampled_from([GDSF, LRU, S3FIFO, Grouped]),
)
def test_the_budget_is_never_exceeded_and_every_byte_is_accounted_for(
    steps: list[tuple[str, int, float, bool]], make: MakePolicy
) -> None:
    gone: list[tuple[bytes, int]] = []
    tier = MemoryTier(100, make, lambda digest, entry: gone.append((digest, entry.value)))
    held: dict[bytes, int] = {}
    for name, size, cost, remove in steps:
        token = digest(name)
        if remove:
            assert tier.remove(token) is (held.pop(token, None) is not None)
        else:
            kept = tier.put(token, entry(size), size, cost)
            for lost, value in gone:
                assert held.pop(lost) == value, "what on_evict reports was there"
            gone.clear()
            if kept:
                held[token] = size
            else:
                assert token not in held
        assert tier.stats()[:3] == (sum(held.values()), 100, len(held))
        assert sum(held.values()) <= 100
        for token, value in held.items():
            found = tier.get(token)
            assert found is not None
            assert found.value == value


def test_evicted_values_are_let_go() -> None:
    tier, value = MemoryTier(100, LRU), Value()
    watch = weakref.ref(value)
    tier.put(digest("a"), entry(value), 100, 1.0)
    del value
    assert watch() is not None
    tier.put(digest("b"), entry(), 100, 1.0)
    assert watch() is None


def test_a_tier_is_let_go() -> None:
    tier = MemoryTier(100)
    watch = weakref.ref(tier)
    del tier
    gc.collect()
    assert watch() is None


def test_on_evict_may_use_the_tier() -> None:
    spilled: list[bytes] = []

    def spill(digest: bytes, entry: MemoryEntry) -> None:
        with ThreadPoolExecutor(1) as pool:  # another thread, so a held lock would hang
            assert pool.submit(tier.get, digest).result(timeout=20) is None
            pool.submit(tier.remove, digest).result(timeout=20)
        spilled.append(digest)

    tier = MemoryTier(100, LRU, spill)
    for name in "ab":
        tier.put(digest(name), entry(), 100, 1.0)
    assert spilled == [digest("a")]


def test_threads_together_keep_the_books() -> None:
    evicted: list[bytes] = []
    tier = MemoryTier(2_000, GDSF, lambda digest, entry: evicted.append(digest))
    names = [digest(i) for i in range(100)]
    keys = {name: entry(name) for name in names}

    def work(seed: int) -> int:
        rng, hits = random.Random(seed), 0
        for _ in range(3_000):
            name = rng.choice(names)
            what = rng.random()
            if what < 0.5:
                found = tier.get(name)
                assert found is None or found.value is name
                hits += found is not None
            elif what < 0.95:
                tier.put(name, keys[name], rng.randrange(100), rng.random())
            elif what < 0.99:
                tier.remove(name)
            else:
                assert tier.stats().size <= 2_000
        return hits

    with ThreadPoolExecutor(4) as pool:
        hits = sum(pool.map(work, range(4)))
    stats = tier.stats()
    assert stats.evictions == len(evicted) > 0
    assert 0 < stats.hits <= hits
    assert stats.size == sum(tier._sizes.values())
    assert set(tier._sizes) == set(tier._entries)
    assert stats.entries == sum(tier.get(name) is not None for name in names)
    tracked = set()
    while (victim := tier._policy.victim()) is not None:
        tier._policy.removed(victim)
        tracked.add(victim)
    assert tracked == set(tier._entries)


PROGRAM = """
import gc, sys, threading
from trivet.entries import Descriptor
from trivet.keys import Key
from trivet.memory import MemoryEntry, MemoryTier
from trivet.policies import {policy}

class Collecting({policy}):
    '''Garbage is collected in the middle of every change, as Python may choose to do.'''
    def inserted(self, *args):
        touchy[0] = args[0]
        gc.collect()
        super().inserted(*args)
        gc.collect()
    def removed(self, token):
        touchy[0] = token
        super().removed(token)
        gc.collect()
    def victim(self, full=True):
        gc.collect()
        return super().victim(full)

key, facts = Key("value/1", {{}}), Descriptor(codec="c", created=0.0)
tier = MemoryTier(1_000, Collecting)
touchy = [bytes(32)]  # what is being changed right now: the worst to lay hands on
calls = {{"put": 0, "remove": 0, "clear": 0, "get": 0, "inside": 0}}

class Loop:
    '''Garbage that only the collector finds, whose finalizer uses the tier.'''
    def __init__(self):
        self.me = self
    def __del__(self):
        number = sum(calls.values())
        name = touchy[0] if number % 2 else bytes([number % 40]) * 32
        calls["inside"] += tier._busy
        what = ("put", "remove", "get", "put", "remove")[number % 5]
        if number % 97 == 0:
            what = "clear"
        calls[what] += 1
        if what == "put":
            tier.put(name, MemoryEntry(key, Loop(), facts), 30, 1.0)
        elif what == "clear":
            tier.clear()
        else:
            getattr(tier, what)(name)

gc.freeze()
for i in range(1_000):
    tier.put(bytes([i % 40]) * 32, MemoryEntry(key, Loop(), facts), 10 + i % 50, 0.1)
    tier.get(bytes([i % 7]) * 32)
gc.disable()
assert calls["inside"] > 500, calls
assert tier._size == sum(tier._sizes.values()) <= 1_000
assert set(tier._sizes) == set(tier._entries)
while (token := tier._policy.victim()) is not None:
    del tier._sizes[token]
    tier._policy.removed(token)
assert tier._sizes == {{}}
print("done")
sys.stdout.flush()
import os
os._exit(0)
"""


@pytest.mark.parametrize("policy", ["GDSF", "LRU", "S3FIFO", "Grouped"])
def test_a_finalizer_that_uses_the_tier_inside_a_change_neither_hangs_nor_breaks_it(
    policy: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(policy=policy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_forked_child_keeps_the_values() -> None:
    tier = MemoryTier(100)
    tier.put(digest("a"), entry("a"), 10, 1.0)

    def check() -> None:
        found = tier.get(digest("a"))
        assert found is not None
        assert found.value == "a"
        assert tier.put(digest("b"), entry("b"), 10, 1.0)
        assert tier.stats().size == 20

    assert run_in_time(check) == 0
    assert tier.get(digest("b")) is None


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle_of_another_threads_change_leaves_an_empty_usable_tier() -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Slow(LRU):
        """Stops in the middle of a change until it is told to go on."""

        def inserted(self, token: object, size: int, cost: float, group: str = "") -> None:
            super().inserted(token, size, cost, group)
            if token == digest("slow"):
                inside.set()
                go_on.wait(30)

    tier = MemoryTier(100, Slow)
    tier.put(digest("a"), entry("a"), 10, 1.0)

    def check() -> None:
        assert tier.stats()[:3] == (0, 100, 0)
        assert tier.put(digest("b"), entry("b"), 100, 1.0)
        assert tier.get(digest("b")) is not None
        assert tier.remove(digest("b"))

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(tier.put, digest("slow"), entry("slow"), 20, 1.0)
        assert inside.wait(30)
        status = run_in_time(check)
        go_on.set()
        assert changing.result(timeout=30)
    assert status == 0
    assert tier.stats()[:3] == (30, 100, 2), "the parent is as if nothing happened"
