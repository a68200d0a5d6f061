"""Looking up many values at once, and computing those that are missing in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from trivet.cache import Failed, Hit, Lease
from trivet.errors import ComputeFailed
from trivet.events import MissReason
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.values.memoise import Memo

R = TypeVar("R")
_Wanted = dict[Key, Any]  # key to one of the items that have it


def look_up_many(
    memo: Memo[..., R],
    items: Sequence[Any],
    compute: Callable[[list[Any]], Sequence[R]],
    named: Mapping[str, Any],
) -> list[R]:
    """See `Memo.map`."""
    keys = [memo.key(each, **named) for each in items]
    wanted: _Wanted = dict(zip(keys, items, strict=True))
    found: dict[Key, R] = {}
    leases: dict[Key, Lease[R]] = {}
    try:
        # In one order everywhere, so that no two callers wait for each other in a circle.
        for key in sorted(wanted, key=lambda each: each.digest):
            outcome = memo.take(key)
            if isinstance(outcome, Hit):
                found[key] = outcome.value
            elif isinstance(outcome, Failed):
                raise ComputeFailed.recorded(outcome.error_class, outcome.error_text)
            elif outcome.reason is MissReason.WAIT_TIMEOUT:
                outcome.abandon()  # somebody else computes it
            else:
                leases[key] = outcome
        found |= _computed(memo, leases, wanted, compute, named)
    finally:
        for lease in leases.values():
            lease.abandon()
    for key, item in wanted.items():
        if key not in found:
            found[key] = memo(item, **named)
    return [found[key] for key in keys]


def _computed(
    memo: Memo[..., R],
    leases: Mapping[Key, Lease[R]],
    wanted: _Wanted,
    compute: Callable[[list[Any]], Sequence[R]],
    named: Mapping[str, Any],
) -> dict[Key, R]:
    if not leases:
        return {}
    seconds = memo.seconds()
    try:
        values = list(compute([wanted[key] for key in leases]))
        if len(values) != len(leases):
            raise ValueError(f"{len(leases)} values were asked for, compute() gave {len(values)}")
    except Exception as error:
        for lease in leases.values():
            lease.abandon(error)
        raise
    cost = (memo.seconds() - seconds) / len(values)
    return {
        key: memo.keep(lease, value, cost, memo.key(wanted[key], **named))
        for (key, lease), value in zip(leases.items(), values, strict=True)
    }
