"""Whatever two processes do, nobody is given a value that is too old, or that was invalidated."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from trivet import Cache
from trivet.testing import FakeClock
from trivet.values import memo

LIFETIME, STALE = 10.0, 5.0
WHO = st.integers(0, 1)


class Process:
    """A cache of its own, whose threads do their work when they are told to."""

    def __init__(self, folder: str, clock: FakeClock, compute: Callable[[], Any]) -> None:
        self.cache = Cache.open(folder, clock=clock)
        self.works: list[Callable[[], object]] = []
        self.cache.engine.refreshes().start = self.works.append  # type: ignore[method-assign]

        @memo(self.cache, version="1", lifetime=LIFETIME, stale=STALE, early=1.0)
        def value(n: int) -> Any:
            return compute()

        self.fresh: Any = value
        self.plain: Any = memo(self.cache, version="1", lifetime=LIFETIME)(value.function)


class Freshness(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.clock = FakeClock()
        self.epoch = 0
        self.fails = False
        self.seconds = 0.0
        self.meanwhile: list[Callable[[], object]] = []
        self.processes = [Process(self.folder, self.clock, self.compute) for _ in range(2)]

    def compute(self) -> tuple[float, int]:
        """When it was done, and what was current when it began."""
        began = self.epoch
        while self.meanwhile:
            self.meanwhile.pop()()
        self.clock.advance(self.seconds)
        if self.fails:
            raise LookupError("no such thing")
        return self.clock.time(), began

    def ask(self, call: Any, accepted: float) -> None:
        epoch = self.epoch
        try:
            made, of = call(1)
        except LookupError:
            assert self.fails
            return
        assert self.clock.time() - made < accepted
        assert of in (epoch, self.epoch), "invalidated before it was asked for"

    @rule(who=WHO, draw=st.sampled_from([0.0, 0.5, 0.99]))
    def ask_fresh(self, who: int, draw: float) -> None:
        memo = self.processes[who].fresh
        memo.chance = lambda: draw
        self.ask(memo, LIFETIME + STALE)

    @rule(who=WHO)
    def ask_plain(self, who: int) -> None:
        self.ask(self.processes[who].plain, LIFETIME)

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 9.0, 12.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(fails=st.booleans(), seconds=st.sampled_from([0.0, 0.5, 3.0, 30.0]))
    def change(self, fails: bool, seconds: float) -> None:
        self.fails, self.seconds = fails, seconds

    @rule(who=WHO)
    def invalidate(self, who: int) -> None:
        memo = self.processes[who].fresh
        self.epoch += 1
        self.processes[who].cache.invalidate(memo.tag)

    @rule(who=WHO)
    def forget_what_is_live(self, who: int) -> None:
        self.processes[who].cache._tiers.memory.clear()

    @precondition(lambda self: any(each.works for each in self.processes))
    @rule(who=WHO, meanwhile=st.sampled_from(["nothing", "invalidate", "ask"]))
    def make_anew(self, who: int, meanwhile: str) -> None:
        ours, other = self.processes[who], 1 - who
        if not ours.works:
            ours, other = self.processes[other], who
        does = {
            "nothing": lambda: None,
            "invalidate": lambda: self.invalidate(other),
            "ask": lambda: self.ask_fresh(other, 0.99),
        }
        self.meanwhile.append(does[meanwhile])
        ours.works.pop(0)()
        self.meanwhile.clear()

    @precondition(lambda self: any(each.works for each in self.processes))
    @rule()
    def lose_what_was_not_begun(self) -> None:
        for each in self.processes:
            each.works.clear()

    def teardown(self) -> None:
        for each in self.processes:
            each.cache.close()
        shutil.rmtree(self.folder)


def test_nobody_is_given_a_value_that_is_too_old_or_was_invalidated() -> None:
    run_state_machine_as_test(
        Freshness, settings=settings(max_examples=40, stateful_step_count=40, deadline=None)
    )
