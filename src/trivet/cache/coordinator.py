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
from trivet.errors import StoreError
from trivet.events import EventKind, MissReason, Tier
from trivet.flight import FileLock, FileLocks, Flight, Flights
from trivet.keys import Key

if TYPE_CHECKING:
    from concurrent.futures import Future

    from trivet.stores.shared import HostLease

T = TypeVar("T")
L = TypeVar("L", bound=BaseLease)

WAIT_SECONDS = 600.0
"""For how long callers wait for somebody else's lease, where they don't say."""

_FIRST_POLL = 0.001
_LAST_POLL = 0.05
_FIRST_POLL_SHARED = 0.02
_LAST_POLL_SHARED = 0.5


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
    """Elects leaders among threads, tasks, processes and hosts, and lets the others wait."""

    def __init__(
        self, tiers: Tiers, locks: FileLocks | None, flights: Flights | None = None
    ) -> None:
        self._tiers = tiers
        self._locks = locks
        self.flights = Flights() if flights is None else flights

    def on(self, tiers: Tiers) -> Coordinator:
        """The same leases, for another view of the tiers."""
        return Coordinator(tiers, self._locks, self.flights)

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
            flight, leads = self.flights.join(key.digest, waiter)
            if leads:
                return (yield from self._lead(key, form, tags, deadline, reason, flight))
            remaining = deadline - self._tiers.clock.monotonic()
            if remaining <= 0 or not self.flights.wait(flight, waiter):
                yield Sleep(0.0)
                return self._grant(key, form, tags, MissReason.WAIT_TIMEOUT, None, None)
            future = flight.future()
            del flight
            try:
                self._tiers.emit(EventKind.WAITED, Tier.MEMORY, key=key)
                landed = yield Await(future, remaining)
            finally:
                self.flights.waited(waiter)
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
        host_lease: HostLease | None = None
        try:
            yield Sleep(0.0)
            got = yield from self._lock(key, form, deadline)
            if isinstance(got, Hit | Failed):
                return self._share(flight, got)
            if isinstance(got, Miss):
                reason = got.reason
            else:
                lock = got
            found = form.look(key)
            if isinstance(found, Miss) and self._tiers.shared is not None:
                found, host_lease = yield from self._ask_hosts(key, form, deadline, found)
            if not isinstance(found, Miss):
                return self._share(flight, found)
            if reason is not MissReason.WAIT_TIMEOUT and found.reason is not MissReason.ABSENT:
                reason = found.reason
            lease = self._grant(key, form, tags, reason, flight, lock, host_lease)
            lock = host_lease = None
            return lease
        except BaseException:
            flight.abandon()
            raise
        finally:
            if lock is not None:
                lock.release()
            if host_lease is not None:
                host_lease.release()

    def _lock(
        self, key: Key, form: Form[T, L], deadline: float
    ) -> Steps[FileLock | Hit[T] | Failed | Miss | None]:
        """The lock of the host, or what its holder made meanwhile; a miss if that takes too long.

        None where nothing can be locked.
        """
        delay = _FIRST_POLL
        while self._locks is not None:
            try:
                lock = self._locks.try_lock(key.digest)
            except OSError as error:
                self._tiers.tier_failed(error, "lock")
                break
            if lock is not None:
                return lock
            remaining = deadline - self._tiers.clock.monotonic()
            if remaining <= 0:
                return Miss(MissReason.WAIT_TIMEOUT)
            if delay == _FIRST_POLL:
                self._tiers.emit(EventKind.WAITED, Tier.HOST, key=key)
            yield Sleep(min(delay, remaining))
            delay = min(delay * 1.5, _LAST_POLL)
            found = form.look(key)
            if not isinstance(found, Miss):
                return found
        return None

    def _ask_hosts(
        self, key: Key, form: Form[T, L], deadline: float, missed: Miss
    ) -> Steps[tuple[Hit[T] | Failed | Miss, HostLease | None]]:
        """What other hosts have or are making; else a miss, with the lease if there is one."""
        shared = self._tiers.shared
        assert shared is not None
        found = self._look_shared(key, form, missed)
        delay = _FIRST_POLL_SHARED
        while isinstance(found, Miss) and shared.parts.has_leases(files=form.in_files):
            try:
                lease = shared.parts.try_take(key.digest)
            except StoreError as error:
                self._tiers.tier_failed(error, "lease", tier=Tier.SHARED)
                break
            if lease is not None:
                try:
                    found = self._look_shared(key, form, missed)
                except BaseException:
                    lease.release()
                    raise
                if isinstance(found, Miss):
                    return found, lease
                lease.release()
                break
            remaining = deadline - self._tiers.clock.monotonic()
            if remaining <= 0:
                return Miss(MissReason.WAIT_TIMEOUT), None
            if delay == _FIRST_POLL_SHARED:
                self._tiers.emit(EventKind.WAITED, Tier.SHARED, key=key)
            yield Sleep(min(delay, remaining))
            delay = min(delay * 1.5, _LAST_POLL_SHARED)
        return found, None

    def _look_shared(self, key: Key, form: Form[T, L], missed: Miss) -> Hit[T] | Failed | Miss:
        found = form.look_shared(key, missed)
        if not isinstance(found, Miss):
            self._tiers.report_found(key, found)
        return found

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
        host_lease: HostLease | None = None,
    ) -> L:
        tiers = self._tiers
        shared = {} if tiers.shared is None or not tags else tiers.shared.epochs(tags)
        generation = tiers.generation()
        epochs = tiers.epochs(tags, generation)
        start = {tag: epochs[tag] for tag in tags}
        return form.lease(
            Grant(tiers, key, reason, flight, lock, start, generation, shared, host_lease)
        )


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
