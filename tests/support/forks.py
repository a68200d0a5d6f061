"""Forks of a process whose threads are at work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from trivet.errors import TrivetError
from trivet.testing.crash import run_forked


class Busy:
    """Threads, each of which does a job over and over until the end of the ``with`` block.

    Args:
        pause: seconds between two times.

    Attributes:
        failures: what jobs have raised.
    """

    def __init__(self, *jobs: Callable[[], object], pause: float = 0.0) -> None:
        self.failures: list[BaseException] = []
        self._pause, self._done = pause, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(job,)) for job in jobs]

    def __enter__(self) -> Busy:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _run(self, job: Callable[[], object]) -> None:
        try:
            while not self._done.wait(self._pause):
                job()
        except (AssertionError, TrivetError) as error:
            self.failures.append(error)


def run_in_time(work: Callable[[], None], seconds: float = 60.0) -> int:
    """Run ``work`` in a forked child; its exit code. One that hangs ends by a signal."""

    def alarmed() -> None:
        signal.alarm(int(seconds))
        work()

    return run_forked(alarmed)
