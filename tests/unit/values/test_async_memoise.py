"""Memos of coroutine functions: one computation, and nobody suffers for another's cancellation."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet import Cache, ComputeFailed
from trivet.cache import Replaced, Unchanged
from trivet.errors import Unkeyable
from trivet.values import memo


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path) as cache:
        yield cache


class Work:
    """Counts calls, and ends when it is told to; no part of what a function computes with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, what: Any) -> None:
        self.calls.append(what)
        self.begun.set()
        await self.go.wait()


def slow_memo(cache: Cache, work: Work, **options: Any) -> Any:
    @memo(cache, ignore=["work"], **options)
    async def slow(x: int) -> Any:
        await work(x)
        return np.arange(x)

    return slow


def test_fifty_tasks_make_one_call_and_find_it_in_another_loop(cache: Cache) -> None:
    work = Work()
    slow = slow_memo(cache, work)

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(slow(3)) for _ in range(50)]
        await work.begun.wait()
        work.go.set()
        return await asyncio.gather(*tasks)

    found = [*asyncio.run(main()), asyncio.run(slow(3))]
    assert [each.tolist() for each in found] == [[0, 1, 2]] * 51
    assert not any(each.flags.writeable for each in found)
    assert work.calls == [3]


def test_tasks_are_let_go(cache: Cache) -> None:
    tasks: list[weakref.ref[Any]] = []

    @memo(cache, version="1", lifetime=60, stale=60)
    async def own(x: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(weakref.ref(task))
        if x < 0:
            raise LookupError(x)
        return x

    async def main() -> None:
        await asyncio.gather(*(own(x) for x in (1, 2, -3)), return_exceptions=True)
        assert await own.map([1, 4, 5]) == [1, 4, 5]

    asyncio.run(main())
    gc.collect()
    assert len(tasks) == 5
    assert [each() for each in tasks] == [None] * 5


def test_a_cancelled_leader_hands_its_turn_over(cache: Cache) -> None:
    work = Work()
    slow = slow_memo(cache, work)

    async def main() -> list[Any]:
        leader = asyncio.create_task(slow(2))
        await work.begun.wait()
        others = [asyncio.create_task(slow(2)) for _ in range(5)]
        await asyncio.sleep(0)
        leader.cancel()
        work.go.set()
        with pytest.raises(asyncio.CancelledError):
            await leader
        return await asyncio.gather(*others)

    assert [each.tolist() for each in asyncio.run(main())] == [[0, 1]] * 5
    assert work.calls == [2, 2]


def test_a_failure_reaches_all_who_wait_and_is_not_kept(cache: Cache) -> None:
    work = Work()

    @memo(cache, ignore=["work"])
    async def fail(x: int) -> int:
        await work(x)
        raise LookupError("no such thing")

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(fail(1)) for _ in range(5)]
        await work.begun.wait()
        work.go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert {type(each) for each in asyncio.run(main())} == {LookupError}
    before = len(work.calls)
    with pytest.raises(LookupError):
        asyncio.run(fail(1))
    assert len(work.calls) == before + 1


def test_a_failure_that_would_come_again_is_kept(cache: Cache) -> None:
    calls = []

    @memo(cache, ignore=["calls"], record=(LookupError,))
    async def fail(x: int) -> int:
        calls.append(x)
        raise LookupError("no such thing")

    with pytest.raises(LookupError):
        asyncio.run(fail(1))
    with pytest.raises(ComputeFailed, match="no such thing"):
        asyncio.run(fail(1))
    assert calls == [1]


def test_a_method_of_a_class(cache: Cache) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Model:
        scale: int

        @memo(cache)
        async def run(self, x: int) -> int:
            return self.scale * x

    assert [asyncio.run(Model(n).run(3)) for n in (2, 3, 2)] == [6, 9, 6]
    assert Model(2).run.forget(3)


def test_generators_are_refused(cache: Cache) -> None:
    async def items(n: int) -> Any:
        yield n

    def more(n: int) -> Any:
        yield n

    for each in (items, more):
        with pytest.raises(TypeError, match=r"generator; let a function return a list"):
            memo(cache)(each)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_what_can_be_used_only_once_is_not_kept(cache: Cache) -> None:
    async def count(n: int) -> int:
        return n

    async def numbers(n: int) -> Any:
        yield n

    def none(n: int) -> Any:
        return (each for each in range(n))

    unawaited = count(1)
    for result, word in (
        (unawaited, "coroutine"),
        (numbers(1), "async_generator"),
        (none(1), "generator"),
    ):

        @memo(cache, version=word, ignore=["result"])
        def hides() -> Any:
            return result  # noqa: B023

        with pytest.raises(TypeError, match=f"a {word} can be used only once; return"):
            hides()
    unawaited.close()


def test_an_argument_that_becomes_unkeyable_keeps_nobody_waiting(cache: Cache) -> None:
    errors = []

    @memo(cache, wait=60)
    async def spoil(items: list[Any]) -> int:
        items.append(threading.Lock())
        return 1

    async def ask() -> None:
        try:
            await spoil([1])
        except Unkeyable as error:
            errors.append(error)  # and with it the frames that hold the lease

    for _ in range(2):
        asyncio.run(asyncio.wait_for(ask(), 5))
    assert len(errors) == 2


def test_what_was_computed_elsewhere_is_filled_in_and_its_changes_are_told(cache: Cache) -> None:
    @memo(cache)
    async def features(day: str) -> dict[str, int]:
        raise AssertionError("it was filled in")

    features.fill([(features.key("monday"), {"users": 3}, 2.0)])
    assert asyncio.run(features("monday")) == {"users": 3}
    first = features.look_since(b"", "monday")
    assert isinstance(first, Replaced)
    assert features.look_since(first.stamp, "monday") == Unchanged(first.stamp)
