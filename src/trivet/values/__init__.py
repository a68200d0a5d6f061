"""Computed values: a function's results, kept by what they are computed from."""

from trivet.values.forms import register
from trivet.values.lifetime import ByCost
from trivet.values.memo import Memo, memo

__all__ = ["ByCost", "Memo", "memo", "register"]
