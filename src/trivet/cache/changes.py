"""What has changed since a reader last asked: the answers of ``Cache.get(..., known=stamp)``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast, final

import msgspec

from trivet.cache.outcomes import Hit
from trivet.cache.stamps import Stamp, as_array, parts_of, stamp_of
from trivet.codecs import Codec
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.cache.tiers import Tiers

T = TypeVar("T")


@final
class Unchanged(msgspec.Struct, frozen=True):
    """The reader has what is kept.

    Attributes:
        stamp: what to send next time, here and below.
    """

    stamp: bytes


@final
class Replaced(msgspec.Struct, Generic[T], frozen=True):
    """Another value, as a whole: nothing was known, or nothing of it can be used again."""

    stamp: bytes
    value: T


@final
class ChangedRows(msgspec.Struct, Generic[T], frozen=True):
    """Rows of an array, along its first axis, or items of a list.

    Attributes:
        length: how many there are now; those beyond are removed.
        runs: index of a first row, and the rows from there on.
    """

    stamp: bytes
    length: int
    runs: tuple[tuple[int, T], ...]


@final
class ChangedItems(msgspec.Struct, frozen=True):
    """Items of a dict.

    Attributes:
        items: those that are new or have changed.
        removed: names of the parts that are no more; `removed_from` tells keys.
    """

    stamp: bytes
    items: dict[Any, Any]
    removed: frozenset[int]

    def removed_from(self, known: Mapping[Any, Any]) -> set[Any]:
        """The keys of ``known``, what the reader has, that are no more."""
        return self.outdated(known) - self.items.keys()

    def outdated(self, known: Mapping[Any, Any]) -> set[Any]:
        """The keys of ``known`` that are no more, or whose items are told anew."""
        bits = _read(self.stamp).grain
        parts = parts_of(known, bits)
        touched = self.removed | parts_of(self.items, bits).keys()
        return {key for name in touched & parts.keys() for key in parts[name]}


Change: TypeAlias = "Unchanged | Replaced[T] | ChangedRows[T] | ChangedItems"


def apply(known: T, change: Change[T], codec: Codec[T]) -> T:
    """The value of now, from what a reader knows and the change since; ``known`` is left alone.

    The whole is verified. Arrays are read-only; of a dict what is new or has changed comes last.

    Raises `ValueError` when ``known`` is not what the stamp was of: ask again with ``known=b""``.
    """
    if isinstance(change, Unchanged):
        return known
    if isinstance(change, Replaced):
        return change.value
    new: Any
    items: Any = known
    if isinstance(change, ChangedItems) != isinstance(items, Mapping):
        raise ValueError("what changed is of another kind of value than what was known")
    if isinstance(change, ChangedItems):
        gone = change.outdated(items)
        new = {key: each for key, each in items.items() if key not in gone} | change.items
        if type(known) is MappingProxyType:
            new = MappingProxyType(new)
    else:
        new = _with_rows(known, change)
    if stamp_of(new, codec).root != _read(change.stamp).root:
        raise ValueError('what was known is not what its stamp was of; ask again with known=b""')
    return cast(T, new)


class _Unread(Generic[T]):
    """A codec that leaves what is kept in memory as it is."""

    def __init__(self, codec: Codec[T]) -> None:
        self.id, self.shareable, self.encode = codec.id, codec.shareable, codec.encode

    def decode(self, raw: memoryview) -> Any:
        return raw


def is_unchanged(tiers: Tiers, key: Key, codec: Codec[T], known: bytes) -> bool:
    """Whether memory has the very version ``known``; nothing is decoded for that."""
    entry = tiers.memory.peek(key.digest)
    if entry is None or entry.stamp != known:
        return False
    live = tiers.look_memory(key, _Unread(codec))
    return type(live) is Hit and live.descriptor is entry.descriptor


def change_since(tiers: Tiers, key: Key, codec: Codec[T], known: bytes, hit: Hit[T]) -> Change[T]:
    """What of ``hit``, just looked up, a reader with the stamp ``known`` lacks."""
    raw = _stamp_beside(tiers, key, codec, hit)
    if raw == known:
        return Unchanged(raw)
    old, new = Stamp.decode(known), _read(raw)
    if old is None or (old.like, old.grain) != (new.like, new.grain) or not new.parts:
        return Replaced(raw, hit.value)
    change = _changed_items if new.names else _changed_rows
    return change(raw, old, new, hit.value)


def _stamp_beside(tiers: Tiers, key: Key, codec: Codec[T], hit: Hit[T]) -> bytes:
    """The stamp of ``hit``, remembered with the live entry where that is the same."""
    entry = tiers.memory.peek(key.digest)
    if entry is None or entry.descriptor is not hit.descriptor:
        return stamp_of(hit.value, codec).encode()
    if entry.stamp is None:
        entry.stamp = stamp_of(hit.value, codec).encode()
    return entry.stamp


def _changed_rows(raw: bytes, old: Stamp, new: Stamp, value: Any) -> Change[Any]:
    runs: list[list[int]] = []
    for i, part in enumerate(new.parts):
        if i < len(old.parts) and old.parts[i] == part:
            continue
        if runs and runs[-1][1] == i:
            runs[-1][1] = i + 1
        else:
            runs.append([i, i + 1])
    if runs == [[0, len(new.parts)]]:
        return Replaced(raw, value)
    size = new.grain
    return ChangedRows(
        raw, new.length, tuple((a * size, value[a * size : b * size]) for a, b in runs)
    )


def _changed_items(raw: bytes, old: Stamp, new: Stamp, value: Any) -> Change[Any]:
    before, now = (dict(zip(each.names, each.parts, strict=False)) for each in (old, new))
    changed = {name for name, part in now.items() if before.get(name) != part}
    if len(changed) == len(now):
        return Replaced(raw, value)
    parts = parts_of(value, new.grain) if changed else {}
    items = {key: each for name in changed for key, each in parts[name].items()}
    return ChangedItems(raw, items, frozenset(before.keys() - now.keys()))


def _with_rows(known: Any, change: ChangedRows[Any]) -> Any:
    array = as_array(known)
    if array is None:
        kept = list(known[: change.length])
        new: Any = kept + [None] * (change.length - len(kept))
    else:
        kept = array[: change.length]
        import numpy as np

        new = np.empty((change.length, *array.shape[1:]), array.dtype)
        new[: len(kept)] = kept
    for start, rows in change.runs:
        new[start : start + len(rows)] = rows
    if array is not None:
        new.flags.writeable = False
    return new


def _read(stamp: bytes) -> Stamp:
    found = Stamp.decode(stamp)
    if found is None:
        raise ValueError("this is no stamp of this release")
    return found
