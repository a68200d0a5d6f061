"""A member of `tests.support.flights` that asks a peer: ``PEER ARGUMENTS``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.support.flight_member import Member

Wrap = Callable[[Any, str], Any]
"""From a function and the folder of the host to the memoised function."""


def _functools(function: Any, folder: str) -> Any:
    import functools

    return functools.lru_cache(function)


def _cachetools(function: Any, folder: str) -> Any:
    import cachetools

    lru: Any = cachetools.LRUCache(100)
    return cachetools.cached(lru, condition=threading.Condition())(function)


def _cachebox(function: Any, folder: str) -> Any:
    import cachebox

    return cachebox.cached(cachebox.LRUCache(100))(function)


def _moka(function: Any, folder: str) -> Any:
    import moka_py

    return moka_py.cached(maxsize=100, wait_concurrent=True)(function)


def _theine(function: Any, folder: str) -> Any:
    import theine

    memoised = theine.Memoize(100, None)(function)
    memoised.key(str)
    return memoised


def _diskcache(function: Any, folder: str) -> Any:
    import diskcache

    return diskcache.memoize_stampede(diskcache.Cache(folder), expire=3600, name="f")(function)


def _diskcache_barrier(function: Any, folder: str) -> Any:
    import diskcache

    cache = diskcache.Cache(folder)
    kept = cache.memoize(name="f")(function)
    return diskcache.barrier(cache, diskcache.Lock, name="f")(kept)


def _joblib(function: Any, folder: str) -> Any:
    import joblib

    return joblib.Memory(folder, verbose=0).cache(function)


def _async_lru(function: Any, folder: str) -> Any:
    import async_lru

    return async_lru.alru_cache(maxsize=100)(function)


def _aiocache(function: Any, folder: str) -> Any:
    import aiocache

    return aiocache.cached_stampede(lease=60)(function)


THREADS: dict[str, Wrap] = {
    "functools.lru_cache": _functools,
    "cachetools (condition=)": _cachetools,
    "cachebox": _cachebox,
    "moka (wait_concurrent)": _moka,
    "theine": _theine,
    "diskcache.memoize_stampede": _diskcache,
    "diskcache.barrier": _diskcache_barrier,
    "joblib.Memory": _joblib,
}
PROCESSES = ("diskcache.memoize_stampede", "diskcache.barrier", "joblib.Memory")
TASKS: dict[str, Wrap] = {
    "async_lru": _async_lru,
    "aiocache.cached_stampede": _aiocache,
    "cachebox": _cachebox,
    "moka (wait_concurrent)": _moka,
    "theine": _theine,
}


def main() -> None:
    """Ask."""
    member = Member(sys.argv[2:])
    wrap = (TASKS if member.scope == "tasks" else THREADS)[sys.argv[1]]
    if member.scope == "tasks":

        async def function_of_tasks(x: int) -> int:
            return await member.compute_async(x)

        member.ask(wrap(function_of_tasks, str(member.host)))
        return

    def function(x: int) -> int:
        return member.compute(x)

    member.ask(wrap(function, str(member.host)))


if __name__ == "__main__":
    main()
