"""Turns to make something anew: one for each entry, rests after failures, threads that end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.support.engine import SOURCE, eventually, key

from trivet.cache import Cache
from trivet.cache.refreshes import Refreshes
from trivet.events import EventKind
from trivet.testing import FakeClock, Recorder


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def events() -> Recorder:
    return Recorder()


@pytest.fixture
def refreshes(clock: FakeClock, events: Recorder) -> Iterator[Refreshes]:
    with Cache(clock=clock, sink=events) as cache:
        yield cache.engine.refreshes()


def test_a_key_has_one_turn_at_a_time(refreshes: Refreshes) -> None:
    turn = refreshes.begin(key(1))
    assert turn is not None
    assert refreshes.is_on(key(1))
    assert refreshes.begin(key(1)) is None
    assert refreshes.begin(key(2)) is not None
    turn.end()
    turn.end()
    assert not refreshes.is_on(key(1))
    assert refreshes.begin(key(1)) is not None


def test_a_turn_that_is_lost_is_over(refreshes: Refreshes) -> None:
    turn = refreshes.begin(key(1))
    del turn
    gc.collect()
    assert refreshes.begin(key(1)) is not None


def test_an_old_turn_does_not_end_a_new_one(refreshes: Refreshes) -> None:
    old = refreshes.begin(key(1))
    assert old is not None
    old.end()
    new = refreshes.begin(key(1))
    old.end()
    assert new is not None
    assert refreshes.is_on(key(1))


def test_after_failures_it_rests_longer_and_longer(
    refreshes: Refreshes, clock: FakeClock, events: Recorder
) -> None:
    for rest in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        turn = refreshes.begin(key(1))
        assert turn is not None
        turn.failed("ValueError: no")
        turn.end()
        clock.advance(rest - 0.001)
        assert refreshes.begin(key(1)) is None
        assert refreshes.begin(key(2)) is not None
        clock.advance(0.001)
    assert events.of(EventKind.REFRESH_FAILED)[0].detail == "ValueError: no"
    turn = refreshes.begin(key(1))
    assert turn is not None
    turn.done()
    turn.end()
    assert refreshes.begin(key(1)) is not None, "a success ends the rests"


def test_where_another_is_busy_it_looks_again_soon(refreshes: Refreshes, clock: FakeClock) -> None:
    turn = refreshes.begin(key(1))
    assert turn is not None
    turn.busy()
    turn.end()
    assert refreshes.begin(key(1)) is None
    clock.advance(0.1)
    assert refreshes.begin(key(1)) is not None


def test_turns_and_rests_are_bounded(refreshes: Refreshes) -> None:
    turns = [refreshes.begin(key(n)) for n in range(300)]
    assert sum(each is not None for each in turns) == 256
    for n in range(1100):
        if n < 256:
            turns[n].end()  # type: ignore[union-attr]
        turn = refreshes.begin(key(1000 + n))
        if turn is not None:
            turn.failed("no")
            turn.end()
    assert len(refreshes._rests) <= 1024


def test_four_threads_do_all_the_work_and_end(refreshes: Refreshes) -> None:
    begun, go, done = threading.Semaphore(0), threading.Event(), []

    def work() -> None:
        begun.release()
        go.wait()
        done.append(threading.current_thread())

    for _ in range(20):
        refreshes.start(work)
    for _ in range(4):
        assert begun.acquire(timeout=20)
    assert not begun.acquire(blocking=False)
    go.set()
    eventually(lambda: len(done) == 20, "all is done")
    eventually(lambda: not any(each.is_alive() for each in done), "the threads end")
    assert len(set(done)) <= 4
    assert not any(each.daemon for each in done)
    refreshes.start(work)
    eventually(lambda: len(done) == 21, "a thread begins anew")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_ends_its_thread_ends_nothing_else(refreshes: Refreshes) -> None:
    done, left = [], []

    def leave() -> None:
        left.append(threading.current_thread())
        raise SystemExit

    for _ in range(4):
        refreshes.start(leave)
    eventually(lambda: len(left) == 4 and not refreshes._threads, "they are gone")
    refreshes.start(lambda: done.append(1))
    eventually(lambda: done == [1], "the next has a thread")
    for thread in left:
        thread.join()


def test_closing_waits_for_what_runs_and_drops_the_rest(refreshes: Refreshes) -> None:
    begun, go, done = threading.Semaphore(0), threading.Event(), []

    def work() -> None:
        begun.release()
        go.wait(20)
        done.append(1)

    for _ in range(10):
        refreshes.start(work)
    for _ in range(4):
        begun.acquire()
    refreshes.close(0.01)
    assert done == [], "not for ever"
    go.set()
    refreshes.close(20)
    assert done == [1] * 4
    refreshes.start(work)
    assert refreshes.begin(key(1)) is None
    assert not refreshes._threads


def test_work_may_close_what_it_runs_in(refreshes: Refreshes) -> None:
    closed = threading.Event()

    def work() -> None:
        refreshes.close(60)
        closed.set()

    refreshes.start(work)
    assert closed.wait(20)


FORKED = """
import os, threading
from trivet.cache import Cache
from trivet.keys import Key

key = Key("test/1", {"n": 1})
cache = Cache()
refreshes = cache.engine.refreshes()
going, go_on = threading.Event(), threading.Event()
turn = refreshes.begin(key)
refreshes.start(lambda: (going.set(), go_on.wait()))
going.wait()
child = os.fork()
if child == 0:
    done = threading.Event()
    assert refreshes.begin(key) is not None
    refreshes.start(done.set)
    assert done.wait(20)
    cache.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert refreshes.begin(key) is None
go_on.set()
print("done")
"""

ENDING = """
import os, threading, time
from trivet.cache import Cache

cache, begun = Cache(), threading.Event()
def work():
    begun.set()
    while threading.main_thread().is_alive():
        time.sleep(0.001)
    os.write(1, b"ended well;")
for _ in range(4):
    cache.engine.refreshes().start(work)
for _ in range(100):
    cache.engine.refreshes().start(lambda: os.write(1, b"began too late"))
begun.wait()
"""


@pytest.mark.parametrize(
    ("program", "printed"), [(FORKED, "done\n"), (ENDING, "ended well;" * 4)], ids=["fork", "end"]
)
def test_a_child_and_the_end_of_the_process(program: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == printed, done.stderr
