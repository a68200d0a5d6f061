"""What holds the bytes of a tier: by name, by size, by age, and what has no lifetime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from trivet.entries import Descriptor, head_length, peek
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.events import Tier
from trivet.keys import read_fields

if TYPE_CHECKING:
    from trivet.cache.tiers import Tiers

Progress = Callable[[int], object]
_SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_AGES = (_HOUR, _DAY, 7 * _DAY, 30 * _DAY)
_STEP = 1000


class Share(msgspec.Struct, kw_only=True):
    """What some of the entries hold together.

    Attributes:
        name: what they have in common: the field of their keys, or its space.
        below: where they have a size or an age in common, the bound of the class in bytes or
            seconds; None for the last class.
        entries, size: how many, and their bytes.
        cost: seconds that computing them took.
        without_lifetime, size_without_lifetime: those of them that have no lifetime.
    """

    name: str = ""
    below: float | None = None
    entries: int = 0
    size: int = 0
    cost: float = 0.0
    without_lifetime: int = 0
    size_without_lifetime: int = 0

    def add(self, size: int, facts: Descriptor) -> None:
        """Count one entry more."""
        self.entries += 1
        self.size += size
        self.cost += facts.cost
        if facts.expires is None:
            self.without_lifetime += 1
            self.size_without_lifetime += size


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What holds the bytes of one tier.

    Attributes:
        tier: which.
        total: all entries.
        names: by a field of their keys, or where there is none by its space; the largest first.
        sizes, ages: the smallest and the youngest first.
    """

    tier: Tier
    total: Share
    names: list[Share]
    sizes: list[Share]
    ages: list[Share]


class _Held(NamedTuple):
    name: str
    size: int
    facts: Descriptor


def usage_of(tiers: Tiers, tier: Tier, by: str, progress: Progress | None) -> Usage:
    """See `Cache.usage`."""
    held = _in_memory(tiers, by) if tier is Tier.MEMORY else _on_host(tiers, by)
    now = tiers.clock.time()
    total, names = Share(name="total"), dict[str, Share]()
    sizes = [Share(below=each) for each in (*_SIZES, None)]
    ages = [Share(below=each) for each in (*_AGES, None)]
    for number, (name, size, facts) in enumerate(held):
        if name not in names:
            names[name] = Share(name=name)
        for share in (
            total,
            names[name],
            _class_of(sizes, size),
            _class_of(ages, now - facts.created),
        ):
            share.add(size, facts)
        if progress is not None and number % _STEP == 0:
            progress(number)
    return Usage(
        tier=tier,
        total=total,
        names=sorted(names.values(), key=lambda share: -share.size),
        sizes=[each for each in sizes if each.entries],
        ages=[each for each in ages if each.entries],
    )


def _class_of(classes: list[Share], value: float) -> Share:
    for each in classes:
        if each.below is None or value < each.below:
            return each
    raise AssertionError("the last class has no bound")


def _in_memory(tiers: Tiers, by: str) -> Iterator[_Held]:
    for _, entry, size in tiers.memory.items():
        key = entry.key
        yield _Held(_name(key.space, key.get(by)), size, entry.descriptor)


def _on_host(tiers: Tiers, by: str) -> Iterator[_Held]:
    if tiers.store is None:
        return
    for _, head in tiers.store.scan():
        try:
            key, facts = peek(head)
            space, fields = read_fields(key)
        except (CorruptEntry, IncompatibleEntry):
            continue  # `verify` reports these
        size = head_length(head) + facts.size
        yield _Held(_name(space, fields.get(by)), size, facts)


def _name(space: str, field: object) -> str:
    return field if isinstance(field, str) else space
