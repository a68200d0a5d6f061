"""`AsyncMemo.map`, and how many calls are under way at once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from trivet.cache import Lease
from trivet.cache.lease import computing
from trivet.keys import Key
from trivet.values.many import Wanted, abandon, in_order, keep_all, sort_out

if TYPE_CHECKING:
    from trivet.values.async_memoise import AsyncMemo

R = TypeVar("R")
AT_ONCE = 32


async def together(calls: Sequence[Callable[[], Awaitable[R]]]) -> list[R]:
    """What the calls return, in their order; up to `AT_ONCE` are under way.

    The first that raises cancels the others, and its error is raised.
    """
    waiting = iter(enumerate(calls))
    found: dict[int, R] = {}

    async def work() -> None:
        for place, call in waiting:
            found[place] = await call()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(calls))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if len(found) < len(calls):  # a group takes a call that is cancelled by itself for done
        raise asyncio.CancelledError
    return [found[place] for place in range(len(calls))]


async def look_up_many(
    memo: AsyncMemo[..., R],
    items: Sequence[Any],
    compute: Callable[[list[Any]], Awaitable[Sequence[R]]] | None,
    named: Mapping[str, Any],
) -> list[R]:
    """See `AsyncMemo.map`."""
    keys = [memo.key(each, **named) for each in items]
    wanted: Wanted = dict(zip(keys, items, strict=True))
    found: dict[Key, R] = {}
    if compute is not None and wanted:
        found = await _in_one_call(memo, wanted, compute, named)
    rest = [key for key in wanted if key not in found]
    calls = [functools.partial(memo, wanted[key], **named) for key in rest]
    found.update(zip(rest, await together(calls), strict=True))
    return [found[key] for key in keys]


async def _in_one_call(
    memo: AsyncMemo[..., R],
    wanted: Wanted,
    compute: Callable[[list[Any]], Awaitable[Sequence[R]]],
    named: Mapping[str, Any],
) -> dict[Key, R]:
    """What is kept, and what one call computes; not what others are computing."""
    keys = in_order(wanted)
    found: dict[Key, R] = {}
    leases: dict[Key, Lease[R]] = {}
    taken = await memo.take_each(keys)
    try:
        sort_out(zip(keys, taken, strict=True), found, leases)
        if not leases:
            return found
        started = memo.seconds()
        with computing(leases.values()):
            values = list(await compute([wanted[key] for key in leases]))
        seconds = memo.seconds() - started
    except BaseException as error:
        abandon(leases, error)
        raise
    # Shielded: the values are there, so a cancellation must not waste them.
    keeping = asyncio.to_thread(keep_all, memo, leases, values, seconds, wanted, named)
    return found | await asyncio.shield(keeping)
