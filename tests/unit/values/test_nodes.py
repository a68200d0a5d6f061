"""Trees of calls: each inner node once, and only where something above it is missing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.pipelines import Pictures

from trivet import Cache
from trivet.errors import Unkeyable
from trivet.testing import FakeClock
from trivet.values import memo


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path) as cache:
        yield cache


class Pipeline(Pictures):
    def __init__(self, cache: Cache, version: str = "1") -> None:
        calls: list[Any] = []
        self.calls = calls

        @memo(cache, ignore=["calls"])
        def words(text: str) -> list[str]:
            calls.append(("words", text))
            return text.split()

        @memo(cache, ignore=["calls"], version=version)
        def sizes(words: list[str]) -> list[int]:
            calls.append(("sizes", len(words)))
            return [len(each) for each in words]

        @memo(cache, ignore=["calls"])
        def draw(parts: dict[str, Any], steps: int) -> str:
            calls.append(("draw", steps))
            return f"{parts} in {steps}"

        self.words, self.sizes, self.draw = words, sizes, draw


def test_what_is_shared_is_computed_once(cache: Cache) -> None:
    made = Pipeline(cache)
    expected = "{'words': ['a', 'cat'], 'sizes': [[1, 3]]} in 20"
    assert made.picture("a cat", 20).value() == expected
    assert made.calls == [("words", "a cat"), ("sizes", 2), ("draw", 20)]
    made.picture("a cat", 30).value()
    assert made.calls[3:] == [("draw", 30)]
    assert Pipeline(cache).picture("a cat", 20).value() == expected


def test_below_what_is_kept_nothing_is_looked_up(cache: Cache) -> None:
    made = Pipeline(cache)
    made.picture("a cat", 20).value()
    made.words.forget("a cat")
    made.picture("a cat", 20).value()
    assert len(made.calls) == 3
    made.picture("a cat", 21).value()
    assert made.calls[3:] == [("words", "a cat"), ("draw", 21)]


def test_another_version_below_makes_other_nodes_above(cache: Cache) -> None:
    first, second = Pipeline(cache, "1"), Pipeline(cache, "2")
    keys = [each.picture("a cat", 20).key for each in (first, second)]
    assert keys[0] != keys[1]
    first.picture("a cat", 20).value()
    second.picture("a cat", 20).value()
    assert second.calls == [("sizes", 2), ("draw", 20)]


def test_a_node_is_no_text_and_no_list(cache: Cache) -> None:
    made = Pipeline(cache)
    node = made.words.node("a cat")
    texts = [node, node.key.digest, node.key.digest.hex(), ["a", "cat"]]
    assert len({made.sizes.node(each).key for each in texts}) == len(texts)


def test_what_changes_between_key_and_value_is_told_apart(cache: Cache) -> None:
    factor = [1]

    @memo(cache)
    def scaled(x: int) -> int:
        return x * factor[0]

    @memo(cache)
    def total(items: list[int]) -> int:
        return sum(items)

    node = total.node([scaled.node(1), scaled.node(2)])
    assert node.key == total.node([scaled.node(1), scaled.node(2)]).key
    factor[0] = 10
    assert node.value() == 30
    assert total.node([scaled.node(1), scaled.node(2)]).value() == 30
    factor[0] = 1
    assert node.value() == total.node([scaled.node(1), scaled.node(2)]).value() == 3


def test_a_tree_of_a_thousand_leaves_and_threads_that_want_it(cache: Cache) -> None:
    calls: list[int] = []

    @memo(cache, ignore=["calls"])
    def leaf(x: int) -> int:
        calls.append(x)
        return x

    @memo(cache)
    def total(items: list[int]) -> int:
        return sum(items)

    def work() -> None:
        halves = [total.node([leaf.node(n) for n in range(k, 1000, 2)]) for k in (0, 1)]
        found.append(total.node(halves).value())

    found: list[int] = []
    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [499500] * 3
    assert sorted(calls) == list(range(1000))


def test_what_can_be_no_part_of_a_key_is_said_when_the_key_is_wanted(cache: Cache) -> None:
    made = Pipeline(cache)
    node = made.sizes.node([made.words.node(threading.Lock())])
    with pytest.raises(Unkeyable, match="argument text of"):
        _ = node.key


def test_a_node_is_the_call_of_who_asks_for_its_value(cache: Cache) -> None:
    who, items = ["a"], [1]

    @memo(cache, tenant=lambda: who[0], ignore=["who"])
    def tell(items: list[int]) -> list[Any]:
        return [who[0], *items]

    node = tell.node(items)
    assert node.value() == ["a", 1]
    who[0] = "b"
    assert node.value() == ["b", 1]
    items.append(2)
    assert node.value() == ["b", 1, 2]


def test_nodes_that_many_hold_are_looked_at_once(cache: Cache) -> None:
    @memo(cache)
    def add(one: int, other: int) -> int:
        return one + other

    node = add.node(1, 0)
    for _ in range(30):  # by each of 2**30 ways it would take hours
        node = add.node(node, node)
    assert node.value() == 2**30


def test_a_node_that_holds_itself_is_refused_in_few_words(cache: Cache) -> None:
    @memo(cache)
    def count(items: list[Any]) -> int:
        return len(items)

    items: list[Any] = []
    node = count.node(items)
    items.append(node)
    with pytest.raises(Unkeyable, match="holds itself") as refused:
        node.value()
    assert len(str(refused.value)) < 300


def test_what_invalidates_a_node_below_invalidates_those_above(cache: Cache) -> None:
    source = [1]

    @memo(cache, tags=["rows"], ignore=["source"])
    def read(x: int) -> int:
        return source[0] + x

    @memo(cache)
    def double(x: int) -> int:
        return 2 * x

    node = double.node(double.node(read.node(0)))
    assert node.value() == 4
    source[0] = 2
    assert node.value() == 4
    cache.invalidate("rows")
    assert node.value() == 8
    source[0] = 3
    cache.invalidate(read.tag)
    assert node.value() == 12


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[tuple[Cache, FakeClock]]:
    clock = FakeClock()
    with Cache.open(tmp_path, clock=clock) as cache:
        yield cache, clock


def test_no_node_outlives_those_below(timed: tuple[Cache, FakeClock]) -> None:
    cache, clock = timed
    source = [1]

    @memo(cache, lifetime=60, ignore=["source"])
    def read(x: int) -> int:
        return source[0] + x

    @memo(cache, lifetime=3600)
    def double(x: int) -> int:
        return 2 * x

    @memo(cache)
    def negative(x: int) -> int:
        return -x

    assert read.node(0).value() == 1
    source[0] = 2
    clock.advance(50)
    node = negative.node(double.node(read.node(0)))
    assert node.value() == -2
    assert double.node(5).value() == 10
    clock.advance(11)  # it is over for what is below, however late that was read
    assert node.value() == -4
    assert double.look(5).value == 10  # type: ignore[union-attr]


def test_nodes_of_coroutine_functions_end_with_those_below(
    timed: tuple[Cache, FakeClock],
) -> None:
    cache, clock = timed
    source = [1]

    @memo(cache, lifetime=60, tags=["rows"], ignore=["source"])
    def read(x: int) -> int:
        return source[0] + x

    @memo(cache)
    async def double(x: int) -> int:
        return 2 * x

    @memo(cache)
    async def total(items: list[int]) -> int:
        return sum(items)

    def node() -> Any:
        return total.node([double.node(read.node(0)), double.node(1)])

    assert asyncio.run(node().value()) == 4
    source[0] = 2
    cache.invalidate("rows")
    assert asyncio.run(node().value()) == 6
    source[0] = 3
    clock.advance(61)
    assert asyncio.run(node().value()) == 8


@pytest.mark.parametrize("depth", [95, 10_000])
def test_a_graph_that_is_too_deep_is_refused_at_once_and_in_few_words(
    cache: Cache, depth: int
) -> None:
    @memo(cache)
    def add(x: int) -> int:
        return x + 1

    node = add.node(0)
    for _ in range(depth):
        node = add.node(node)
    with pytest.raises(Unkeyable, match="nested too deep") as refused:
        node.value()
    assert len(str(refused.value)) < 300


def test_what_is_wrong_deep_in_a_graph_is_said_once(cache: Cache) -> None:
    @memo(cache)
    def count(x: Any) -> int:
        return len(x)

    node = count.node([threading.Lock()])
    for _ in range(30):
        node = count.node([node])
    with pytest.raises(Unkeyable, match=r"argument x\[0\] of .*lock") as refused:
        node.value()
    assert len(str(refused.value)) < 400
