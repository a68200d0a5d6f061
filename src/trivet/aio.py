"""The asyncio face of the engine: the same leases and rules, input and output off the loop.

Hits in memory are answered inline. A task that is cancelled while it waits harms nobody; one that
is cancelled while it computes abandons its lease, and a waiter takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from trivet.cache import Artifact, ArtifactLease, Cache, Failed, Hit, Lease, Miss
from trivet.cache.coordinator import TIMED_OUT, WAIT_SECONDS, Await, Steps, run
from trivet.cache.lease import BaseLease, computing
from trivet.cache.validity import texts_of
from trivet.codecs import Codec
from trivet.entries import Descriptor
from trivet.events import MissReason
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.cache.changes import Change

T = TypeVar("T")


class AsyncCache:
    """A `Cache` for coroutines. Many may share one `Cache`, and with it leases and memory."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    @overload
    async def get(self, key: Key, codec: Codec[T]) -> Hit[T] | Failed | Miss: ...
    @overload
    async def get(
        self, key: Key, codec: Codec[T], *, known: bytes
    ) -> Change[T] | Failed | Miss: ...
    async def get(
        self, key: Key, codec: Codec[T], *, known: bytes | None = None
    ) -> Hit[T] | Change[T] | Failed | Miss:
        """As `Cache.get`."""
        if known is not None:
            return await asyncio.to_thread(self.cache.get, key, codec, known=known)
        live = self.cache.engine.look_live(key, codec)
        if live is not None:
            return live
        return await asyncio.to_thread(self.cache.get, key, codec)

    async def acquire(
        self,
        key: Key,
        codec: Codec[T],
        *,
        tags: Iterable[str] = (),
        wait: float = WAIT_SECONDS,
        replacing: Descriptor | None = None,
    ) -> Hit[T] | Failed | Lease[T]:
        """As `Cache.acquire`. `Lease.commit` writes: call it with `asyncio.to_thread`."""
        engine = self.cache.engine
        found: Hit[T] | Failed | Miss | None = Miss(MissReason.EXPIRED)
        if replacing is None:
            found = engine.look_live(key, codec)
        if found is None:
            found = await asyncio.to_thread(engine.look_here, key, codec)
        if not isinstance(found, Miss):
            return found
        return await _drive(
            engine.steps(key, codec, tags, wait, found, waiter=_waiter(), replacing=replacing)
        )

    async def acquire_each(
        self, keys: Sequence[Key], codec: Codec[T], *, tags: Iterable[str] = ()
    ) -> list[Hit[T] | Failed | Lease[T]]:
        """`acquire` for each of ``keys``, all in one thread and without waiting.

        For what somebody else is making, the lease's reason is `MissReason.WAIT_TIMEOUT`.
        """
        taking = asyncio.ensure_future(
            asyncio.to_thread(_take_each, self.cache, keys, codec, texts_of(tags), _waiter())
        )
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(_let_go)
            raise

    async def acquire_files(
        self,
        key: Key,
        *,
        also: tuple[Key, ...] = (),
        tags: Iterable[str] = (),
        wait: float = WAIT_SECONDS,
    ) -> Hit[Artifact] | Failed | ArtifactLease:
        """As `Cache.acquire_files`."""
        engine = self.cache.engine
        found = await asyncio.to_thread(engine.look_files_here, key, also)
        if not isinstance(found, Miss):
            return found
        return await _drive(engine.file_steps(key, also, tags, wait, found, waiter=_waiter()))

    async def get_or_compute(
        self,
        key: Key,
        compute: Callable[[], Awaitable[T]],
        codec: Codec[T],
        *,
        tags: Iterable[str] = (),
        lifetime: float | None = None,
        group: str = "",
        wait: float = WAIT_SECONDS,
        record: tuple[type[Exception], ...] = (),
        record_lifetime: float = 3600.0,
    ) -> T:
        """As `Cache.get_or_compute`, with a coroutine function."""
        found = await self.acquire(key, codec, tags=tags, wait=wait)
        if isinstance(found, Hit):
            return found.value
        if isinstance(found, Failed):
            raise found.error()
        lease = found
        try:
            with computing((lease,)):
                value = await compute()
        except record as error:
            await asyncio.shield(asyncio.to_thread(lease.refuse, error, lifetime=record_lifetime))
            raise
        except BaseException as error:
            lease.abandon(error)
            raise
        # Shielded: the value is there, so a cancellation must not waste it.
        return await asyncio.shield(
            asyncio.to_thread(lease.commit, value, lifetime=lifetime, group=group)
        )


def _waiter() -> int:
    """Identifies the running task among all threads and tasks that wait."""
    # Negative, since threads have positive numbers.
    return -id(asyncio.current_task())


async def _drive(steps: Steps[T]) -> T:
    """Drive the coordinator's steps without blocking the loop."""
    answer: Any = None
    error: BaseException | None = None
    threaded = False
    while True:
        if threaded:
            done, result = await _resume_in_thread(steps)
        else:
            done, result = _resume(steps, answer, error)
        if done:
            final: T = result
            return final
        answer, error, threaded = None, None, False
        if isinstance(result, Await):
            try:
                async with asyncio.timeout(result.seconds) as limit:
                    answer = await asyncio.wrap_future(result.future)
            except TimeoutError as late:
                if limit.expired():
                    answer = TIMED_OUT
                else:
                    error = late
            except asyncio.CancelledError:
                steps.close()
                raise
            except Exception as raised:  # noqa: BLE001  the leader's error, re-raised by the steps
                error = raised
        else:
            threaded = True
            try:
                await asyncio.sleep(result.seconds)
            except asyncio.CancelledError:
                steps.close()
                raise


def _resume(steps: Steps[T], answer: Any, error: BaseException | None) -> tuple[bool, Any]:
    try:
        return False, steps.send(answer) if error is None else steps.throw(error)
    except StopIteration as stop:
        return True, stop.value


async def _resume_in_thread(steps: Steps[T]) -> tuple[bool, Any]:
    running = asyncio.ensure_future(asyncio.to_thread(_resume, steps, None, None))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(lambda ended: _discard(steps, ended))
        raise


def _discard(steps: Steps[T], ended: asyncio.Future[tuple[bool, Any]]) -> None:
    """The caller is gone: what the thread got must not be kept from others."""
    if ended.cancelled() or ended.exception() is not None:
        return
    done, result = ended.result()
    if not done:
        steps.close()
    elif isinstance(result, BaseLease):
        result.abandon()


def _take_each(
    cache: Cache, keys: Sequence[Key], codec: Codec[T], tags: tuple[str, ...], who: int
) -> list[Hit[T] | Failed | Lease[T]]:
    engine, taken = cache.engine, list[Hit[T] | Failed | Lease[T]]()
    try:
        for key in keys:
            found = engine.look_here(key, codec)
            if isinstance(found, Miss):
                steps = engine.steps(key, codec, tags, 0.0, found, waiter=who)
                taken.append(run(steps, engine.tiers))
            else:
                taken.append(found)
    except BaseException:
        _abandon(taken)
        raise
    return taken


def _let_go(ended: asyncio.Future[list[Any]]) -> None:
    if not ended.cancelled() and ended.exception() is None:
        _abandon(ended.result())


def _abandon(taken: Iterable[object]) -> None:
    for each in taken:
        if isinstance(each, BaseLease):
            each.abandon()
