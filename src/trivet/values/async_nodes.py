"""Nodes of coroutine functions: those below that are missing are computed side by side."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from trivet.keys import Fingerprint
from trivet.values.async_many import together
from trivet.values.forms import register
from trivet.values.nodes import BaseNode, Node, below, replaced

if TYPE_CHECKING:
    from trivet.values.async_memoise import AsyncMemo

R = TypeVar("R")


class AsyncNode(BaseNode[R]):
    """A call of a memo of a coroutine function; see `AsyncMemo.node`."""

    _memo: AsyncMemo[..., Any]

    async def value(self) -> R:
        """As `Node.value`. Of the nodes that this one holds, up to 32 are computed at once."""
        value: R = await self._memo.value_of(self.key, self._prepare, lambda: self.key)
        return value

    async def _prepare(self) -> Callable[[], Awaitable[R]]:
        nodes = below((self._args, self._named))
        found = await together([functools.partial(_value, each) for each in nodes])
        values = {id(node): value for node, value in zip(nodes, found, strict=True)}
        args, named = replaced((self._args, self._named), lambda node: values[id(node)])
        return functools.partial(self._memo.function, *args, **named)


async def _value(node: BaseNode[Any]) -> Any:
    if isinstance(node, Node):
        return await asyncio.to_thread(node.value)
    assert isinstance(node, AsyncNode)
    return await node.value()


register(AsyncNode, lambda node: Fingerprint(node.key.digest))
