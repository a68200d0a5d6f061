"""The tests that every eviction policy must pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trivet.policies import Policy, Token

_TOKENS = st.integers(0, 12).map(lambda number: number.to_bytes(32, "big"))
_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("inserted"), _TOKENS, st.integers(0, 1_000), st.floats(0, 100), st.text("ab")
        ),
        st.tuples(st.just("touched"), _TOKENS),
        st.tuples(st.just("removed"), _TOKENS),
        st.tuples(st.just("evict"), st.just(b"")),
    ),
    max_size=120,
)
# The same examples on every run. One test function serves all subclasses, which is what the health
# check warns about; it matters only to the example database, which such runs don't use.
_settings = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.differing_executors],
)


class PolicyContract:
    """Subclass it in a test module and override `make`; pytest runs the suite.

    ::

        from trivet.testing import PolicyContract

        class TestMyPolicy(PolicyContract):
            def make(self):
                return MyPolicy()
    """

    def make(self) -> Policy:
        """A new policy that tracks nothing."""
        raise NotImplementedError("override make()")

    def test_nothing_tracked_is_no_victim(self) -> None:
        policy = self.make()
        assert policy.victim() is None
        assert policy.victim(full=False) is None

    def test_what_is_not_tracked_is_ignored(self) -> None:
        policy = self.make()
        policy.touched(b"x")
        policy.removed(b"x")
        policy.inserted(b"a", 1, 1.0)
        policy.touched(b"x")
        policy.removed(b"x")
        assert policy.victim() == b"a"

    def test_a_victim_stays_tracked_until_it_is_removed(self) -> None:
        policy = self.make()
        for token in (b"a", b"b"):
            policy.inserted(token, 1, 1.0)
        first = policy.victim()
        assert policy.victim() == first
        policy.removed(first)
        second = policy.victim()
        assert {first, second} == {b"a", b"b"}
        policy.removed(second)
        assert policy.victim() is None

    def test_a_removed_token_is_never_named(self) -> None:
        policy = self.make()
        for token in (b"a", b"b", b"c"):
            policy.inserted(token, 1, 1.0)
        policy.removed(b"b")
        assert set(policy.ranked()) == {b"a", b"c"}
        assert set(_drain(policy)) == {b"a", b"c"}

    def test_a_token_inserted_twice_is_tracked_once(self) -> None:
        policy = self.make()
        policy.inserted(b"a", 10, 1.0, "one")
        policy.inserted(b"a", 20, 2.0, "two")
        assert list(_drain(policy)) == [b"a"]

    def test_odd_sizes_and_costs_are_borne(self) -> None:
        policy = self.make()
        odd = [0.0, -1.0, float("inf"), float("nan"), 5e-324, 1e308]
        for i, cost in enumerate(odd):
            policy.inserted(b"c%d" % i, 10, cost)
        for i, size in enumerate([0, 1, 1 << 62]):
            policy.inserted(b"s%d" % i, size, 1.0)
        assert len(set(_drain(policy))) == len(odd) + 3

    @_settings
    @given(steps=_STEPS)
    def test_victims_are_exactly_what_is_tracked(self, steps: list[tuple[object, ...]]) -> None:
        policy, tracked = self.make(), set[Token]()
        for name, token, *facts in steps:
            if name == "evict":
                victim = policy.victim()
                assert (victim is None) == (not tracked)
                if victim is not None:
                    assert victim in tracked
                    tracked.remove(victim)
                    policy.removed(victim)
                continue
            getattr(policy, str(name))(token, *facts)
            if name == "inserted":
                tracked.add(token)
            elif name == "removed":
                tracked.discard(token)
        ranked = policy.ranked()
        assert len(ranked) == len(tracked)
        assert set(ranked) == tracked
        drained = list(_drain(policy))
        assert len(drained) == len(tracked)
        assert set(drained) == tracked

    @_settings
    @given(steps=_STEPS)
    def test_the_same_history_names_the_same_victims(self, steps: list[tuple[object, ...]]) -> None:
        orders = []
        for policy in (self.make(), self.make()):
            order = []
            for name, token, *facts in steps:
                if name != "evict":
                    getattr(policy, str(name))(token, *facts)
                elif (victim := policy.victim()) is not None:
                    policy.removed(victim)
                    order.append(victim)
            orders.append(order + list(_drain(policy)))
        assert orders[0] == orders[1]

    def test_uses_from_other_threads_do_no_harm(self) -> None:
        policy = self.make()
        tokens = [number.to_bytes(32, "big") for number in range(50)]
        done = threading.Event()

        def use() -> None:
            while not done.is_set():
                for token in tokens:
                    policy.touched(token)

        tracked: set[Token] = set()
        with ThreadPoolExecutor(2) as pool:
            users = [pool.submit(use) for _ in range(2)]
            try:
                for i in range(3_000):
                    token = tokens[i * 7 % 50]
                    policy.inserted(token, 1 + i % 5, 0.1 * (i % 3))
                    tracked.add(token)
                    if len(tracked) > 20:
                        victim = policy.victim()
                        assert victim in tracked
                        policy.removed(victim)
                        tracked.remove(victim)
            finally:
                done.set()
            for user in users:
                user.result()
        assert set(_drain(policy)) == tracked


def _drain(policy: Policy) -> Iterator[Token]:
    """Evict everything; fails instead of running for ever."""
    for _ in range(10_000):
        victim = policy.victim()
        if victim is None:
            return
        policy.removed(victim)
        yield victim
    pytest.fail("the policy names victims without end")
