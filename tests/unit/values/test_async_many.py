"""Many calls of a coroutine function: looked up together, and those that are missing in one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.pipelines import Pictures

from trivet import Cache, ComputeFailed
from trivet.events import EventKind
from trivet.values import memo
from trivet.values.async_many import AT_ONCE, together


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path) as cache:
        yield cache


class Model:
    """Answers items one by one or in batches, and notes how."""

    def __init__(self, cache: Cache, **options: Any) -> None:
        single: list[Any] = []
        self.single = single
        self.batches: list[list[Any]] = []
        self.under_way = self.most = 0
        model = self

        @memo(cache, ignore=["model", "single"], **options)
        async def double(x: int, plus: int = 0) -> int:
            single.append(x)
            model.under_way += 1
            model.most = max(model.most, model.under_way)
            await asyncio.sleep(0)
            model.under_way -= 1
            if x < 0:
                raise LookupError(f"no {x}")
            return 2 * x + plus

        self.double: Any = double

    async def batch(self, missing: list[Any]) -> list[int]:
        self.batches.append(missing)
        await asyncio.sleep(0)
        return [2 * each for each in missing]


def test_what_is_missing_is_one_call_and_the_order_is_kept(cache: Cache) -> None:
    model = Model(cache)

    async def main() -> None:
        await model.double(2)
        assert await model.double.map([3, 1, 2, 3, 1], model.batch) == [6, 2, 4, 6, 2]
        assert [sorted(each) for each in model.batches] == [[1, 3]]
        assert await model.double.map([3, 2, 1], model.batch) == [6, 4, 2]
        assert await model.double.map([], model.batch) == []
        assert await model.double(3) == 6

    asyncio.run(main())
    assert len(model.batches) == 1
    assert model.single == [2]


def test_by_itself_each_is_computed_once_and_not_too_many_at_a_time(cache: Cache) -> None:
    model = Model(cache)
    items = [*range(100), *range(100)]
    found = asyncio.run(model.double.map(items, plus=1))
    assert found == [2 * x + 1 for x in items]
    assert sorted(model.single) == list(range(100))
    assert 1 < model.most <= AT_ONCE


def test_calls_together_are_bounded_and_keep_their_order() -> None:
    running, most = 0, 0

    async def call(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 if n % 2 else 0)
        running -= 1
        return n

    found = asyncio.run(together([lambda n=n: call(n) for n in range(200)]))  # type: ignore[misc]
    assert found == list(range(200))
    assert most == AT_ONCE


def test_what_others_compute_is_waited_for(cache: Cache) -> None:
    model, begun, go = Model(cache), asyncio.Event(), asyncio.Event()

    async def slow(missing: list[int]) -> list[int]:
        begun.set()
        await go.wait()
        return await model.batch(missing)

    async def main() -> None:
        first = asyncio.create_task(model.double.map([1, 2], slow))
        await begun.wait()
        second = asyncio.create_task(model.double.map([2, 3], model.batch))
        while model.batches != [[3]]:
            await asyncio.sleep(0.001)
        go.set()
        assert await asyncio.gather(first, second) == [[2, 4], [4, 6]]

    asyncio.run(main())
    assert sorted(map(sorted, model.batches)) == [[1, 2], [3]]
    assert model.single == []


def test_an_error_reaches_all_and_nothing_is_left_behind(cache: Cache) -> None:
    model = Model(cache)

    async def fail(missing: list[int]) -> list[int]:
        raise LookupError("no batch")

    async def main() -> None:
        with pytest.raises(LookupError, match="no batch"):
            await model.double.map([1, 2], fail)
        with pytest.raises(ValueError, match="2 values were asked for, compute\\(\\) gave 1"):
            await model.double.map([1, 2], lambda missing: model.batch(missing[:1]))
        with pytest.raises(LookupError, match="no -1"):
            await model.double.map([1, -1, 2])
        assert await asyncio.wait_for(model.double.map([1, 2], model.batch), 20) == [2, 4]

    asyncio.run(main())


def test_a_value_that_can_not_be_kept_keeps_nobody_waiting(cache: Cache) -> None:
    model = Model(cache)

    async def handles(missing: list[int]) -> list[Any]:
        return [object() for _ in missing]

    async def main() -> None:
        with pytest.raises(TypeError, match="is no plain value"):
            await model.double.map([1, 2, 3], handles)
        assert await asyncio.wait_for(model.double.map([1, 2, 3], model.batch), 20) == [2, 4, 6]

    asyncio.run(main())


def test_a_recorded_failure_answers_and_the_rest_is_let_go(cache: Cache) -> None:
    model = Model(cache, record=(LookupError,))

    async def main() -> None:
        with pytest.raises(LookupError):
            await model.double(-1)
        with pytest.raises(ComputeFailed, match="no -1"):
            await model.double.map([5, -1, 6], model.batch)
        assert await asyncio.wait_for(model.double.map([5, 6], model.batch), 20) == [10, 12]

    asyncio.run(main())


@pytest.mark.parametrize("at", ["look up", "compute"])
def test_one_that_is_cancelled_hands_all_its_turns_over(cache: Cache, at: str) -> None:
    model, begun = Model(cache), asyncio.Event()

    async def never(missing: list[int]) -> list[int]:
        begun.set()
        await asyncio.Event().wait()
        return []

    async def main() -> None:
        first = asyncio.create_task(model.double.map([1, 2, 3], never))
        if at == "look up":
            await asyncio.sleep(0)
        else:
            await begun.wait()
            other = asyncio.create_task(model.double(2))
            while not cache.counts().get(EventKind.WAITED):
                await asyncio.sleep(0.001)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        if at == "compute":
            assert await asyncio.wait_for(other, 20) == 4
        await asyncio.get_running_loop().shutdown_default_executor()

    async def again() -> None:
        assert await asyncio.wait_for(model.double.map([1, 2, 3], model.batch), 20) == [2, 4, 6]

    asyncio.run(main())
    asyncio.run(again())
    assert all(not isinstance(each, BaseException) for each in model.batches)


def test_a_batch_that_asks_for_one_of_its_own_does_not_wait_for_itself(cache: Cache) -> None:
    model = Model(cache)

    async def through_itself(missing: list[int]) -> list[int]:
        return [await model.double(each) for each in missing]

    found = asyncio.run(asyncio.wait_for(model.double.map([1, 2], through_itself), 20))
    assert found == [2, 4]


# -- nodes -------------------------------------------------------------------------------------


class Pipeline(Pictures):
    def __init__(self, cache: Cache) -> None:
        calls: list[Any] = []
        self.calls = calls

        @memo(cache, ignore=["calls"])
        def words(text: str) -> list[str]:
            calls.append(("words", text))
            return text.split()

        @memo(cache, ignore=["calls"])
        async def sizes(words: list[str]) -> list[int]:
            await asyncio.sleep(0)
            calls.append(("sizes", len(words)))
            return [len(each) for each in words]

        @memo(cache, ignore=["calls"])
        async def draw(parts: dict[str, Any], steps: int) -> str:
            calls.append(("draw", steps))
            return f"{parts} in {steps}"

        self.words, self.sizes, self.draw = words, sizes, draw


def test_a_tree_of_both_kinds_computes_each_node_once(cache: Cache) -> None:
    made = Pipeline(cache)

    async def main() -> None:
        expected = "{'words': ['a', 'cat'], 'sizes': [[1, 3]]} in 20"
        assert await made.picture("a cat", 20).value() == expected
        assert made.calls == [("words", "a cat"), ("sizes", 2), ("draw", 20)]
        await made.picture("a cat", 30).value()
        assert made.calls[3:] == [("draw", 30)]
        made.words.forget("a cat")
        assert await Pipeline(cache).picture("a cat", 20).value() == expected
        assert len(made.calls) == 4
        assert made.picture("a cat", 20).key == Pipeline(cache).picture("a cat", 20).key

    asyncio.run(main())


def test_leaves_are_computed_side_by_side(cache: Cache) -> None:
    every, count = asyncio.Event(), [0]

    @memo(cache, ignore=["every", "count"])
    async def leaf(x: int) -> int:
        count[0] += 1
        if count[0] == 10:
            every.set()
        await every.wait()
        return x

    @memo(cache)
    async def total(items: list[int]) -> int:
        return sum(items)

    async def main() -> int:
        return await asyncio.wait_for(total.node([leaf.node(n) for n in range(10)]).value(), 20)

    assert asyncio.run(main()) == 45


def test_nodes_that_many_hold_are_looked_at_once(cache: Cache) -> None:
    @memo(cache)
    async def add(one: int, other: int) -> int:
        return one + other

    node = add.node(1, 0)
    for _ in range(30):
        node = add.node(node, node)
    assert asyncio.run(node.value()) == 2**30


def test_a_function_can_not_hold_a_node_of_a_coroutine_function(cache: Cache) -> None:
    made = Pipeline(cache)
    sizes = made.sizes.node(["a"])
    for given in ([sizes], {"a": sizes}, sizes):
        with pytest.raises(TypeError, match=r"words\(\) is given a node of a coroutine function"):
            made.words.node(text=given)


def test_a_tree_that_is_cancelled_can_be_asked_again(cache: Cache) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @memo(cache, ignore=["begun", "go"])
    async def leaf(x: int) -> int:
        begun.set()
        await go.wait()
        return x

    @memo(cache)
    async def total(items: list[int]) -> int:
        return sum(items)

    async def main() -> None:
        asking = asyncio.create_task(total.node([leaf.node(1), leaf.node(2)]).value())
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        go.set()
        again = total.node([leaf.node(1), leaf.node(2)]).value()
        assert await asyncio.wait_for(again, 20) == 3

    asyncio.run(main())


def test_a_call_that_is_cancelled_by_itself_cancels_the_whole(cache: Cache) -> None:
    @memo(cache)
    async def gives_up(x: int) -> int:
        if x:
            raise asyncio.CancelledError
        return x

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(gives_up.map([0, 1]))
