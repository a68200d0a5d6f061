"""Single-flight: threads, tasks and processes x fine, raising, cancelled, killed, forked."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.engine import eventually, finish, key, start

from trivet.aio import AsyncCache
from trivet.cache import Cache, Hit, Lease
from trivet.codecs import Bytes, MsgPack
from trivet.events import EventKind

BYTES = Bytes()
N = 16


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache.open(tmp_path / "c", strict=True)


def waiting(cache: Cache) -> int:
    return cache.counts().get(EventKind.WAITED, 0)


# -- threads -----------------------------------------------------------------------------------


def ask_in_threads(cache: Cache, compute: object) -> list[object]:
    """What each of N threads got: a value or an error."""

    def ask() -> object:
        try:
            return cache.get_or_compute(key(1), compute, BYTES)  # type: ignore[arg-type]
        except RuntimeError as error:
            return error

    with ThreadPoolExecutor(N) as pool:
        return [each.result(30) for each in [pool.submit(ask) for _ in range(N)]]


def gate(cache: Cache) -> None:
    """Block the leader until everybody else waits."""
    eventually(lambda: waiting(cache) >= N - 1, "the others wait")


def test_threads_that_ask_at_once_are_one_call(cache: Cache) -> None:
    calls = []

    def compute() -> bytes:
        calls.append(1)
        gate(cache)
        return b"x"

    assert ask_in_threads(cache, compute) == [b"x"] * N
    assert len(calls) == 1


def test_threads_a_leader_that_raises_is_one_call_and_everybody_knows(cache: Cache) -> None:
    calls = []

    def compute() -> bytes:
        calls.append(1)
        gate(cache)
        raise RuntimeError("boom")

    got = ask_in_threads(cache, compute)
    assert {str(each) for each in got} == {"boom"}
    assert len(calls) == 1
    assert cache.get_or_compute(key(1), lambda: b"x", BYTES) == b"x", "the key is not poisoned"


def test_threads_a_leader_that_is_interrupted_is_replaced(cache: Cache) -> None:
    calls = []

    def compute() -> bytes:
        calls.append(1)
        if len(calls) == 1:
            gate(cache)
            raise KeyboardInterrupt
        return b"x"

    def lead() -> None:
        with pytest.raises(KeyboardInterrupt):
            cache.get_or_compute(key(1), compute, BYTES)

    with ThreadPoolExecutor(N) as pool:
        leader = pool.submit(lead)
        eventually(lambda: bool(calls), "somebody leads")
        others = [pool.submit(cache.get_or_compute, key(1), compute, BYTES) for _ in range(N - 1)]
        leader.result(30)
        assert {each.result(30) for each in others} == {b"x"}
    assert len(calls) == 2


# -- tasks -------------------------------------------------------------------------------------


def test_tasks_that_ask_at_once_are_one_call(cache: Cache) -> None:
    async def main() -> None:
        calls = []
        every = asyncio.Event()

        async def compute() -> bytes:
            calls.append(1)
            await every.wait()
            return b"x"

        face = AsyncCache(cache)
        tasks = [asyncio.create_task(face.get_or_compute(key(1), compute, BYTES)) for _ in range(N)]
        while waiting(cache) < N - 1:
            await asyncio.sleep(0)
        every.set()
        assert await asyncio.gather(*tasks) == [b"x"] * N
        assert len(calls) == 1

    asyncio.run(main())


def test_tasks_a_leader_that_raises(cache: Cache) -> None:
    async def main() -> None:
        calls = []

        async def compute() -> bytes:
            calls.append(1)
            while waiting(cache) < N - 1:
                await asyncio.sleep(0)
            raise RuntimeError("boom")

        face = AsyncCache(cache)
        tasks = [face.get_or_compute(key(1), compute, BYTES) for _ in range(N)]
        got = await asyncio.gather(*tasks, return_exceptions=True)
        assert {str(each) for each in got} == {"boom"}
        assert len(calls) == 1

    asyncio.run(main())


def test_tasks_a_cancelled_leader_is_replaced_and_no_follower_is_cancelled(cache: Cache) -> None:
    async def main() -> None:
        calls = []
        never = asyncio.Event()

        async def compute() -> bytes:
            calls.append(1)
            if len(calls) == 1:
                await never.wait()
            return b"x"

        face = AsyncCache(cache)
        leader = asyncio.create_task(face.get_or_compute(key(1), compute, BYTES))
        while not calls:
            await asyncio.sleep(0)
        others = [
            asyncio.create_task(face.get_or_compute(key(1), compute, BYTES)) for _ in range(N)
        ]
        while waiting(cache) < N:
            await asyncio.sleep(0)
        leader.cancel()
        assert await asyncio.gather(*others) == [b"x"] * N
        assert leader.cancelled() or leader.cancelling()
        assert len(calls) == 2

    asyncio.run(main())


def test_tasks_cancelled_waiters_harm_nobody(cache: Cache) -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def compute() -> bytes:
            await go_on.wait()
            return b"x"

        face = AsyncCache(cache)
        tasks = [asyncio.create_task(face.get_or_compute(key(1), compute, BYTES)) for _ in range(N)]
        while waiting(cache) < N - 1:
            await asyncio.sleep(0)
        for each in tasks[1:8]:
            each.cancel()
        await asyncio.sleep(0)
        go_on.set()
        got = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in got[1:8]] == [asyncio.CancelledError] * 7
        assert got[:1] + got[8:] == [b"x"] * (N - 7)

    asyncio.run(main())


def test_a_task_cancelled_while_another_process_computes_leaves_no_lease_behind(
    tmp_path: Path,
) -> None:
    one, two = Cache.open(tmp_path / "c"), Cache.open(tmp_path / "c")
    lease = one.acquire(key(1), BYTES)
    assert isinstance(lease, Lease)

    async def main() -> None:
        async def compute() -> bytes:
            return b"mine"

        face = AsyncCache(two)
        task = asyncio.create_task(face.get_or_compute(key(1), compute, BYTES))
        while waiting(two) < 1:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        lease.commit(b"theirs")
        assert await face.get_or_compute(key(1), compute, BYTES) == b"theirs"

    asyncio.run(main())


def test_tasks_that_wait_for_other_processes_do_not_use_up_the_threads(tmp_path: Path) -> None:
    """Many waits at once, and a commit still gets through: waiting holds no thread."""
    one, two = Cache.open(tmp_path / "c"), Cache.open(tmp_path / "c")
    leases = []
    for n in range(64):
        lease = one.acquire(key(n), BYTES)
        assert isinstance(lease, Lease)
        leases.append(lease)

    async def main() -> None:
        async def compute() -> bytes:
            return b"fresh"

        face = AsyncCache(two)
        blocked = [
            asyncio.create_task(face.get_or_compute(key(n), compute, BYTES)) for n in range(64)
        ]
        while waiting(two) < 64:
            await asyncio.sleep(0.001)
        async with asyncio.timeout(20):
            assert await face.get_or_compute(key("free"), compute, BYTES) == b"fresh"
            for lease in leases:
                lease.commit(b"done")
            assert set(await asyncio.gather(*blocked)) == {b"done"}

    asyncio.run(main())


def test_threads_and_tasks_share_one_flight(cache: Cache) -> None:
    lease = cache.acquire(key(1), BYTES)
    assert isinstance(lease, Lease)

    async def main() -> bytes:
        async def compute() -> bytes:
            raise AssertionError("a thread is computing it")

        task = asyncio.create_task(AsyncCache(cache).get_or_compute(key(1), compute, BYTES))
        while waiting(cache) < 1:
            await asyncio.sleep(0)
        threading.Thread(target=lease.commit, args=(b"from a thread",)).start()
        return await task

    assert asyncio.run(main()) == b"from a thread"


# -- processes ---------------------------------------------------------------------------------

ASK = """
import os, sys
from trivet.cache import Cache
from trivet.codecs import Bytes
from trivet.keys import Key
folder, name, mode = sys.argv[1:]
cache = Cache.open(folder + "/c", strict=True)

def compute():
    with open(folder + "/calls", "a") as log:
        log.write(name + "\\n")
    print("computing", flush=True)
    if mode == "hold":
        sys.stdin.read()
    if mode == "raise":
        raise RuntimeError("boom")
    return b"by " + name.encode()

print("asking", flush=True)
try:
    value = cache.get_or_compute(Key("test/1", {"n": 1}), compute, Bytes())
    print("got", value.decode(), flush=True)
except RuntimeError as error:
    print("raised", error, flush=True)
cache.close()
"""


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text().split())


def test_processes_that_ask_at_once_are_one_call(tmp_path: Path) -> None:
    racing = [start(ASK, tmp_path, n, "ok") for n in range(6)]
    got = {finish(each).splitlines()[-1] for each in racing}
    assert len(got) == 1
    assert calls(tmp_path) == 1


def test_processes_a_killed_leader_is_replaced(tmp_path: Path) -> None:
    holder = start(ASK, tmp_path, "holder", "hold")
    assert holder.stdout is not None
    assert [holder.stdout.readline() for _ in range(2)] == ["asking\n", "computing\n"]
    others = [start(ASK, tmp_path, n, "ok") for n in range(3)]
    for each in others:
        assert each.stdout is not None
        assert each.stdout.readline() == "asking\n"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    got = {finish(each).splitlines()[-1] for each in others}
    assert len(got) == 1
    assert calls(tmp_path) == 2


def test_processes_a_leader_that_raises_lets_the_next_one_try(tmp_path: Path) -> None:
    """An error is not shared between processes: it can't be told that it would come again."""
    assert finish(start(ASK, tmp_path, "a", "raise")).splitlines()[-1] == "raised boom"
    assert finish(start(ASK, tmp_path, "b", "ok")).splitlines()[-1] == "got by b"


def test_a_forked_worker_pool_computes_once(cache: Cache, tmp_path: Path) -> None:
    children = []
    for n in range(8):
        child = os.fork()
        if child == 0:
            status = 1
            try:

                def compute(n: int = n) -> int:
                    with open(tmp_path / "calls", "a") as log:
                        log.write(f"{n}\n")
                    return n

                cache.get_or_compute(key("forked"), compute, MsgPack(int))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert calls(tmp_path) == 1
    assert isinstance(cache.get(key("forked"), MsgPack(int)), Hit)
