"""Memos of coroutine functions whose results are made anew in tasks of the running loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trivet.aio import AsyncCache
from trivet.cache import Hit, Lease
from trivet.entries import Descriptor
from trivet.values.async_memoise import AsyncMemo
from trivet.values.fresh import BaseFresh, own

if TYPE_CHECKING:
    from trivet.cache.refreshes import Turn

P = ParamSpec("P")
R = TypeVar("R")


class AsyncFreshMemo(BaseFresh[P, R], AsyncMemo[P, R]):
    """An `AsyncMemo` whose results are made anew in tasks. One that is cancelled harms nobody."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._tasks: set[asyncio.Task[None]] = set()  # a loop holds its tasks only weakly

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = self._keys.key(args, kwargs)
        found = self._look_live(key, self._codec)
        if found is None and self._terms.stale:
            if self._refreshes.is_on(key):
                found = self._look_stale(key, live=True)
            if found is None:
                found = await asyncio.to_thread(self._look_stale, key)
        if type(found) is Hit:
            turn = self._turn(key, found)
            if turn is not None:
                self._start(turn, found.descriptor, args, kwargs)
            return found.value
        return await self._called(key, args, kwargs)

    def _start(
        self, turn: Turn, old: Descriptor, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> None:
        try:
            making = self._make_anew(turn, old, own(args), own(named))
        except (MemoryError, RuntimeError) as error:  # its caller has a value all the same
            turn.failed(f"the arguments can't be copied: {error}")
            return
        task = asyncio.get_running_loop().create_task(making)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _make_anew(
        self, turn: Turn, old: Descriptor, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        try:
            lease = await AsyncCache(self._cache).acquire(
                turn.key, self._codec, tags=self._tags, wait=0.0, replacing=old
            )
            if isinstance(lease, Lease):
                await self._compute(turn, lease, args, named)
            else:
                turn.done()  # by somebody else
        except Exception as error:  # noqa: BLE001  nobody asked for it whom it could reach
            turn.failed(f"{type(error).__qualname__}: {error}")
        finally:
            turn.end()

    async def _compute(
        self, turn: Turn, lease: Lease[R], args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        try:
            if not self._may_compute(turn, lease, self._keys.key(args, named)):
                return
            started = self._cache.clock.monotonic()
            value: R = await self.function(*args, **named)
            cost = self._cache.clock.monotonic() - started
            after = self._keys.key(args, named)
        except BaseException as error:
            lease.abandon(error)
            raise
        # Shielded: the value is there, so a cancellation must not waste it.
        await asyncio.shield(asyncio.to_thread(self._settle, turn, lease, value, cost, after))
