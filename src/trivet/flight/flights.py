"""Single-flight within one process, for threads and asyncio tasks alike.

A `Flight` is one computation under way. Its future is marked running when it is made, so that a
waiter that is cancelled cancels only its own waiting.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from trivet.forks import in_children

if TYPE_CHECKING:
    from concurrent.futures import Future


class Flight:
    """One computation under way, led by whoever `Flights.join` told so.

    The future's result is what the leader landed with, or None when it gave up: then the waiters
    elect a new leader by joining again. Only the leader keeps its flight: one that is lost on the
    way, as by an interrupt between two lines, is given up when it is collected.
    """

    __slots__ = ("__weakref__", "_ending", "_flights", "_future", "digest", "leader")

    def __init__(self, flights: Flights, digest: bytes, leader: int) -> None:
        self._flights = flights
        self._future: Future[Any] | None = None
        self._ending: tuple[object, BaseException | None] | None = None
        self.digest = digest
        self.leader = leader

    def future(self) -> Future[Any]:
        """What to wait for. Made for the first who waits: most flights have nobody waiting."""
        from concurrent.futures import Future

        with self._flights.lock:
            if self._future is None:
                self._future = Future()
                self._future.set_running_or_notify_cancel()
                if self._ending is not None:
                    _end(self._future, *self._ending)
            return self._future

    def land(self, result: object) -> None:
        """End with a result for every waiter; not None."""
        self._leave(result, None)

    def fail(self, error: BaseException) -> None:
        """End by raising ``error`` in every waiter."""
        self._leave(None, error)

    def abandon(self) -> None:
        """End without a result: waiters elect a new leader."""
        self._leave(None, None)

    def __del__(self) -> None:
        # Without the lock, which this very thread may hold; nobody else knows this flight any more.
        if self._ending is None and self._future is not None:
            _end(self._future, None, None)

    def _leave(self, result: object, error: BaseException | None) -> None:
        with self._flights.lock:
            if not self._flights.remove(self):
                return
            self._ending = (result, error)
            future = self._future
        if future is not None:
            _end(future, result, error)


def _end(future: Future[Any], result: object, error: BaseException | None) -> None:
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class Flights:
    """The flights of one process."""

    def __init__(self) -> None:
        # One that its holder may take again: garbage may be collected while it is held, and with it
        # a lease that is given up then.
        self.lock = threading.RLock()
        self._flights: dict[bytes, weakref.ref[Flight]] = {}
        self._waiting: dict[int, bytes] = {}
        _every.add(self)

    def join(self, digest: bytes, waiter: int = 0) -> tuple[Flight, bool]:
        """The flight for ``digest``, and whether the caller leads it.

        ``waiter`` identifies a thread or task that does nothing else while it waits, 0 one that
        may. Who waits should keep the flight's future and not the flight.
        """
        with self.lock:
            flight = self._known(digest)
            if flight is not None:
                return flight, False
            flight = Flight(self, digest, waiter)
            self._flights[digest] = weakref.ref(flight)
            return flight, True

    def wait(self, flight: Flight, waiter: int) -> bool:
        """Note that ``waiter`` waits until `waited`; False if it would wait for itself.

        That is so when it leads the flight or is part of what computes for it (`computing`), or
        when the flight's leader waits, by way of any number of others, for one of which that holds.
        """
        own = _computed_for.get()
        with self.lock:
            ahead: Flight | None = flight
            while ahead is not None:
                if (waiter and ahead.leader == waiter) or weakref.ref(ahead) in own:
                    return False
                ahead = self._known(self._waiting.get(ahead.leader, b""))
            if waiter:
                self._waiting[waiter] = flight.digest
            return True

    def waited(self, waiter: int) -> None:
        """The waiting is over."""
        self._waiting.pop(waiter, None)

    def remove(self, flight: Flight) -> bool:
        """Take a flight off the table, with the lock held; False if it was off already."""
        if self._known(flight.digest) is not flight:
            return False
        del self._flights[flight.digest]
        return True

    def _known(self, digest: bytes) -> Flight | None:
        found = self._flights.get(digest)
        return None if found is None else found()

    def __len__(self) -> int:
        return sum(each() is not None for each in list(self._flights.values()))

    def _forget(self) -> None:
        # In a forked child the leaders are threads that do not exist here, and the lock may have
        # been held by one of them.
        self.lock = threading.RLock()
        self._flights, self._waiting = {}, {}


# Weak, since the context of a task may outlive what it was started for.
_computed_for: ContextVar[frozenset[weakref.ref[Flight]]] = ContextVar(
    "trivet_computed_for", default=frozenset()
)


@contextlib.contextmanager
def computing(flights: Iterable[weakref.ref[Flight]]) -> Iterator[None]:
    """Around what computes for ``flights``: it doesn't wait for them, nor do tasks that it starts
    and threads that are given its context, as by `asyncio.to_thread`."""
    before = _computed_for.get()
    _computed_for.set(before.union(flights))
    try:
        yield
    finally:
        _computed_for.set(before)


_every = in_children(Flights._forget)
