"""Stores for tests: one that is a dict, and one that fails on demand."""

from __future__ import annotations

import enum
import random
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from trivet.clock import Clock, SystemClock
from trivet.errors import StoreFull, StoreUnavailable
from trivet.stores import Store, StoredHead


class MemoryStore:
    """The smallest right `trivet.stores.Store`: a dict. Other stores are measured by it."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] | None = {}

    def read(self, digest: bytes) -> bytes | memoryview | None:
        """The sealed entry, or None."""
        return self._open().get(digest)

    def write(self, digest: bytes, sealed: bytes) -> None:
        """Keep an entry."""
        self._open()[digest] = bytes(sealed)

    def delete(self, digest: bytes) -> bool:
        """Forget an entry."""
        return self._open().pop(digest, None) is not None

    def scan(self) -> Iterator[StoredHead]:
        """All entries, whole."""
        return (StoredHead(digest, sealed) for digest, sealed in list(self._open().items()))

    def close(self) -> None:
        """Drop everything; other calls then raise."""
        self._entries = None

    def _open(self) -> dict[bytes, bytes]:
        if self._entries is None:
            raise StoreUnavailable("the store was closed")
        return self._entries


class Operation(enum.StrEnum):
    """What can be made to fail."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    SCAN = "scan"


class Fault(enum.StrEnum):
    """How it fails."""

    UNAVAILABLE = "unavailable"  # raises StoreUnavailable
    FULL = "full"  # raises StoreFull
    FLIP = "flip"  # one bit of the entry is another one
    TRUNCATE = "truncate"  # the entry's end is missing
    SLOW = "slow"  # sleeps on the clock, then works


_POSSIBLE = {
    Operation.READ: (Fault.UNAVAILABLE, Fault.FLIP, Fault.TRUNCATE, Fault.SLOW),
    Operation.WRITE: (Fault.UNAVAILABLE, Fault.FULL, Fault.FLIP, Fault.TRUNCATE, Fault.SLOW),
    Operation.DELETE: (Fault.UNAVAILABLE, Fault.SLOW),
    Operation.SCAN: (Fault.UNAVAILABLE, Fault.SLOW),
}


class FaultyStore:
    """A store around another one, which fails by script or at random, the same way for one seed.

    Args:
        store: the one that works.
        rate: the chance, 0 to 1, that an operation without a scripted fault fails.
        faults: the kinds of random faults; each operation takes those that fit it.
        seed: of the random faults, flipped bits and lengths.
        clock, delay: what `Fault.SLOW` sleeps on, and for how many seconds.

    Attributes:
        injected: every operation that failed and how, in order.

    >>> store = FaultyStore(MemoryStore())
    >>> store.script("read", None, Fault.UNAVAILABLE)  # the second read from now fails
    >>> store.read(bytes(32))
    >>> store.read(bytes(32))
    Traceback (most recent call last):
    trivet.errors.StoreUnavailable: injected: read is unavailable
    """

    def __init__(
        self,
        store: Store,
        *,
        rate: float = 0.0,
        faults: Iterable[Fault] = tuple(Fault),
        seed: int = 0,
        clock: Clock | None = None,
        delay: float = 1.0,
    ) -> None:
        self.injected: list[tuple[Operation, Fault]] = []
        self._store = store
        self._rate = rate
        self._faults = frozenset(faults)
        self._random = random.Random(seed)
        self._clock = clock or SystemClock()
        self._delay = delay
        self._script: defaultdict[Operation, deque[Fault | None]] = defaultdict(deque)

    def script(self, operation: str, *faults: Fault | None) -> None:
        """What happens to the next calls of ``operation``, one by one; None for nothing.

        Raises ValueError for a fault that the operation can't have.
        """
        target = Operation(operation)
        for fault in faults:
            if fault is not None and fault not in _POSSIBLE[target]:
                raise ValueError(f"{target} can't have the fault {fault}")
        self._script[target].extend(faults)

    def read(self, digest: bytes) -> bytes | memoryview | None:
        """Read, with the fault that is due."""
        fault = self._strike(Operation.READ)
        found = self._store.read(digest)
        return found if found is None else self._damage(found, fault)

    def write(self, digest: bytes, sealed: bytes) -> None:
        """Write, with the fault that is due; damage is stored."""
        fault = self._strike(Operation.WRITE)
        self._store.write(digest, bytes(self._damage(sealed, fault)))

    def delete(self, digest: bytes) -> bool:
        """Delete, with the fault that is due."""
        self._strike(Operation.DELETE)
        return self._store.delete(digest)

    def scan(self) -> Iterator[StoredHead]:
        """Scan, with the fault that is due."""
        self._strike(Operation.SCAN)
        return self._store.scan()

    def close(self) -> None:
        """Close the store inside; never fails."""
        self._store.close()

    def _strike(self, operation: Operation) -> Fault | None:
        fault = self._due(operation)
        if fault is None:
            return None
        self.injected.append((operation, fault))
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable(f"injected: {operation} is unavailable")
        if fault is Fault.FULL:
            raise StoreFull(f"injected: no room for this {operation}")
        if fault is Fault.SLOW:
            self._clock.sleep(self._delay)
        return fault

    def _due(self, operation: Operation) -> Fault | None:
        if self._script[operation]:
            return self._script[operation].popleft()
        possible = [fault for fault in _POSSIBLE[operation] if fault in self._faults]
        if possible and self._random.random() < self._rate:
            return self._random.choice(possible)
        return None

    def _damage(self, sealed: bytes | memoryview, fault: Fault | None) -> bytes | memoryview:
        if fault is Fault.TRUNCATE and len(sealed):
            return bytes(sealed[: self._random.randrange(len(sealed))])
        if fault is Fault.FLIP and len(sealed):
            damaged = bytearray(sealed)
            damaged[self._random.randrange(len(damaged))] ^= 1 << self._random.randrange(8)
            return bytes(damaged)
        return sealed
