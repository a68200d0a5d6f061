"""Stores around stores: one that only reads, and one that stops asking a store which fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from trivet.clock import Clock, SystemClock
from trivet.errors import StoreReadOnly, StoreUnavailable
from trivet.stores.circuit import Circuit
from trivet.stores.store import Store, StoredHead

if TYPE_CHECKING:
    from queue import SimpleQueue

T = TypeVar("T")


class ReadOnly:
    """A store without its writes: they raise `StoreReadOnly`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, digest: bytes) -> bytes | memoryview | None:
        """See `Store.read`."""
        return self._store.read(digest)

    def write(self, digest: bytes, sealed: bytes) -> None:
        """Raises `StoreReadOnly`."""
        self._refuse()

    def delete(self, digest: bytes) -> bool:
        """Raises `StoreReadOnly`."""
        self._refuse()

    def scan(self) -> Iterator[StoredHead]:
        """See `Store.scan`."""
        return self._store.scan()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _refuse(self) -> NoReturn:
        raise StoreReadOnly("this store was opened for reading only")


class Guarded:
    """A store behind a circuit breaker, and a time-out if wanted.

    After ``failures`` calls in a row that raised `StoreUnavailable` (or took too long) the circuit
    opens: calls raise `StoreUnavailable` at once. After ``reset_after`` seconds one call is let
    through; its success closes the circuit, its failure opens it again. Other errors say something
    about the call, not about the store, and count as answers.

    With a ``timeout``, calls run in ``workers`` threads of this object. A call that never returns
    keeps its thread; when all are kept, calls fail at once. Scans are not timed.
    """

    def __init__(
        self,
        store: Store,
        *,
        failures: int = 5,
        reset_after: float = 30.0,
        timeout: float | None = None,
        workers: int = 4,
        clock: Clock | None = None,
    ) -> None:
        """``reset_after`` and ``timeout`` are seconds."""
        self._store = store
        self._timeout = timeout
        self._circuit = Circuit(failures, reset_after, clock or SystemClock())
        self._workers = _Workers(workers) if timeout is not None else None

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open: the store isn't asked."""
        return self._circuit.is_open

    def read(self, digest: bytes) -> bytes | memoryview | None:
        """See `Store.read`."""
        return self._call(lambda: self._store.read(digest))

    def write(self, digest: bytes, sealed: bytes) -> None:
        """See `Store.write`. After a time-out the entry may be written or not."""
        self._call(lambda: self._store.write(digest, sealed))

    def delete(self, digest: bytes) -> bool:
        """See `Store.delete`. After a time-out the entry may be deleted or not."""
        return self._call(lambda: self._store.delete(digest))

    def scan(self) -> Iterator[StoredHead]:
        """See `Store.scan`."""
        self._circuit.admit()
        try:
            yield from self._store.scan()
        except StoreUnavailable:
            self._circuit.note(failed=True)
            raise
        self._circuit.note(failed=False)

    def close(self) -> None:
        """Close the store; calls that still run are not waited for."""
        if self._workers is not None:
            self._workers.stop()
        self._store.close()

    def _call(self, work: Callable[[], T]) -> T:
        workers, timeout = self._workers, self._timeout
        return self._circuit.call(work if workers is None else lambda: workers.run(work, timeout))


class _Workers:
    """Daemon threads, so that a call that never returns doesn't keep the process from ending."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._stopped = False
        self._reset()

    def _reset(self) -> None:
        from queue import SimpleQueue  # only stores with a time-out need it

        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._threads = self._busy = self._late = 0
        self._process = os.getpid()

    def run(self, work: Callable[[], T], timeout: float | None) -> T:
        """Raises `StoreUnavailable` when it takes longer than ``timeout`` seconds."""
        if self._process != os.getpid():
            self._reset()  # threads don't survive a fork
        call = _Call(work)
        self._start(call)
        if not call.done.wait(timeout):
            with self._lock:
                if not call.done.is_set():
                    call.late = True
                    self._late += 1
                    raise StoreUnavailable(f"the store did not answer within {timeout} s")
        if call.error is not None:
            raise call.error
        return call.result[0]

    def stop(self) -> None:
        """End the threads that aren't kept by a call."""
        with self._lock:
            self._stopped = True
            for _ in range(self._threads):
                self._jobs.put(None)

    def _start(self, call: _Call[T]) -> None:
        with self._lock:
            if self._stopped:
                raise StoreUnavailable("the store is closed")
            if self._late >= self._count:
                raise StoreUnavailable("all calls to the store are waiting for an answer")
            self._busy += 1
            if self._threads < min(self._busy, self._count):
                self._threads += 1
                threading.Thread(target=self._work, args=(self._jobs,), daemon=True).start()
            self._jobs.put(call)

    def _work(self, jobs: SimpleQueue[_Call[Any] | None]) -> None:
        while (call := jobs.get()) is not None:
            call.run()
            with self._lock:
                self._busy -= 1
                self._late -= call.late
                call.done.set()


class _Call(Generic[T]):
    """Work, and what came of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.done = threading.Event()
        self.late = False
        self.result: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result.append(self._work())
        except BaseException as error:  # noqa: BLE001  (the caller raises it)
            self.error = error
