"""Who computes, and how the others wait: the algorithm of `acquire`, for both faces.

The algorithm is one generator. It yields what it needs to wait for; a driver (`run` here, the
asyncio one in `trivet.aio`) does the waiting and resumes it. So there is one logic, whatever waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from trivet.cache.forms import Form
from trivet.cache.lease import BaseLease, Grant, Landed
from trivet.cache.outcomes import Failed, Hit, Miss
from trivet.cache.tiers import Tiers
from trivet.events import EventKind, MissReason, Tier
from trivet.flight import FileLock, FileLocks, Flight, Flights
from trivet.keys import Key

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
L = TypeVar("L", bound=BaseLease)

_FIRST_POLL = 0.001
_LAST_POLL = 0.05


class Sleep(msgspec.Struct, frozen=True):
    """Resume after ``seconds``; input and output follows, so not on an event loop."""

    seconds: float


class Await(msgspec.Struct, frozen=True):
    """Resume with the future's result or error, or with `TIMED_OUT` after ``seconds``."""

    future: Future[Any]
    seconds: float


TIMED_OUT = object()
_LOOK_AGAIN = object()  # the leader found the value; every waiter looks it up for itself
Steps: TypeAlias = Generator[Sleep | Await, Any, T]


class Coordinator:
    """Elects leaders among threads, tasks and processes, and lets the others wait."""

    def __init__(self, tiers: Tiers, locks: FileLocks | None) -> None:
        self._tiers = tiers
        self._locks = locks
        self._flights = Flights()

    def steps(
        self,
        key: Key,
        form: Form[T, L],
        tags: tuple[str, ...],
        wait: float,
        reason: MissReason,
        *,
        waiter: int,
    ) -> Steps[Hit[T] | Failed | L]:
        """`acquire` after a first look found nothing, for ``reason``.

        ``waiter`` identifies the thread or task that waits and does nothing else meanwhile, as for
        `Flights.join`.
        """
        deadline = self._tiers.clock.monotonic() + wait
        while True:
            flight, leads = self._flights.join(key.digest, waiter)
            if leads:
                return (yield from self._lead(key, form, tags, deadline, reason, flight))
            remaining = deadline - self._tiers.clock.monotonic()
            if remaining <= 0 or not self._flights.wait(flight, waiter):
                yield Sleep(0.0)
                return self._grant(key, form, tags, MissReason.WAIT_TIMEOUT, None, None)
            future = flight.future()
            del flight
            try:
                self._tiers.emit(EventKind.WAITED, Tier.MEMORY, key=key)
                landed = yield Await(future, remaining)
            finally:
                self._flights.waited(waiter)
            if isinstance(landed, Landed):
                outcome = form.receive(landed)
                if outcome is not None:
                    return outcome
            elif landed is _LOOK_AGAIN:
                yield Sleep(0.0)
                found = form.look(key)
                if not isinstance(found, Miss):
                    return found

    def _lead(
        self,
        key: Key,
        form: Form[T, L],
        tags: tuple[str, ...],
        deadline: float,
        reason: MissReason,
        flight: Flight,
    ) -> Steps[Hit[T] | Failed | L]:
        """Lead within this process: get the lock of the host, look again, grant the lease."""
        lock: FileLock | None = None
        try:
            yield Sleep(0.0)
            delay = _FIRST_POLL
            while self._locks is not None:
                try:
                    lock = self._locks.try_lock(key.digest)
                except OSError as error:
                    self._tiers.tier_failed(error, "lock")
                    break
                if lock is not None:
                    break
                remaining = deadline - self._tiers.clock.monotonic()
                if remaining <= 0:
                    reason = MissReason.WAIT_TIMEOUT
                    break
                if delay == _FIRST_POLL:
                    self._tiers.emit(EventKind.WAITED, Tier.HOST, key=key)
                yield Sleep(min(delay, remaining))
                delay = min(delay * 1.5, _LAST_POLL)
                found = form.look(key)
                if not isinstance(found, Miss):
                    return self._share(flight, found)
            found = form.look(key)
            if not isinstance(found, Miss):
                return self._share(flight, found)
            if reason is not MissReason.WAIT_TIMEOUT and found.reason is not MissReason.ABSENT:
                reason = found.reason
            lease = self._grant(key, form, tags, reason, flight, lock)
            lock = None
            return lease
        except BaseException:
            flight.abandon()
            raise
        finally:
            if lock is not None:
                lock.release()

    def _share(self, flight: Flight, found: Hit[T] | Failed) -> Hit[T] | Failed:
        # The waiters may want another codec, and a value that can be changed must not be handed to
        # two of them.
        flight.land(_LOOK_AGAIN)
        return found

    def _grant(
        self,
        key: Key,
        form: Form[T, L],
        tags: tuple[str, ...],
        reason: MissReason,
        flight: Flight | None,
        lock: FileLock | None,
    ) -> L:
        generation = self._tiers.generation()
        epochs = self._tiers.epochs(tags, generation)
        start = {tag: epochs[tag] for tag in tags}
        return form.lease(Grant(self._tiers, key, reason, flight, lock, start, generation))


def run(steps: Steps[T], tiers: Tiers, waiting: Callable[[], object] | None = None) -> T:
    """Drive ``steps`` by blocking the calling thread; ``waiting`` is called before it first waits.

    ``waiting`` must not raise.
    """
    try:
        return _driven(steps, tiers, waiting)
    finally:
        # After an interrupt, others must not wait until its traceback is let go of.
        steps.close()


def _driven(steps: Steps[T], tiers: Tiers, waiting: Callable[[], object] | None) -> T:
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer, error = None, None
        if waiting is not None and step.seconds > 0:
            waiting()
            waiting = None
        if isinstance(step, Sleep):
            if step.seconds > 0:
                tiers.clock.sleep(step.seconds)
            continue
        try:
            answer = step.future.result(step.seconds)
        except TimeoutError as late:
            # The leader may itself have failed with a TimeoutError.
            if step.future.done():
                error = late
            else:
                answer = TIMED_OUT
        except BaseException as raised:
            if not step.future.done() or step.future.exception() is not raised:
                raise
            error = raised
