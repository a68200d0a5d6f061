"""Memos of coroutine functions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ParamSpec, TypeVar

from trivet.aio import AsyncCache
from trivet.cache import Failed, Hit
from trivet.errors import ComputeFailed
from trivet.keys import Key
from trivet.values.memoise import BaseMemo
from trivet.values.watch import MISSING

P = ParamSpec("P")
R = TypeVar("R")


class AsyncMemo(BaseMemo[P, R]):
    """A coroutine function with its results kept. Await it as the function; see `memo`.

    A hit in memory is answered inline; everything else leaves the loop free. A task that is
    cancelled while it computes hands its turn to another that waits; none of those is cancelled.
    """

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = self._keys.key(args, kwargs)
        value: R = self._read(key, MISSING)
        return await self._acquired(key, args, kwargs) if value is MISSING else value

    async def _acquired(self, key: Key, args: tuple[Any, ...], named: Mapping[str, Any]) -> R:
        terms, clock = self._terms, self._cache.clock
        found = await AsyncCache(self._cache).acquire(
            key, self._codec, tags=self._tags, wait=terms.wait
        )
        if isinstance(found, Hit):
            return found.value
        if isinstance(found, Failed):
            raise ComputeFailed.recorded(found.error_class, found.error_text)
        lease, started = found, clock.monotonic()
        try:
            value: R = await self.function(*args, **named)
            cost, after = clock.monotonic() - started, self._keys.key(args, named)
        except terms.record as error:
            await asyncio.shield(
                asyncio.to_thread(lease.refuse, error, lifetime=terms.record_lifetime)
            )
            raise
        except BaseException as error:
            lease.abandon(error if isinstance(error, Exception) else None)
            raise
        # Shielded: the value is there, so a cancellation must not waste it.
        return await asyncio.shield(asyncio.to_thread(self.keep, lease, value, cost, after))
