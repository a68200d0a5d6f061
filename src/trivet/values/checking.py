"""Recomputing a sample of what is kept, and comparing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from trivet.cache import Hit

if TYPE_CHECKING:
    from trivet.values.memoise import Memo

R = TypeVar("R")


class Wrong(msgspec.Struct, Generic[R], frozen=True):
    """A call whose kept value was not what the function gives now."""

    args: tuple[Any, ...]
    kept: R
    computed: R


class Checked(msgspec.Struct, Generic[R], frozen=True):
    """What `Memo.check` found.

    Attributes:
        calls: how many were computed again.
        wrong: those that differed; what was kept for them is forgotten.
    """

    calls: int
    wrong: tuple[Wrong[R], ...]


def check(
    memo: Memo[..., R],
    calls: Iterable[tuple[Any, ...]],
    sample: int,
    same: Callable[[R, R], bool],
) -> Checked[R]:
    """See `Memo.check`."""
    drawn = list(calls)
    random.shuffle(drawn)
    count, wrong = 0, []
    for args in drawn:
        if count == sample:
            break
        found = memo.look(*args)
        if isinstance(found, Hit):
            count += 1
            computed = memo.function(*args)
            if not same(found.value, computed):
                memo.forget(*args)
                wrong.append(Wrong(args, found.value, computed))
    return Checked(count, tuple(wrong))
