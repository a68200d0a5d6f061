"""`Shared`: what a cache shares with other hosts, and how it is reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from trivet.clock import Clock, SystemClock
from trivet.errors import StoreReadOnly
from trivet.stores.circuit import Circuit
from trivet.stores.shared import (
    EpochSource,
    HostLease,
    Leases,
    ObjectStore,
    Pieces,
    ValkeyStore,
)
from trivet.stores.shared.objects import SCHEMES as OBJECT_SCHEMES
from trivet.stores.shared.valkey import SCHEMES as VALKEY_SCHEMES

T = TypeVar("T")

# Bytes of a sealed value that Valkey takes where there is an object store, too.
SMALL_VALUE = 1 << 20
_FAILURES = 2
_REST_SECONDS = 15.0


class Shared:
    """An object store, a Valkey, or both.

    With both, artifacts, large values and the epochs of tags are in the object store, small values
    and leases in Valkey; without an object store large values are in Valkey, in pieces. Each is
    behind a circuit breaker of its own.

    Args:
        objects, values: the stores; one of them at least.
        leases: by default those of ``values``.
    """

    def __init__(
        self,
        objects: ObjectStore | None = None,
        values: ValkeyStore | None = None,
        *,
        leases: Leases | None = None,
        clock: Clock | None = None,
    ) -> None:
        source: EpochSource | None = objects or values
        if source is None:
            raise ValueError("a shared tier needs an object store or a Valkey")
        clock = clock or SystemClock()
        self.objects = objects
        self.values = values
        self.pieces = None if values is None else Pieces(values)
        self.epochs = source  # the object store's where there is one: it forgets nothing
        self._leases = leases or (Leases(values) if values is not None else None)
        self._circuits = {
            id(store): Circuit(_FAILURES, _REST_SECONDS, clock)
            for store in (objects, values)
            if store is not None
        }
        self._read_only: set[int] = set()

    @classmethod
    def open(cls, urls: str | Sequence[str], *, clock: Clock | None = None) -> Shared:
        """The shared tier at one url or two. Nothing is asked of it yet.

        Raises:
            ValueError: a url of no known kind, or two of one kind.
            MissingExtra, StoreUnavailable: see the stores.
        """
        objects: ObjectStore | None = None
        values: ValkeyStore | None = None
        for url in [urls] if isinstance(urls, str) else urls:
            scheme = url.partition("://")[0]
            if scheme in OBJECT_SCHEMES and objects is None:
                objects = ObjectStore(url)
            elif scheme in VALKEY_SCHEMES and values is None:
                values = ValkeyStore(url)
            else:
                raise ValueError(
                    f"{url!r} is not the URL of a shared tier, or is a second one of its kind; "
                    f"known are {', '.join((*OBJECT_SCHEMES, *VALKEY_SCHEMES))}"
                )
        return cls(objects, values, clock=clock)

    @property
    def where(self) -> str:
        """Identifies the epochs."""
        store = self.objects or self.values
        return "" if store is None else store.url

    def has_leases(self, *, files: bool) -> bool:
        """Whether hosts wait for each other: only for what can then be had from the others."""
        return self._leases is not None and (self.objects is not None or not files)

    def try_take(self, digest: bytes) -> HostLease | None:
        """See `Leases.try_take`."""
        assert self._leases is not None
        assert self.values is not None
        leases = self._leases
        return self.ask(self.values, lambda: leases.try_take(digest))

    def read(self, store: ObjectStore | ValkeyStore, digest: bytes) -> bytes | None:
        """The sealed entry in ``store``, whole. Raises `StoreError`, `CorruptEntry`."""
        whole = self.pieces if store is self.values and self.pieces is not None else store
        return self.ask(store, lambda: whole.read(digest))

    def ask(self, store: object, work: Callable[[], T]) -> T:
        """``work()``, which asks ``store``. Raises `StoreError`."""
        return self._circuits[id(store)].call(work)

    def answered(self, store: object) -> None:
        """Note that ``store`` can be reached, whatever failed before."""
        self._circuits[id(store)].note(failed=False)

    def tell(self, store: object, work: Callable[[], T]) -> T | None:
        """`ask` for what writes; None where the store has refused to be written before."""
        if id(store) in self._read_only:
            return None
        try:
            return self.ask(store, work)
        except StoreReadOnly:
            self._read_only.add(id(store))
            raise

    def close(self) -> None:
        """End the heartbeat and close the stores."""
        if self._leases is not None:
            self._leases.close()
        for store in (self.objects, self.values):
            if store is not None:
                store.close()
