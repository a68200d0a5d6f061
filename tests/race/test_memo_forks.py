"""Memos in forked children: none waits for what only its parent has."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.support.engine import SOURCE
from tests.support.forks import Busy, run_in_time

from trivet import Cache
from trivet.cache import Hit
from trivet.stores.host import HostStore
from trivet.values import memo

PROGRAM = """
import os, sys, threading
import numpy as np
from trivet import Cache
from trivet.values import memo

with Cache.open(sys.argv[1]) as cache:
    going, go_on = threading.Event(), threading.Event()

    @memo(cache, ignore=["going", "go_on"])
    def total(x: np.ndarray) -> int:
        going.set()
        go_on.wait()
        return int(x.sum())

    large = np.ones(1 << 22, np.uint8)  # hashed by threads
    thread = threading.Thread(target=total, args=(large,))
    thread.start()
    going.wait()
    child = os.fork()
    if child == 0:
        go_on.set()
        os._exit(0 if total(large) == 1 << 22 else 1)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
print("answered")
"""


def test_a_child_that_is_forked_while_a_memo_computes_gets_the_value(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "answered\n", done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_thousand_forks_amid_threads_that_use_memos(tmp_path: Path) -> None:
    cache = Cache.open(tmp_path, group_entries=None)

    @memo(cache)
    def square(x: int) -> list[int]:
        return [x * x]

    @memo(cache)
    def total(x: np.ndarray) -> int:
        return int(x.sum())

    fresh = itertools.count(1000)

    def hit() -> None:
        assert all(square(x) == [x * x] for x in range(50))

    def compute() -> None:
        x = next(fresh)
        assert square(x) == [x * x]

    def hash_large() -> None:
        each = next(fresh) % 100
        assert total(np.full(1 << 20, each, np.uint8)) == each << 20

    def child(number: int) -> None:
        assert square(number % 50) == [(number % 50) ** 2]
        assert square(-number) == [number * number]
        assert total(np.full(1 << 20, 3, np.uint8)) == 3 << 20

    assert total(np.full(1 << 20, 3, np.uint8)) == 3 << 20
    with Busy(hit, hit, compute, hash_large, pause=0.005) as busy:  # the forks come to their turn
        codes = Counter(run_in_time(lambda: child(number)) for number in range(1000))  # noqa: B023
        assert codes == {0: 1000}
    assert not busy.failures
    cache.close()
    with Cache.open(tmp_path, group_entries=None) as again:  # what the children kept is right
        kept = memo(again)(square.function)
        found = [kept.look(-number) for number in range(1000)]
        values = [each.value if isinstance(each, Hit) else None for each in found]
        assert values == [[n * n] for n in range(1000)]
        assert isinstance(again.store, HostStore)
        assert all(each.problem is None for each in again.store.verify())
