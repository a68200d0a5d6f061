"""Computed values: a function's results, kept by what they are computed from.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from trivet.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trivet.values import normalise
    from trivet.values.async_memoise import AsyncMemo
    from trivet.values.codec import Values
    from trivet.values.decorator import memo
    from trivet.values.forms import register
    from trivet.values.lifetime import ByCost
    from trivet.values.memoise import Memo
    from trivet.values.nodes import Node

__getattr__ = lazily(
    __name__,
    {
        "AsyncMemo": "async_memoise",
        "ByCost": "lifetime",
        "Memo": "memoise",
        "Node": "nodes",
        "Values": "codec",
        "memo": "decorator",
        "register": "forms",
    },
)

__all__ = ["AsyncMemo", "ByCost", "Memo", "Node", "Values", "memo", "normalise", "register"]
