"""Single-flight within one process, for threads and asyncio tasks alike.

A `Flight` is one computation under way. Its future is marked running when it is made, so that a
waiter that is cancelled cancels only its own waiting.
"""

from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import Future
from typing import Any


class Flight:
    """One computation under way, led by whoever `Flights.join` told so.

    The future's result is what the leader landed with, or None when it gave up: then the waiters
    elect a new leader by joining again.
    """

    __slots__ = ("_flights", "digest", "future", "leader_thread")

    def __init__(self, flights: Flights, digest: bytes, leader_thread: int) -> None:
        self._flights = flights
        self.digest = digest
        self.leader_thread = leader_thread
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()

    def land(self, result: object) -> None:
        """End with a result for every waiter; not None."""
        if self._flights.leave(self):
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """End by raising ``error`` in every waiter."""
        if self._flights.leave(self):
            self.future.set_exception(error)

    def abandon(self) -> None:
        """End without a result: waiters elect a new leader."""
        if self._flights.leave(self):
            self.future.set_result(None)


class Flights:
    """The flights of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[bytes, Flight] = {}
        _every.add(self)

    def join(self, digest: bytes, thread: int = 0) -> tuple[Flight, bool]:
        """The flight for ``digest``, and whether the caller leads it.

        ``thread`` identifies a caller that blocks its thread, 0 one that does not: a thread that
        waits for a flight which it leads itself would wait for ever.
        """
        with self._lock:
            flight = self._flights.get(digest)
            if flight is not None:
                return flight, False
            flight = self._flights[digest] = Flight(self, digest, thread)
            return flight, True

    def leave(self, flight: Flight) -> bool:
        """Take a flight off the table; False if it was off already (settled, or of a parent)."""
        with self._lock:
            if self._flights.get(flight.digest) is not flight:
                return False
            del self._flights[flight.digest]
            return True

    def __len__(self) -> int:
        return len(self._flights)

    def _forget(self) -> None:
        # In a forked child the leaders are threads that do not exist here, and the lock may have
        # been held by one of them.
        self._lock = threading.Lock()
        self._flights = {}


_every: weakref.WeakSet[Flights] = weakref.WeakSet()


def _after_fork() -> None:
    for flights in list(_every):
        flights._forget()


os.register_at_fork(after_in_child=_after_fork)
