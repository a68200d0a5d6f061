"""One makes a result anew, whatever happens to it, and nobody waits: threads and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.engine import eventually, finish, start

from trivet import Cache
from trivet.values import memo

PROGRAM = """
import os, sys, time
from trivet import Cache
from trivet.values import memo

folder, lifetime, until = sys.argv[1], float(sys.argv[2]), sys.argv[3]
gate, log = folder + ".open", os.open(folder + ".log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

with Cache.open(folder) as cache:
    @memo(cache, lifetime=lifetime, stale=3600, ignore=["gate", "log"])
    def edition(topic: str) -> str:
        os.write(log, b"%d\\n" % os.getpid())
        while not os.path.exists(gate):
            time.sleep(0.001)
        with open(gate) as file:
            return file.read()

    slowest, calls = 0.0, 0
    while True:
        started = time.perf_counter()
        value = edition("caches")
        slowest, calls = max(slowest, time.perf_counter() - started), calls + 1
        if calls == 100 or value == until:
            print(f"{value} {slowest:.3f}", flush=True)
        if value == until:
            break
        time.sleep(0.001)
"""


class Editions:
    """What the processes of a test share beside the cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._gate = Path(f"{folder}.open")
        self._running: list[subprocess.Popen[str]] = []

    def publish(self, text: str) -> None:
        written = Path(f"{self.folder}.new")
        written.write_text(text)
        written.rename(self._gate)

    def begin_the_second(self) -> None:
        """One that was made and is stale; the next takes until it is published."""
        self.publish("first")
        finish(start(PROGRAM, self.folder, 0.001, "first"))
        self._gate.unlink()

    def ask(self) -> subprocess.Popen[str]:
        """A process that asks until it gets the second edition, and has been given the first."""
        process = start(PROGRAM, self.folder, 3600, "second")
        assert process.stdout is not None
        assert process.stdout.readline().startswith("first ")
        return process

    def makers(self) -> list[int]:
        return [int(each) for each in Path(f"{self.folder}.log").read_text().split()]


def test_threads_that_ask_for_what_is_stale_are_one_call_and_none_waits(tmp_path: Path) -> None:
    go, calls = threading.Event(), []
    with Cache.open(tmp_path / "c") as cache:

        @memo(cache, lifetime=0.01, stale=3600, ignore=["go", "calls"])
        def count(x: int) -> int:
            calls.append(threading.current_thread().name)
            if len(calls) > 1:
                assert go.wait(60)
            return len(calls)

        assert count(1) == 1
        time.sleep(0.01)
        with ThreadPoolExecutor(16) as pool:
            found = [each.result(20) for each in [pool.submit(count, 1) for _ in range(400)]]
        assert found == [1] * 400
        eventually(lambda: len(calls) == 2, "one makes it anew")
        go.set()
        eventually(lambda: count(1) >= 2, "which is then what everybody gets")
    assert calls[1] == "trivet-refresh"


def test_two_processes_make_one_refresh(tmp_path: Path) -> None:
    editions = Editions(tmp_path / "c")
    editions.begin_the_second()
    asking = [editions.ask() for _ in range(2)]
    eventually(lambda: len(editions.makers()) == 2, "one of them makes it anew")
    editions.publish("second")
    for process in asking:
        value, slowest = finish(process).split()
        assert value == "second"
        assert float(slowest) < 5.0
    assert len(editions.makers()) == 2
    assert editions.makers()[1] in [each.pid for each in asking]


def test_when_the_process_that_makes_it_is_killed_another_takes_over(tmp_path: Path) -> None:
    editions = Editions(tmp_path / "c")
    editions.begin_the_second()
    maker = editions.ask()
    eventually(lambda: editions.makers()[1:] == [maker.pid], "it makes it anew")
    other = editions.ask()
    assert len(editions.makers()) == 2
    os.kill(maker.pid, signal.SIGKILL)
    maker.communicate()
    eventually(lambda: editions.makers()[2:] == [other.pid], "the other takes over")
    editions.publish("second")
    assert finish(other).split()[0] == "second"
    assert len(editions.makers()) == 3


def test_a_process_that_ends_keeps_what_it_was_making_anew(tmp_path: Path) -> None:
    program = """
import sys, threading, time
from trivet import Cache
from trivet.values import memo

cache = Cache.open(sys.argv[1])
begun = threading.Event()

@memo(cache, lifetime=3600 if sys.argv[2] == "later" else 0.001, stale=3600, ignore=["begun"])
def slow(x: int) -> float:
    begun.set()
    if threading.current_thread() is not threading.main_thread():
        while threading.main_thread().is_alive():
            time.sleep(0.001)
    return time.time()

print(slow(1))
if sys.argv[2] == "later":
    assert begun.wait(20)
"""
    first = finish(start(program, tmp_path / "c", "now"))
    assert finish(start(program, tmp_path / "c", "later")) == first
    with Cache.open(tmp_path / "c") as cache:
        (entry,) = cache.entries()
    assert entry.invalid is None, "made in the second process, while it ended"
