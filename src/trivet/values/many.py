"""Looking up many values at once, and computing those that are missing in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from trivet.cache import Failed, Hit, Lease
from trivet.cache.lease import computing
from trivet.events import MissReason
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.values.memoise import BaseMemo, Memo

R = TypeVar("R")
Wanted = dict[Key, Any]  # key to one of the items that have it


def look_up_many(
    memo: Memo[..., R],
    items: Sequence[Any],
    compute: Callable[[list[Any]], Sequence[R]],
    named: Mapping[str, Any],
) -> list[R]:
    """See `Memo.map`."""
    keys = [memo.key(each, **named) for each in items]
    wanted: Wanted = dict(zip(keys, items, strict=True))
    found: dict[Key, R] = {}
    leases: dict[Key, Lease[R]] = {}
    try:
        sort_out(((key, memo.take(key)) for key in in_order(wanted)), found, leases)
        found |= _computed(memo, leases, wanted, compute, named)
    finally:
        abandon(leases)
    for key, item in wanted.items():
        if key not in found:
            found[key] = memo(item, **named)
    return [found[key] for key in keys]


def in_order(keys: Iterable[Key]) -> list[Key]:
    """In one order everywhere, so that no two callers wait for each other in a circle."""
    return sorted(keys, key=lambda each: each.digest)


def sort_out(
    taken: Iterable[tuple[Key, Hit[R] | Failed | Lease[R]]],
    found: dict[Key, R],
    leases: dict[Key, Lease[R]],
) -> None:
    """Fill ``found`` and ``leases``; what somebody else computes is in neither.

    Raises ComputeFailed when all is sorted out.
    """
    failed: Failed | None = None
    for key, outcome in taken:
        if isinstance(outcome, Hit):
            found[key] = outcome.value
        elif isinstance(outcome, Failed):
            failed = outcome
        elif outcome.reason is MissReason.WAIT_TIMEOUT:
            outcome.abandon()
        else:
            leases[key] = outcome
    if failed is not None:
        raise failed.error()


def keep_all(
    memo: BaseMemo[..., R],
    leases: Mapping[Key, Lease[R]],
    values: Sequence[R],
    seconds: float,
    wanted: Wanted,
    named: Mapping[str, Any],
) -> dict[Key, R]:
    """Keep what one call computed in ``seconds``: a value for each lease. All leases are settled
    when it returns, and when it raises."""
    try:
        if len(values) != len(leases):
            raise ValueError(f"{len(leases)} values were asked for, compute() gave {len(values)}")
        cost = seconds / len(values)
        return {
            key: memo.keep(lease, value, cost, memo.key(wanted[key], **named))
            for (key, lease), value in zip(leases.items(), values, strict=True)
        }
    except Exception as error:
        abandon(leases, error)
        raise


def abandon(leases: Mapping[Key, Lease[R]], error: BaseException | None = None) -> None:
    """Give up those that are not settled."""
    for lease in leases.values():
        lease.abandon(error)


def _computed(
    memo: Memo[..., R],
    leases: Mapping[Key, Lease[R]],
    wanted: Wanted,
    compute: Callable[[list[Any]], Sequence[R]],
    named: Mapping[str, Any],
) -> dict[Key, R]:
    if not leases:
        return {}
    started = memo.seconds()
    try:
        with computing(leases.values()):
            values = list(compute([wanted[key] for key in leases]))
    except Exception as error:
        abandon(leases, error)
        raise
    return keep_all(memo, leases, values, memo.seconds() - started, wanted, named)
