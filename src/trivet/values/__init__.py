"""Computed values: a function's results, kept by what they are computed from.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from trivet.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trivet.values import normalise
    from trivet.values.codec import Values
    from trivet.values.coroutines import AsyncMemo
    from trivet.values.forms import register
    from trivet.values.lifetime import ByCost
    from trivet.values.memoise import Memo, memo
    from trivet.values.nodes import Node

__getattr__ = lazily(
    __name__,
    {
        "AsyncMemo": "coroutines",
        "ByCost": "lifetime",
        "Memo": "memoise",
        "Node": "nodes",
        "Values": "codec",
        "memo": "memoise",
        "register": "forms",
    },
)

__all__ = ["AsyncMemo", "ByCost", "Memo", "Node", "Values", "memo", "normalise", "register"]
