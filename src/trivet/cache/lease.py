"""Leases: the right, and the duty, to compute one value.

A lease ends in exactly one way: `commit`, `refuse`, `drop` or `abandon`. One that is left unsettled
is abandoned at the end of its ``with`` block or when it is collected, so nobody waits for it.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from trivet.cache.outcomes import Failed
from trivet.cache.tiers import Tiers
from trivet.cache.validity import texts_of
from trivet.codecs import Codec
from trivet.entries import Descriptor, Failure, seal
from trivet.errors import LeaseLost
from trivet.events import EventKind, MissReason, Tier
from trivet.flight import FileLock, Flight
from trivet.flight import computing as computing_for
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.stores.shared import HostLease

T = TypeVar("T")
FAILURE_CODEC = "failure/1"
_MAX_ERROR_TEXT = 4000


class Landed(msgspec.Struct, frozen=True):
    """What a leader hands to those who waited in the same process."""

    descriptor: Descriptor
    live: object


class Grant(msgspec.Struct, frozen=True):
    """What the coordinator gives a new lease."""

    tiers: Tiers
    key: Key
    reason: MissReason
    flight: Flight | None
    lock: FileLock | None
    tags: dict[str, int]
    generation: int
    shared: dict[str, int] = {}
    host_lease: HostLease | None = None


class CommitTerms(msgspec.Struct, frozen=True):
    """What a caller says about the value that it commits: see `Lease.commit`."""

    cost: float | None = None
    lifetime: float | None = None
    tags: Iterable[str] = ()
    group: str = ""
    detail: Mapping[str, object] | None = None
    stale: float = 0.0


class BaseLease:
    """What leases on values and on artifacts have in common."""

    _in_files = False

    def __init__(self, grant: Grant) -> None:
        self._grant: Grant | None = grant
        self.key = grant.key
        self.reason = grant.reason
        self._tiers = grant.tiers
        self._shared = dict(grant.shared)
        self._started = grant.tiers.clock.monotonic()
        self._process = os.getpid()

    def refuse(self, error: BaseException, *, lifetime: float) -> Failed:
        """Record that computing failed and would fail again, for ``lifetime`` seconds.

        Only for failures that depend on nothing but the key and the lease's tags. Out of memory, a
        full disk, a cancelled task are no such failures: use `abandon`.
        """
        grant = self._settle()
        now = self._tiers.clock.time()
        name = type(error).__qualname__
        # Texts of frameworks may hold bytes that are not Unicode; a descriptor can't.
        text = str(error)[:_MAX_ERROR_TEXT].encode("utf-8", "replace").decode()
        failure = Failure(name, text)
        descriptor = Descriptor(
            codec=FAILURE_CODEC,
            created=now,
            expires=now + lifetime,
            cost=self._elapsed(),
            tags=grant.tags,
            shared=self._shared,
            failure=failure,
        )
        sealed = seal(self.key.canonical, descriptor, b"")
        with self._ending(grant):
            valid = self._still_valid(grant, grant.tags)
            try:
                if valid:
                    self._tiers.keep(self.key, descriptor, sealed, None, grant.generation)
                self._tiers.emit(EventKind.REFUSED, Tier.ENGINE, key=self.key, detail=name)
            finally:
                self._land(grant, Landed(descriptor, None), outdated=not valid)
            if valid and self._tiers.shared is not None:
                writer, lease = self._tiers.shared.writer, grant.host_lease
                if self._in_files:
                    writer.files(self.key, descriptor, b"", None, lease)
                else:
                    writer.value(self.key, descriptor, b"", lease)
        return Failed(descriptor, Tier.ENGINE)

    def abandon(self, error: BaseException | None = None) -> None:
        """Give up. Waiters raise ``error``, or elect a new leader where there is none, or one that
        is the leader's own affair, such as a cancellation.

        A second call, or one after the lease was settled, does nothing; nor does one in a forked
        child, where it is the parent's.
        """
        if self._grant is None or not self._is_mine():
            return
        if not isinstance(error, Exception):
            error = None
        grant = self._settle()
        try:
            self._tiers.emit(
                EventKind.ABANDONED,
                Tier.ENGINE,
                key=self.key,
                detail="" if error is None else type(error).__qualname__,
            )
        finally:
            with self._ending(grant):
                self._leave(grant, error)

    # -- for the subclasses --------------------------------------------------------------------

    def _is_mine(self) -> bool:
        return os.getpid() == self._process

    def _held(self) -> Grant:
        if self._grant is None:
            raise LeaseLost(f"the lease on {self.key!r} was settled before")
        return self._grant

    def _settle(self) -> Grant:
        grant = self._held()
        self._grant = None
        return grant

    def _elapsed(self) -> float:
        return self._tiers.clock.monotonic() - self._started

    def _merge_tags(self, grant: Grant, more: Iterable[str]) -> dict[str, int] | None:
        """All tags with their epochs at the start; None when those can't be known any more."""
        tags = dict(grant.tags)
        added = tuple(tag for tag in texts_of(more) if tag not in tags)
        if added:
            shared = self._tiers.shared
            # Asked anew: if anything was invalidated since the start, the generation changes.
            found = None if shared is None else shared.epochs_now(added)
            self._shared.update(found or {})
            epochs = self._tiers.epochs(added, grant.generation)
            if self._tiers.generation() != grant.generation:
                return None
            tags.update({tag: epochs[tag] for tag in added})
        return tags

    def _still_valid(self, grant: Grant, tags: Mapping[str, int]) -> bool:
        """Whether no tag was invalidated since the lease began.

        This only spares a useless write: the entry carries the epochs of the start, so a reader
        would find it invalid anyway.
        """
        now = self._tiers.generation()
        if now == grant.generation or not tags:
            return True
        epochs = self._tiers.epochs(tuple(tags), now)
        return all(epochs.get(tag) == epoch for tag, epoch in tags.items())

    def _describe(
        self, terms: CommitTerms, codec: str, size: int, tags: dict[str, int] | None
    ) -> Descriptor:
        now = self._tiers.clock.time()
        return Descriptor(
            codec=codec,
            created=now,
            expires=None if terms.lifetime is None else now + terms.lifetime,
            stale=0.0 if terms.lifetime is None else terms.stale,
            cost=self._elapsed() if terms.cost is None else terms.cost,
            size=size,
            tags=tags or {},
            shared=self._shared,
            group=terms.group,
            detail=dict(terms.detail or {}),
        )

    def _outdated(self, grant: Grant, tags: dict[str, int] | None) -> str | None:
        """Why a value that is ready must not be stored; None when it may be."""
        if tags is None or not self._still_valid(grant, tags):
            return "a tag was invalidated meanwhile"
        return None

    def _report(self, key: Key, descriptor: Descriptor, why_not: str | None) -> None:
        self._tiers.emit(
            EventKind.COMMITTED if why_not is None else EventKind.DROPPED,
            Tier.ENGINE,
            key=key,
            seconds=descriptor.cost,
            size=descriptor.size,
            detail=why_not or "",
        )

    @contextlib.contextmanager
    def _ending(self, grant: Grant) -> Iterator[None]:
        """Around what is done with a result; other hosts get the lease when it is over."""
        try:
            yield
        finally:
            if grant.host_lease is not None:
                grant.host_lease.release()

    def _land(self, grant: Grant, landed: Landed, *, outdated: bool = False) -> None:
        """Give all waiters the result. One that is outdated they don't get: who came after the
        invalidation must not, so one of them computes anew."""
        if outdated:
            self._leave(grant)
            return
        if grant.lock is not None:
            grant.lock.release()
        if grant.flight is not None:
            grant.flight.land(landed)

    def _leave(self, grant: Grant, error: BaseException | None = None) -> None:
        if grant.lock is not None:
            grant.lock.release()
        if grant.flight is not None and error is not None:
            grant.flight.fail(error)
        elif grant.flight is not None:
            grant.flight.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Only ordinary errors say something about the computation. A cancelled task or an
        # interrupt ends this leader, and somebody else may well succeed.
        self.abandon(error)

    def __del__(self) -> None:
        if getattr(self, "_grant", None) is not None:
            with contextlib.suppress(Exception):
                self.abandon()

    def __repr__(self) -> str:
        state = "settled" if self._grant is None else "held"
        return f"<{type(self).__name__} {state} {self.key!r}>"


def computing(leases: Iterable[BaseLease]) -> contextlib.AbstractContextManager[None]:
    """Around what computes under ``leases``: where it asks for one of their keys it gets a lease of
    its own at once, in whatever task it does so, instead of waiting for itself."""
    flights = (each._grant.flight for each in leases if each._grant is not None)
    return computing_for([weakref.ref(each) for each in flights if each is not None])


class Lease(BaseLease, Generic[T]):
    """The right to compute one value.

    Attributes:
        key: of the value to compute.
        reason: why it has to be computed.
    """

    def __init__(self, grant: Grant, codec: Codec[T], replacing: Descriptor | None = None) -> None:
        super().__init__(grant)
        self._codec = codec
        self._replacing = replacing

    def commit(
        self,
        value: T,
        *,
        cost: float | None = None,
        lifetime: float | None = None,
        tags: Iterable[str] = (),
        group: str = "",
        detail: Mapping[str, object] | None = None,
        stale: float = 0.0,
    ) -> T:
        """Store ``value`` and hand it to all waiters; returns it.

        When a tag was invalidated since the lease began, the value is handed out and not stored.

        Args:
            value: what the lease's codec can encode.
            cost: seconds that computing took; by default the time since the lease was given.
            lifetime: seconds until the entry expires; None for never.
            tags: dependency tags beside those given when the lease was taken.
            group: quota group.
            detail: domain facts, plain MessagePack types.
            stale: seconds after its lifetime in which it may answer who accepts that.

        Raises:
            LeaseLost: the lease was settled before.
            TypeError, ValueError: the codec can't encode the value; waiters get the same error.
        """
        return self._finish(value, CommitTerms(cost, lifetime, tags, group, detail, stale))

    def drop(self, value: T, why: str) -> T:
        """Hand ``value`` to all waiters without storing it; ``why`` is for people."""
        return self._finish(value, CommitTerms(), why)

    def _finish(self, value: T, terms: CommitTerms, why_not: str | None = None) -> T:
        grant, codec = self._held(), self._codec
        try:
            payload = codec.encode(value)
            tags = self._merge_tags(grant, terms.tags)
            descriptor = self._describe(terms, codec.id, len(payload), tags)
            sealed = seal(self.key.canonical, descriptor, payload)
            live = codec.decode(memoryview(payload)) if codec.shareable else payload
        except Exception as error:
            self.abandon(error)
            raise
        self._settle()
        outdated = self._outdated(grant, tags) if why_not is None else None
        if why_not is None:
            why_not = outdated
        with self._ending(grant):
            try:
                if why_not is None:
                    self._tiers.keep(self.key, descriptor, sealed, live, grant.generation)
                self._report(self.key, descriptor, why_not)
            finally:
                self._land(grant, Landed(descriptor, live), outdated=outdated is not None)
            if why_not is None and self._tiers.shared is not None:
                self._tiers.shared.writer.value(
                    self.key, descriptor, payload, grant.host_lease, self._replacing
                )
        return value
