"""Each policy against a slow model that follows the definition word by word."""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trivet.policies import GDSF, LRU, S3FIFO, Grouped, MakePolicy, Policy, Quota, Token

TOKENS = st.integers(0, 15).map(lambda number: number.to_bytes(32, "big"))
SIZES = st.integers(0, 64)
COSTS = st.sampled_from([0.0, 1e-6, 0.001, 0.5, 1.0, 3.0, 1e4])
GROUPS = st.sampled_from(["", "a", "b", "c"])


class ExactGDSF:
    """Priorities computed at every use, the least one found by looking at all of them."""

    def __init__(self) -> None:
        self.age = 0.0
        self.frequency: dict[Token, int] = {}
        self.worth: dict[Token, float] = {}
        self.priority: dict[Token, float] = {}

    def inserted(self, token: Token, size: int, cost: float, group: str = "") -> None:
        self.frequency.setdefault(token, 1)
        self.worth[token] = max(cost, 1e-6) / max(size, 1)
        self.price(token)

    def touched(self, token: Token) -> None:
        if token in self.priority:
            self.frequency[token] += 1
            self.price(token)

    def price(self, token: Token) -> None:
        self.priority[token] = self.age + self.frequency[token] * self.worth[token]

    def removed(self, token: Token) -> None:
        for facts in (self.frequency, self.worth, self.priority):
            facts.pop(token, None)  # type: ignore[attr-defined]

    def victims(self) -> set[Token]:
        """All that are equally good to evict."""
        if not self.priority:
            return set()
        least = min(self.priority.values())
        self.age = max(self.age, least)
        return {token for token, priority in self.priority.items() if priority == least}


class ExactLRU:
    def __init__(self) -> None:
        self.order: list[Token] = []

    def inserted(self, token: Token, size: int, cost: float, group: str = "") -> None:
        self.removed(token)
        self.order.append(token)

    def touched(self, token: Token) -> None:
        if token in self.order:
            self.inserted(token, 0, 0.0)

    def removed(self, token: Token) -> None:
        if token in self.order:
            self.order.remove(token)

    def victims(self) -> set[Token]:
        return set(self.order[:1])


class ExactS3FIFO:
    """Queues as lists, oldest first, of [token, size, uses]; the algorithm as published."""

    def __init__(self) -> None:
        self.small: list[list[Any]] = []
        self.main: list[list[Any]] = []
        self.ghosts: list[Token] = []
        self.named: Token | None = None

    def find(self, token: Token) -> list[Any] | None:
        return next((each for each in self.small + self.main if each[0] == token), None)

    def inserted(self, token: Token, size: int, cost: float, group: str = "") -> None:
        found = self.find(token)
        if found is not None:
            found[1] = size
        elif token in self.ghosts:
            self.ghosts.remove(token)
            self.main.append([token, size, 0])
        else:
            self.small.append([token, size, 0])

    def touched(self, token: Token) -> None:
        found = self.find(token)
        if found is not None:
            found[2] = min(found[2] + 1, 3)

    def removed(self, token: Token) -> None:
        found = self.find(token)
        if found is None:
            return
        if found in self.small:
            self.small.remove(found)
            if token == self.named:
                self.ghosts.append(token)
        else:
            self.main.remove(found)
        self.named = None
        excess = len(self.ghosts) - len(self.small) - len(self.main)
        del self.ghosts[: max(excess, 0)]

    def victims(self) -> set[Token]:
        while self.small or self.main:
            small_size = sum(each[1] for each in self.small)
            main_size = sum(each[1] for each in self.main)
            if small_size * 10 >= small_size + main_size or not self.main:
                head = self.small[0] if self.small else None
                if head is None:  # no bytes in either, and nothing in the small queue
                    head = self.main[0]
            else:
                head = self.main[0]
            if head in self.small and head[2] > 1:
                self.small.remove(head)
                self.main.append([head[0], head[1], 0])
            elif head in self.main and head[2] > 0:
                self.main.remove(head)
                self.main.append([head[0], head[1], head[2] - 1])
            else:
                self.named = head[0]
                return {head[0]}
        return set()


class PolicyMachine(RuleBasedStateMachine):
    """Random histories; at every eviction the policy names a victim that the model would."""

    policy: Policy
    model: Any

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[Token, int] = {}

    @rule(token=TOKENS, size=SIZES, cost=COSTS)
    def insert(self, token: bytes, size: int, cost: float) -> None:
        self.policy.inserted(token, size, cost)
        self.model.inserted(token, size, cost)
        self.sizes[token] = size

    @rule(token=TOKENS, times=st.integers(1, 4))
    def touch(self, token: bytes, times: int) -> None:
        for _ in range(times):
            self.policy.touched(token)
            self.model.touched(token)

    @rule(token=TOKENS)
    def remove(self, token: bytes) -> None:
        self.policy.removed(token)
        self.model.removed(token)
        self.sizes.pop(token, None)

    @rule(keep=st.integers(0, 200))
    def evict_down_to(self, keep: int) -> None:
        while sum(self.sizes.values()) > keep:
            self.evict()

    @precondition(lambda self: self.sizes)
    @rule()
    def evict(self) -> None:
        victim = self.policy.victim()
        assert victim in self.model.victims()
        assert victim is not None
        self.policy.removed(victim)
        self.model.removed(victim)
        del self.sizes[victim]

    @invariant()
    def there_is_a_victim_exactly_while_something_is_tracked(self) -> None:
        assert (self.policy.victim() is None) == (not self.sizes)
        assert self.policy.victim(full=False) is None
        self.model.victims()  # asking may reorder queues and age entries; do the same on both sides


class GDSFMachine(PolicyMachine):
    def __init__(self) -> None:
        super().__init__()
        self.policy, self.model = GDSF(), ExactGDSF()

    @invariant()
    def the_heap_does_not_pile_up(self) -> None:
        assert len(self.policy._heap) <= 2 * len(self.sizes) + 16 + 64 + 1  # type: ignore[attr-defined]


class LRUMachine(PolicyMachine):
    def __init__(self) -> None:
        super().__init__()
        self.policy, self.model = LRU(), ExactLRU()


class S3FIFOMachine(PolicyMachine):
    def __init__(self) -> None:
        super().__init__()
        self.policy, self.model = S3FIFO(), ExactS3FIFO()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("make", "make_model"), [(GDSF, ExactGDSF), (LRU, ExactLRU), (S3FIFO, ExactS3FIFO)]
)
def test_a_long_history_under_pressure_has_the_victims_of_the_model(
    make: MakePolicy, make_model: Any, seed: int
) -> None:
    """What short random histories seldom reach: promotions, second rounds, returns, ageing."""
    rng = random.Random(seed)
    policy, model, sizes = make(), make_model(), dict[Token, int]()
    evictions = 0
    for _ in range(6_000):
        token = int(rng.paretovariate(0.5)) % 60
        if token in sizes and rng.random() < 0.97:
            policy.touched(token)
            model.touched(token)
            continue
        if token in sizes and rng.random() < 0.5:
            policy.removed(token)
            model.removed(token)
            del sizes[token]
            continue
        size, cost = rng.randrange(20), rng.choice([0.0, 0.01, 1.0, 50.0])
        policy.inserted(token, size, cost)
        model.inserted(token, size, cost)
        sizes[token] = size
        while sum(sizes.values()) > 150:
            victim = policy.victim()
            assert victim in model.victims()
            policy.removed(victim)
            model.removed(victim)
            del sizes[victim]
            evictions += 1
    assert evictions > 500


QUOTAS = {"a": Quota(size=100), "b": Quota(entries=2), "c": Quota(size=80, entries=4)}


class GroupedMachine(RuleBasedStateMachine):
    """Quotas hold after each insertion, and nobody pays for another group's flood."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Grouped(QUOTAS, make=LRU)
        self.tracked: dict[Token, tuple[str, int]] = {}

    def load(self, name: str) -> tuple[int, int]:
        sizes = [size for group, size in self.tracked.values() if group == name]
        return sum(sizes), len(sizes)

    def over(self, name: str) -> bool:
        quota, (size, entries) = QUOTAS.get(name, Quota()), self.load(name)
        return (quota.size is not None and size > quota.size) or (
            quota.entries is not None and entries > quota.entries
        )

    @rule(token=TOKENS, size=SIZES, group=GROUPS)
    def insert(self, token: bytes, size: int, group: str) -> None:
        self.policy.inserted(token, size, 1.0, group)
        self.tracked[token] = group, size
        while (victim := self.policy.victim(full=False)) is not None:
            owner, _ = self.tracked.pop(victim)
            assert owner == group, "only the group that grew gives up entries"
            self.policy.removed(victim)

    @rule(token=TOKENS)
    def remove(self, token: bytes) -> None:
        self.policy.removed(token)
        self.tracked.pop(token, None)

    @rule(token=TOKENS)
    def touch(self, token: bytes) -> None:
        self.policy.touched(token)

    @precondition(lambda self: self.tracked)
    @rule()
    def evict(self) -> None:
        victim = self.policy.victim()
        assert victim is not None
        del self.tracked[victim]
        self.policy.removed(victim)

    @invariant()
    def quotas_hold(self) -> None:
        assert not [name for name in QUOTAS if self.over(name)]


_settings = settings(max_examples=30, stateful_step_count=60, deadline=None)
for _machine in (GDSFMachine, LRUMachine, S3FIFOMachine, GroupedMachine):
    _machine.TestCase.settings = _settings

TestGDSF = GDSFMachine.TestCase
TestLRU = LRUMachine.TestCase
TestS3FIFO = S3FIFOMachine.TestCase
TestGrouped = GroupedMachine.TestCase
