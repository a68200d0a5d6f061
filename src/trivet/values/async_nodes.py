"""Nodes of coroutine functions: those below that are missing are computed side by side."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from trivet.keys import Fingerprint
from trivet.values.async_many import together
from trivet.values.forms import register
from trivet.values.memoise import Inputs
from trivet.values.nodes import BaseNode, Node, below, replaced

if TYPE_CHECKING:
    from trivet.values.async_memoise import AsyncMemo

R = TypeVar("R")


class AsyncNode(BaseNode[R]):
    """A call of a memo of a coroutine function; see `AsyncMemo.node`."""

    _memo: AsyncMemo[..., Any]

    async def value(self) -> R:
        """As `Node.value`. Of the nodes that this one holds, up to 32 are computed at once."""
        return await self.found(Inputs())

    async def found(self, inputs: Inputs) -> R:
        """As `Node.found`."""
        key, inputs.tags = self.key, self.tags_below()
        value: R = await self._memo.value_of(
            key, lambda: self._prepare(inputs), lambda: self.key, inputs
        )
        return value

    async def _prepare(self, inputs: Inputs) -> Callable[[], Awaitable[R]]:
        nodes = below((self._args, self._named))
        theirs = [Inputs() for _ in nodes]
        found = await together(
            [functools.partial(_value, *each) for each in zip(nodes, theirs, strict=True)]
        )
        inputs.ends = min(each.ends for each in (inputs, *theirs))
        values = {id(node): value for node, value in zip(nodes, found, strict=True)}
        args, named = replaced((self._args, self._named), lambda node: values[id(node)])
        return functools.partial(self._memo.function, *args, **named)


async def _value(node: BaseNode[Any], inputs: Inputs) -> Any:
    if isinstance(node, Node):
        return await asyncio.to_thread(node.found, inputs)
    assert isinstance(node, AsyncNode)
    return await node.found(inputs)


register(AsyncNode, lambda node: Fingerprint(node.key.digest))
