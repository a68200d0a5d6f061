"""Sizes of live values: near what the interpreter itself says, at a bounded price."""

from __future__ import annotations

import dataclasses
import gc
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from trivet import Cache, Key
from trivet.memory import footprint


class Answer(msgspec.Struct):
    text: str
    scores: list[float]


@dataclasses.dataclass
class Note:
    text: str
    more: dict[str, float]


class Shared:
    """A codec whose live values are whatever it made, as one that returns objects would be."""

    id = "made/1"
    shareable = True

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def encode(self, value: int) -> bytes:
        return value.to_bytes(4, "little")

    def decode(self, raw: memoryview) -> Any:
        return self._make(int.from_bytes(raw, "little"))


def text(n: int) -> str:
    return f"{n:09d}" * 3


MAKERS: dict[str, Callable[[int], Any]] = {
    "bytes": lambda n: n.to_bytes(500, "little"),
    "dict": lambda n: {"a": n * 1.5, "b": [text(n), n + 1000], "c": {"d": text(n + 1)}},
    "floats": lambda n: [n + i / 7 for i in range(200)],
    "rows": lambda n: [{"id": n + i, "name": text(n * 100 + i)} for i in range(60)],
    "sets": lambda n: {text(n * 10 + i) for i in range(30)},
    "struct": lambda n: Answer(text(n), [n / 3, n / 5]),
    "dataclass": lambda n: Note(text(n), {"x": n / 3}),
    "deque": lambda n: deque(n / i for i in range(1, 100)),
    "array": lambda n: np.full(300, n, np.float32),
}


def traced(make: Callable[[int], Any], count: int) -> tuple[float, list[Any]]:
    """Bytes that each of ``count`` values takes."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = [make(each + 1000) for each in range(count)]
        return tracemalloc.get_traced_memory()[0] / count, kept
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", MAKERS)
def test_a_value_is_as_large_as_the_interpreter_says(name: str) -> None:
    real, kept = traced(MAKERS[name], 200)
    assert 0.8 * real < footprint(kept[7]) < 1.3 * real


def test_a_view_counts_all_that_it_keeps_alive() -> None:
    whole = np.zeros(100_000)
    assert footprint(whole[:10]) >= whole.nbytes
    assert footprint(np.frombuffer(bytes(5000), np.uint8)[:3]) >= 5000
    assert footprint(memoryview(bytes(5000))[:3]) >= 5000


def test_what_is_met_twice_counts_once_and_a_loop_ends() -> None:
    part = [0.5] * 100
    assert footprint([part, part]) < 1.5 * footprint([part])
    loop: list[Any] = [bytes(100)]
    loop.append(loop)
    assert footprint(loop) < 1000


def test_a_large_value_is_sampled() -> None:
    rows = [{"n": str(each)} for each in range(200_000)]
    started = time.perf_counter()
    size = footprint(rows)
    assert time.perf_counter() - started < 0.05
    one = sys.getsizeof(rows[1000]) + sys.getsizeof("100000")
    assert size > len(rows) * one * 0.9


@pytest.mark.parametrize("name", MAKERS)
def test_the_budget_holds_for_the_process(name: str) -> None:
    """Encoded, each of these is 4 bytes, so that a budget of encoded bytes would never be full."""
    budget = 2 << 20
    codec = Shared(MAKERS[name])
    cache = Cache(memory_bytes=budget)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(3000):
            key = Key("test/1", {"n": n, "name": text(n)})
            cache.get_or_compute(key, lambda n=n: n, codec)  # type: ignore[misc]
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.6 * budget < held < 1.25 * budget
