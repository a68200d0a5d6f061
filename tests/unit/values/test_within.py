"""A computation that asks, from tasks and threads of its own, for what it is computing."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trivet import Cache, Key
from trivet.aio import AsyncCache
from trivet.codecs import Bytes
from trivet.events import EventKind
from trivet.values import memo


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path) as cache:
        yield cache


def in_a_task_that_starts_a_thread(call: Callable[[], Any]) -> Any:
    return asyncio.run(asyncio.to_thread(call))


def in_a_thread_with_the_context(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, call).result()


@pytest.mark.parametrize("way", [in_a_task_that_starts_a_thread, in_a_thread_with_the_context])
@pytest.mark.parametrize("by", ["call", "batch"])
def test_a_function_does_not_wait_for_itself(
    cache: Cache, way: Callable[[Callable[[], Any]], Any], by: str
) -> None:
    tries: list[int] = []

    @memo(cache, version="1", wait=10)
    def double(x: int) -> int:
        tries.append(x)
        return 2 * x if len(tries) > 1 or by == "batch" else way(lambda: double(x))

    def through_itself(missing: list[int]) -> list[int]:
        return [way(lambda x=x: double(x)) for x in missing]  # type: ignore[misc]

    found = double.map([1, 2], through_itself) if by == "batch" else [double(1), double(2)]
    assert found == [2, 4]
    assert EventKind.WAITED not in cache.counts()


@pytest.mark.parametrize("by", ["call", "batch", "cache"])
def test_tasks_do_not_wait_for_the_one_that_waits_for_them(cache: Cache, by: str) -> None:
    tries: list[int] = []

    @memo(cache, version="1", wait=10)
    async def double(x: int) -> int:
        tries.append(x)
        if len(tries) == 1 and by == "call":
            return (await asyncio.gather(double(x)))[0]
        return 2 * x

    async def through_itself(missing: list[int]) -> list[int]:
        return await asyncio.gather(*map(double, missing))

    async def bare(depth: int = 1) -> bytes:
        key, asked = Key("value/1", {"n": 1}), AsyncCache(cache)
        if depth:
            compute: Any = lambda: asyncio.create_task(bare(depth - 1))  # noqa: E731
            return await asked.get_or_compute(key, compute, Bytes(), wait=10)
        return await asked.get_or_compute(key, lambda: asyncio.sleep(0, b"x"), Bytes(), wait=10)

    async def main() -> None:
        if by == "cache":
            assert await bare() == b"x"
        elif by == "batch":
            assert await double.map([1, 2], through_itself) == [2, 4]
        else:
            assert await double(1) == 2

    asyncio.run(main())
    assert EventKind.WAITED not in cache.counts()


def test_what_tasks_of_one_computation_need_is_computed_once(cache: Cache) -> None:
    calls: list[str] = []

    @memo(cache, version="1")
    async def part(name: str) -> str:
        calls.append(name)
        await asyncio.sleep(0.05)
        return name

    @memo(cache, version="1")
    async def whole() -> list[str]:
        return await asyncio.gather(*(part("a") for _ in range(5)))

    assert asyncio.run(whole()) == ["a"] * 5
    assert calls == ["a"]


def test_a_task_that_outlives_what_it_was_started_for_waits_as_all_do(cache: Cache) -> None:
    calls: list[int] = []

    @memo(cache, version="1")
    async def slow(x: int) -> int:
        calls.append(x)
        await asyncio.sleep(0.05)
        return x

    async def main() -> None:
        asked, later = asyncio.Event(), []

        async def ask_later() -> int:
            await asked.wait()
            return await slow(1)

        async def begin(missing: list[int]) -> list[int]:
            later.append(asyncio.create_task(ask_later()))
            return missing

        await slow.map([1], begin)
        slow.forget(1)
        leader = asyncio.create_task(slow(1))
        while not calls:
            await asyncio.sleep(0.001)
        asked.set()
        assert await asyncio.gather(leader, *later) == [1, 1]

    asyncio.run(main())
    assert calls == [1]
