"""Memos of coroutine functions."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trivet.aio import AsyncCache
from trivet.cache import Failed, Hit, Lease
from trivet.cache.lease import computing
from trivet.keys import Key
from trivet.values.memoise import BaseMemo, Inputs
from trivet.values.watch import MISSING

if TYPE_CHECKING:
    from trivet.values.async_nodes import AsyncNode

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
        return await self._called(key, args, kwargs) if value is MISSING else value

    async def map(
        self,
        items: Iterable[Any],
        compute: Callable[[list[Any]], Awaitable[Sequence[R]]] | None = None,
        **named: Any,
    ) -> list[R]:
        """The values of ``[await self(each, **named) for each in items]``, in that order.

        Items that are alike are computed once, and what is missing in one call of the coroutine
        function ``compute(missing)``, which returns a value for each; by default each by itself,
        up to 32 at once. Where others are computing some of them, these are waited for after the
        rest was computed. The first error ends what is under way.
        """
        from trivet.values.async_many import look_up_many  # most memos never use it

        return await look_up_many(self, list(items), compute, named)

    def node(self, *args: Any, **kwargs: Any) -> AsyncNode[R]:
        """As `Memo.node`; its value is awaited. Arguments may be nodes of both kinds."""
        from trivet.values.async_nodes import AsyncNode  # most memos never make one

        return AsyncNode(self, args, kwargs)

    # -- for `map` and `node` ------------------------------------------------------------------

    async def take_each(self, keys: Sequence[Key]) -> list[Hit[R] | Failed | Lease[R]]:
        """What is kept of each, or the right to compute it."""
        return await AsyncCache(self._cache).acquire_each(keys, self._codec, tags=self._tags)

    async def value_of(
        self,
        key: Key,
        prepare: Callable[[], Awaitable[Callable[[], Awaitable[R]]]],
        key_after: Callable[[], Key],
        inputs: Inputs | None = None,
    ) -> R:
        """As `Memo.value_of`."""
        terms, clock = self._terms, self._cache.clock
        found = await AsyncCache(self._cache).acquire(
            key, self._codec, tags=self.tags_with(inputs), wait=terms.wait
        )
        if isinstance(found, Hit):
            if inputs is not None and found.descriptor.expires is not None:
                inputs.ends = found.descriptor.expires
            return found.value
        if isinstance(found, Failed):
            raise found.error()
        lease = found
        try:
            with computing((lease,)):
                compute = await prepare()
                started = clock.monotonic()
                value = await compute()
            cost, after = clock.monotonic() - started, key_after()
        except terms.record as error:
            await asyncio.shield(
                asyncio.to_thread(lease.refuse, error, lifetime=terms.record_lifetime)
            )
            raise
        except BaseException as error:
            lease.abandon(error)
            raise
        # Shielded: the value is there, so a cancellation must not waste it.
        return await asyncio.shield(asyncio.to_thread(self.keep, lease, value, cost, after, inputs))

    async def _called(self, key: Key, args: tuple[Any, ...], named: dict[str, Any]) -> R:
        async def prepare() -> Callable[[], Awaitable[R]]:
            return functools.partial(self.function, *args, **named)

        return await self.value_of(key, prepare, lambda: self._keys.key(args, named))
