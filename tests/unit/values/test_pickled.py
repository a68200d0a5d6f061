"""Memos cross to other processes by their names."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trivet import Cache
from trivet.values import memo

SCRIPT = """
import os, sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from trivet import Cache
from trivet.values import memo

cache = Cache.open(sys.argv[1])

@dataclass
class Item:
    text: str

@memo(cache)
def who(item: Item) -> int:
    return os.getpid()

@dataclass
class Model:
    size: int

    @memo(cache)
    def who(self, x):
        return os.getpid()

if __name__ == "__main__":
    me, bound = os.getpid(), Model(3).who
    assert who(Item("a")) == bound("a") == me
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        other = pool.submit(os.getpid).result()
        assert other != me
        for asked, texts in ((who, [Item("a"), Item("b")]), (bound, ["a", "b"])):
            assert list(pool.map(asked, texts)) == [me, other]
            assert asked(texts[1]) == other
"""
MODULE = """
from trivet.values import memo
def decorate(cache):
    global double
    @memo(cache, version="1")
    def double(x):
        return 2 * x
    double.__qualname__ = "double"
"""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path / "c") as cache:
        yield cache


def test_a_spawned_process_shares_the_results_of_the_script_that_it_is_given(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "c")]
    subprocess.run(command, check=True, timeout=60)


def test_it_is_the_one_of_that_name(cache: Cache, load: Callable[..., types.ModuleType]) -> None:
    module = load(MODULE)
    module.decorate(cache)
    first = module.double
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(first, protocol)) is first
    assert copy.deepcopy([first]) == [first]
    module.decorate(cache)
    with pytest.raises(TypeError, match=r"program\.double is not this one"):
        pickle.dumps(first)


def test_one_that_its_name_does_not_lead_to_is_refused_in_clear_words(cache: Cache) -> None:
    @memo(cache, version="1")
    def double(x: int) -> int:
        return 2 * x

    with pytest.raises(TypeError, match="define it where its module begins"):
        pickle.dumps(double)
