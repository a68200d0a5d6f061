"""Memos whose results are made anew in the background."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet import Cache, Hit
from trivet.events import EventKind
from trivet.testing import FakeClock, Recorder
from trivet.values import ByCost, memo
from trivet.values.fresh import own
from trivet.values.lifetime import is_due


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def events() -> Recorder:
    return Recorder()


@pytest.fixture
def cache(tmp_path: Path, clock: FakeClock, events: Recorder) -> Iterator[Cache]:
    with Cache.open(tmp_path, clock=clock, sink=events) as cache:
        yield cache


@pytest.fixture
def later(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes threads that wait until it is called, and then do all they have to."""
    works: list[Callable[[], object]] = []
    monkeypatch.setattr(cache.engine.refreshes(), "start", works.append)

    def run() -> None:
        while works:
            works.pop(0)()

    run.works = works  # type: ignore[attr-defined]
    return run


class Source:
    """What a function asks that no key sees: counts, takes a while, and may fail."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.count = 0
        self.seconds = 0.0
        self.error: BaseException | None = None
        self.meanwhile: Callable[[], object] = list

    def ask(self) -> int:
        self.count += 1
        self.meanwhile()
        self.clock.advance(self.seconds)
        if self.error is not None:
            raise self.error
        return self.count


def counted(cache: Cache, clock: FakeClock, **options: Any) -> tuple[Any, Source]:
    source = Source(clock)

    @memo(cache, ignore=["source"], **{"lifetime": 10.0, "stale": 5.0, **options})
    def count(x: Any) -> int:
        return source.ask()

    return count, source


# -- stale -------------------------------------------------------------------------------------


def test_who_asks_gets_the_old_value_while_one_makes_a_new_one(
    cache: Cache, clock: FakeClock, events: Recorder, later: Any
) -> None:
    count, source = counted(cache, clock)
    assert [count(1), count(1)] == [1, 1]
    clock.advance(10.0)
    assert [count(1) for _ in range(5)] == [1] * 5
    assert len(later.works) == 1
    assert source.count == 1
    assert events.count(EventKind.STALE) == 5
    later()
    assert source.count == 2
    assert [count(1), count(1)] == [2, 2]
    assert later.works == []
    clock.advance(9.9)
    assert count(1) == 2, "its lifetime began anew"


def test_beyond_the_stale_time_the_caller_computes(
    cache: Cache, clock: FakeClock, later: Any
) -> None:
    count, source = counted(cache, clock)
    count(1)
    clock.advance(14.9)
    assert count(1) == 1
    clock.advance(0.1)
    assert count(1) == 2, "the refresh was never begun"
    later()
    assert source.count == 2, "and is not needed any more"
    assert count(1) == 2


def test_without_it_nothing_is_served_beyond_its_lifetime(
    cache: Cache, clock: FakeClock, later: Any
) -> None:
    count, source = counted(cache, clock)
    count(1)
    clock.advance(10.0)

    @memo(cache, ignore=["source"], lifetime=10.0)
    def plain(x: int) -> int:
        return source.ask()

    plain._keys = count._keys  # the same calls, of a program that was changed
    assert plain(1) == 2
    assert count(1) == 2
    assert later.works == []


def test_look_says_what_is_stale(cache: Cache, clock: FakeClock, later: Any) -> None:
    count, _ = counted(cache, clock)
    count(1)
    found = count.look(1)
    assert isinstance(found, Hit)
    assert not found.stale
    clock.advance(12.0)
    found = count.look(1)
    assert isinstance(found, Hit)
    assert (found.value, found.stale) == (1, True)
    assert clock.time() - (found.descriptor.expires or 0) == pytest.approx(2.0)
    assert count.why(1) == ()
    assert later.works == [], "looking makes nothing"
    clock.advance(3.0)
    assert not isinstance(count.look(1), Hit)


def test_a_refresh_that_raises_leaves_the_old_value_and_rests(
    cache: Cache, clock: FakeClock, events: Recorder, later: Any, caplog: pytest.LogCaptureFixture
) -> None:
    count, source = counted(cache, clock, record=(LookupError,))
    count(1)
    source.error = LookupError("no such thing")
    clock.advance(10.0)
    assert [count(1), later(), count(1), later()] == [1, None, 1, None]
    assert source.count == 2, "not tried again at once"
    (failed,) = events.of(EventKind.REFRESH_FAILED)
    assert failed.detail == "LookupError: no such thing"
    assert failed.digest == count.key(1).digest
    assert "no such thing" in caplog.text
    assert events.count(EventKind.REFUSED) == 0, "what may be served is not overwritten"
    clock.advance(1.0)
    source.error = None
    assert [count(1), later(), count(1)] == [1, None, 3]


def test_a_lasting_failure_is_recorded_by_who_finds_nothing_more(
    cache: Cache, clock: FakeClock, events: Recorder, later: Any
) -> None:
    count, source = counted(cache, clock, record=(LookupError,))
    count(1)
    source.error = LookupError("no such thing")
    clock.advance(12.0)
    assert [count(1), later()] == [1, None]
    clock.advance(3.0)
    with pytest.raises(LookupError):
        count(1)
    assert events.count(EventKind.REFUSED) == 1


def test_what_is_invalidated_meanwhile_is_neither_served_nor_kept(
    cache: Cache, clock: FakeClock, later: Any
) -> None:
    count, source = counted(cache, clock)
    count(1)
    clock.advance(10.0)
    source.meanwhile = lambda: cache.invalidate(count.tag)
    assert [count(1), later()] == [1, None]
    assert source.count == 2
    source.meanwhile = list
    assert count(1) == 3, "neither the old value nor that of the refresh"


def test_what_another_process_made_anew_is_taken(
    cache: Cache, clock: FakeClock, tmp_path: Path, later: Any
) -> None:
    count, source = counted(cache, clock)
    count(1)
    clock.advance(11.0)
    with Cache.open(tmp_path, clock=clock) as other:
        there, _ = counted(other, clock)
        there._keys = count._keys
        there.function = lambda x: 70
        other.engine.refreshes().start = lambda work: work()  # type: ignore[method-assign]
        assert [count(1), there(1), there(1)] == [1, 1, 70]
    assert count(1) == 70
    later()
    assert source.count == 1, "the turn that was taken before finds it, too"


def test_it_says_what_it_needs(cache: Cache) -> None:
    for wrong in ({"stale": 1.0}, {"early": 1.0}):
        with pytest.raises(ValueError, match="give lifetime="):
            memo(cache, **wrong)  # type: ignore[arg-type]
    for wrong in ({"stale": -1.0}, {"early": float("nan")}, {"stale": float("inf")}):
        with pytest.raises(ValueError, match="neither is negative"):
            memo(cache, lifetime=1.0, **wrong)  # type: ignore[arg-type]


def test_a_method_and_a_lifetime_by_cost(cache: Cache, clock: FakeClock, later: Any) -> None:
    source = Source(clock)

    @dataclasses.dataclass
    class Model:
        @memo(cache, ignore=["source"], lifetime=ByCost(factor=5, least=1), stale=5.0)
        def run(self, x: int) -> int:
            return source.ask()

    source.seconds = 2.0
    assert Model().run(1) == 1
    clock.advance(10.0)
    assert [Model().run(1), later(), Model().run(1)] == [1, None, 2]


# -- what a caller does meanwhile ----------------------------------------------------------------


def test_what_the_caller_writes_into_afterwards_is_not_computed_from(
    cache: Cache, clock: FakeClock, later: Any
) -> None:
    source = Source(clock)

    @memo(cache, ignore=["source"], lifetime=10.0, stale=5.0)
    def total(x: np.ndarray, more: dict[str, list[int]]) -> list[int]:
        source.ask()
        return [int(x.sum()), *more["a"]]

    buffer, more = np.ones(3), {"a": [4]}
    assert total(buffer, more) == [3, 4]
    clock.advance(10.0)
    assert total(buffer, more) == [3, 4]
    buffer[:] = 7
    more["a"].append(5)
    later()
    assert total(np.ones(3), {"a": [4]}) == [3, 4]
    assert source.count == 2


def test_copies_are_of_what_can_be_written_into_and_alike() -> None:
    class Handle:
        pass

    handle = Handle()
    given = (1, "a", [1, {2}], {"b": (bytearray(b"c"), handle)}, np.asfortranarray(np.eye(3)))
    copy = own(given)
    assert copy[:3] == given[:3]
    assert copy[3] == given[3]
    assert copy[3]["b"][1] is handle
    assert copy[4].flags == given[4].flags
    for mine, theirs in ((copy[2], given[2]), (copy[2][1], given[2][1]), (copy[4], given[4])):
        assert mine is not theirs


def test_what_is_another_call_in_the_background_is_not_computed(
    cache: Cache, clock: FakeClock, events: Recorder, later: Any
) -> None:
    who = ["a"]
    source = Source(clock)

    @memo(cache, tenant=lambda: who[0], ignore=["who", "source"], lifetime=10.0, stale=5.0)
    def count() -> int:
        return source.ask()

    count()
    clock.advance(10.0)
    count()
    who[0] = "b"
    later()
    assert source.count == 1
    (failed,) = events.of(EventKind.REFRESH_FAILED)
    assert failed.detail.endswith("by: tenant")


def test_a_function_that_changes_what_it_computes_from_is_not_kept(
    cache: Cache, clock: FakeClock, events: Recorder, later: Any
) -> None:
    state = {"n": 1}

    @memo(cache, lifetime=10.0, stale=5.0, depends=["v1"])
    def count(x: list[int]) -> int:
        if state:
            x.append(1)
        return 1

    first = [1]
    count._cache.acquire(count.key(first), count._codec).commit(1, lifetime=10.0, stale=5.0)
    clock.advance(10.0)
    assert [count(first), later()] == [1, None]
    assert events.count(EventKind.DROPPED) == 1
    assert events.count(EventKind.REFRESH_FAILED) == 1


def test_context_variables_of_the_caller_are_there(cache: Cache, clock: FakeClock) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    found: list[str] = []

    @memo(cache, ignore=["who", "found"], tenant=who.get, lifetime=10.0, stale=5.0)
    def ask() -> str:
        found.append(who.get())
        return who.get()

    def call() -> str:
        who.set("me")
        return ask()

    assert contextvars.copy_context().run(call) == "me"
    clock.advance(10.0)
    assert contextvars.copy_context().run(call) == "me"
    cache.engine.refreshes().close(20.0)
    assert found == ["me", "me"]


def test_maps_and_nodes_compute_what_is_over(cache: Cache, clock: FakeClock, later: Any) -> None:
    count, source = counted(cache, clock)
    count(1)
    clock.advance(10.0)
    assert count.map([1]) == [2]
    clock.advance(10.0)
    assert count.node(1).value() == 3
    assert count(1) == 3
    assert later.works == []
    assert source.count == 3


# -- early -------------------------------------------------------------------------------------


def test_the_formula() -> None:
    # One in e draws is below 1/e: then the gap is at least the cost.
    at_e = 1 - 1 / math.e
    assert is_due(98.0, 100.0, cost=2.0, early=1.0, chance=at_e + 1e-9)
    assert not is_due(97.9, 100.0, cost=2.0, early=1.0, chance=at_e)
    assert is_due(96.0, 100.0, cost=2.0, early=2.0, chance=at_e + 1e-9)
    assert not is_due(99.9, 100.0, cost=2.0, early=0.0, chance=0.999999)
    assert not is_due(99.9, 100.0, cost=0.0, early=1.0, chance=0.999999)
    assert not is_due(99.9, 100.0, cost=2.0, early=1.0, chance=0.0)
    assert is_due(100.0, 100.0, cost=0.0, early=1.0, chance=0.0)


def test_before_the_end_one_caller_has_it_made_anew_by_chance(
    cache: Cache, clock: FakeClock, events: Recorder, later: Any
) -> None:
    count, source = counted(cache, clock, stale=0.0, early=1.0)
    source.seconds = 2.0
    draws = [0.0]
    count.chance = lambda: draws[0]
    count(1)
    clock.advance(7.0)
    draws[0] = 0.7  # a gap of 2.4 seconds
    assert [count(1), len(later.works)] == [1, 0]
    clock.advance(1.0)
    draws[0] = 0.5  # 1.4 seconds
    assert [count(1), len(later.works)] == [1, 0]
    draws[0] = 0.7
    assert [count(1), count(1), len(later.works)] == [1, 1, 1]
    assert events.count(EventKind.STALE) == 0
    source.meanwhile = lambda: meanwhile.append(count(1))
    meanwhile: list[int] = []
    later()
    assert meanwhile == [1], "the old one answers while the new one is made"
    draws[0] = 0.0
    assert count(1) == 2
    clock.advance(10.0)
    source.meanwhile = list
    assert count(1) == 3, "with no stale time, who comes late computes"


def test_more_cost_means_sooner(cache: Cache) -> None:
    """As many begin before a second is left as the formula says: exp(-left / cost)."""
    draws = np.random.default_rng(0).random(20_000)
    for cost in (0.1, 1.0, 10.0):
        begun = sum(is_due(99.0, 100.0, cost, 1.0, float(each)) for each in draws)
        assert begun / len(draws) == pytest.approx(math.exp(-1.0 / cost), abs=0.01)


# -- coroutine functions -------------------------------------------------------------------------


def counted_async(cache: Cache, clock: FakeClock, **options: Any) -> tuple[Any, Source]:
    source = Source(clock)
    source.go = asyncio.Event()  # type: ignore[attr-defined]
    source.go.set()  # type: ignore[attr-defined]

    @memo(cache, ignore=["source"], **{"lifetime": 10.0, "stale": 5.0, **options})
    async def count(x: Any) -> int:
        await source.go.wait()  # type: ignore[attr-defined]
        return source.ask()

    return count, source


async def settled(count: Any) -> None:
    while count._tasks:
        await asyncio.gather(*count._tasks, return_exceptions=True)


def test_a_coroutine_function_is_made_anew_in_a_task(cache: Cache, clock: FakeClock) -> None:
    async def main() -> None:
        count, source = counted_async(cache, clock)
        assert await count(1) == 1
        clock.advance(10.0)
        source.go.clear()
        assert await asyncio.gather(*(count(1) for _ in range(20))) == [1] * 20
        assert len(count._tasks) == 1
        assert await count(1) == 1, "from memory, while the task waits"
        source.go.set()
        await settled(count)
        assert await count(1) == 2
        assert source.count == 2

    asyncio.run(main())


def test_a_task_that_is_cancelled_harms_nobody(
    cache: Cache, clock: FakeClock, events: Recorder
) -> None:
    count, source = counted_async(cache, clock)

    async def leave_it_running() -> None:
        await count(1)
        clock.advance(10.0)
        source.go.clear()
        assert await count(1) == 1
        for _ in range(20):
            await asyncio.sleep(0.001)
        # The loop ends, and cancels what runs.

    async def leave_it_unbegun() -> None:
        assert await count(1) == 1

    async def ask() -> None:
        source.go.set()
        assert await count(1) == 1
        await settled(count)
        assert await count(1) == 2

    asyncio.run(leave_it_running())
    asyncio.run(leave_it_unbegun())
    asyncio.run(ask())
    assert events.count(EventKind.REFRESH_FAILED) == 0


def test_a_task_that_raises_is_told_and_rests(
    cache: Cache, clock: FakeClock, events: Recorder
) -> None:
    async def main() -> None:
        count, source = counted_async(cache, clock)
        await count(1)
        source.error = LookupError("no such thing")
        clock.advance(10.0)
        for _ in range(3):
            assert await count(1) == 1
            await settled(count)
        assert source.count == 2
        clock.advance(1.0)
        source.error = None
        assert await count(1) == 1
        await settled(count)
        assert await count(1) == 3

    asyncio.run(main())
    assert events.of(EventKind.REFRESH_FAILED)[0].detail == "LookupError: no such thing"


def test_an_invalidation_during_a_task(cache: Cache, clock: FakeClock) -> None:
    async def main() -> None:
        count, source = counted_async(cache, clock)
        await count(1)
        clock.advance(10.0)
        source.meanwhile = lambda: cache.invalidate(count.tag)
        assert await count(1) == 1
        await settled(count)
        source.meanwhile = list
        assert await count(1) == 3

    asyncio.run(main())


def test_a_coroutine_function_early(cache: Cache, clock: FakeClock) -> None:
    async def main() -> None:
        count, source = counted_async(cache, clock, stale=0.0, early=1.0)
        source.seconds = 2.0
        count.chance = lambda: 0.9
        await count(1)
        clock.advance(9.0)
        assert await count(1) == 1
        await settled(count)
        assert await count(1) == 2

    asyncio.run(main())


def test_what_was_filled_in_may_be_stale_too_and_memory_alone_tells_so(
    clock: FakeClock, tmp_path: Path
) -> None:
    with Cache(clock=clock) as cache:

        @memo(cache, lifetime=10, stale=60)
        def double(x: int) -> int:
            return 2 * x

        double(1)
        clock.advance(20)
        found = double.look(1)
        assert isinstance(found, Hit)
        assert found.stale
        with Cache.open(tmp_path, clock=clock) as other:
            kept = memo(other, lifetime=10, stale=60)(double.function)
            kept.fill([(kept.key(2), 4, 1.0)])
            clock.advance(20)
            filled = kept.look(2)
            assert isinstance(filled, Hit)
            assert filled.stale
