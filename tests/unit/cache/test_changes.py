"""Version stamps: a reader that says what it has gets what has changed since."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.engine import finish, key, start

from trivet import Cache
from trivet.aio import AsyncCache
from trivet.cache import ChangedItems, ChangedRows, Hit, Miss, Replaced, Unchanged, apply
from trivet.cache.stamps import PARTS, stamp_of
from trivet.codecs import Arrays, Codec, MsgPack
from trivet.values import memo
from trivet.values.codec import Values

VALUES = Values()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path, strict=True) as cache:
        yield cache


def put(cache: Cache, value: Any, codec: Codec[Any] = VALUES) -> None:
    cache.forget(key())
    cache.get_or_compute(key(), lambda: value, codec)


def first_stamp(cache: Cache, value: Any, codec: Codec[Any] = VALUES) -> bytes:
    put(cache, value, codec)
    found = cache.get(key(), codec, known=b"")
    assert isinstance(found, Replaced)
    return found.stamp


def change(cache: Cache, before: Any, after: Any, codec: Codec[Any] = VALUES) -> Any:
    """What a reader who has ``before`` is told when ``after`` is kept; applied, it is ``after``."""
    known = first_stamp(cache, before, codec)
    put(cache, after, codec)
    found = cache.get(key(), codec, known=known)
    assert not isinstance(found, Miss)
    new = apply(before, found, codec)  # type: ignore[arg-type]
    assert stamp_of(new, codec).encode() == found.stamp == stamp_of(after, codec).encode()
    return found


def test_who_knows_nothing_gets_all_and_then_that_nothing_changed(cache: Cache) -> None:
    array = np.arange(12.0).reshape(4, 3)
    put(cache, array)
    found = cache.get(key(), VALUES, known=b"")
    assert isinstance(found, Replaced)
    assert np.array_equal(found.value, array)
    assert cache.get(key(), VALUES, known=found.stamp) == Unchanged(found.stamp)
    put(cache, array.copy())
    assert cache.get(key(), VALUES, known=found.stamp) == Unchanged(found.stamp), "made again, same"
    cache.forget(key())
    assert isinstance(cache.get(key(), VALUES, known=found.stamp), Miss)


def test_only_the_rows_that_changed_are_told(cache: Cache) -> None:
    before = np.arange(300, dtype=np.float32).reshape(100, 3)
    after = np.concatenate([before, [[7, 7, 7]]]).astype(np.float32)
    after[[5, 6, 40]] = 0
    found = change(cache, before, after)
    assert isinstance(found, ChangedRows)
    assert [(at, len(rows)) for at, rows in found.runs] == [(5, 2), (40, 1), (100, 1)]
    assert found.length == 101
    shorter = change(cache, before, before[:60])
    assert (shorter.length, shorter.runs) == (60, ())


def test_the_new_array_is_read_only_and_the_old_one_is_left_alone(cache: Cache) -> None:
    before, after = np.zeros((9, 2)), np.zeros((9, 2))
    after[3] = 1
    known = first_stamp(cache, before)
    put(cache, after)
    new = apply(before, cache.get(key(), VALUES, known=known), VALUES)  # type: ignore[arg-type]
    assert np.array_equal(new, after)
    assert not new.flags.writeable
    assert not before.any()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (np.zeros((4, 2), np.float32), np.zeros((4, 2), np.float64)),
        (np.zeros((4, 2), np.int32), np.zeros((4, 2), np.float32)),
        (np.zeros((4, 2)), np.zeros((4, 3))),
        (np.zeros((4, 2)), np.zeros(4)),
        (np.zeros(4), np.float64(0.0)),
        (np.zeros((4, 2)), np.zeros((0, 2))),
        ([1, 2], (1, 2)),
        ({"a": 1}, [["a", 1]]),
        ("text", "other"),
        (1, True),
        (1, 1.0),
        ({1, 2}, {1, 3}),
    ],
)
def test_another_type_or_shape_is_another_value_as_a_whole(
    cache: Cache, before: Any, after: Any
) -> None:
    assert isinstance(change(cache, before, after), Replaced)
    assert isinstance(change(cache, after, before), Replaced)


def test_equal_is_told_apart_by_type_and_bits(cache: Cache) -> None:
    before = {"a": 1, "b": 1, "c": 0.0, "d": float("nan"), "e": "x", 1: "int"}
    after = {"a": True, "b": 1, "c": -0.0, "d": float("nan"), "e": "x", 1: "int"}
    assert set(change(cache, before, after).items) == {"a", "c"}
    floats = change(cache, np.array([0.0, 1.0, 2.0]), np.array([-0.0, 1.0, 2.0]))
    assert [at for at, _ in floats.runs] == [0]


def test_keys_that_are_equal_and_of_other_types_are_other_keys(cache: Cache) -> None:
    found = change(cache, {1: "a", "x": 1}, {True: "a", "x": 1})
    assert isinstance(found, ChangedItems)
    assert [type(each) for each in found.items] == [bool]


def test_only_the_items_that_changed_are_told(cache: Cache) -> None:
    before = {f"k{n}": n for n in range(100)} | {("t", 1): "tuple"}
    after = {name: each for name, each in before.items() if name not in ("k3", "k4")}
    after |= {"k7": -7, "new": [1, 2]}
    found = change(cache, before, after)
    assert isinstance(found, ChangedItems)
    assert found.items == {"k7": -7, "new": [1, 2]}
    assert found.removed_from(before) == {"k3", "k4"}
    assert apply(before, found, VALUES) == after


def test_named_arrays_are_told_by_name(cache: Cache) -> None:
    before = {"a": np.zeros(5), "b": np.ones((2, 2))}
    after = {"a": np.zeros(5), "b": np.ones((2, 2), np.float32)}
    found = change(cache, MappingProxyType(before), MappingProxyType(after), Arrays())
    assert list(found.items) == ["b"]


def test_lists_are_told_by_item(cache: Cache) -> None:
    codec = MsgPack(list[str])
    found = change(cache, ["a", "b", "c"], ["a", "x", "c", "d"], codec)
    assert found.runs == ((1, ["x"]), (3, ["d"]))


def test_a_stamp_of_a_large_value_is_bounded_and_its_parts_are_groups(cache: Cache) -> None:
    rows = np.zeros((100_000, 4), np.float32)
    after = rows.copy()
    after[77_777] = 1
    found = change(cache, rows, after)
    ((at, run),) = found.runs
    assert at <= 77_777 < at + len(run)
    assert len(run) == 32, "100 000 rows in at most 4096 parts"
    assert len(found.stamp) < 64 << 10
    items = {str(n): n for n in range(10_000)}
    changed = {**items, "5": -5, "more": 0}
    del changed["6"]
    told = change(cache, items, changed)
    assert {"5", "more"} <= told.items.keys()
    assert len(told.items) < 50
    assert told.removed_from(items) == {"6"}
    assert len(told.stamp) < 65 << 10
    assert len(stamp_of(items, VALUES).names) <= PARTS


@settings(max_examples=60)
@given(st.data())
def test_whatever_changes_is_applied(data: st.DataObject) -> None:
    plain = st.one_of(st.integers(), st.text(max_size=2), st.floats(), st.booleans(), st.none())
    values = st.one_of(
        st.dictionaries(st.one_of(st.text(max_size=1), st.integers(0, 3), st.booleans()), plain),
        st.lists(plain),
        st.lists(st.integers(0, 3), min_size=1).map(lambda each: np.array(each, np.int64)),
    )
    with Cache(None) as cache:
        change(cache, data.draw(values), data.draw(values))


def test_a_reader_whose_own_value_was_changed_is_told(cache: Cache) -> None:
    before, after = {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 4}
    known = first_stamp(cache, before)
    put(cache, after)
    found: Any = cache.get(key(), VALUES, known=known)
    with pytest.raises(ValueError, match="not what its stamp was of"):
        apply({**before, "b": 99}, found, VALUES)
    with pytest.raises(ValueError, match="another kind"):
        apply([1, 2, 3], found, VALUES)


@pytest.mark.parametrize("known", [b"x", b"\xff" * 100, random.Random(1).randbytes(500)])
def test_what_is_no_stamp_is_as_good_as_none(cache: Cache, known: bytes) -> None:
    put(cache, {"a": 1})
    assert isinstance(cache.get(key(), VALUES, known=known), Replaced)


def test_nothing_is_decoded_or_hashed_again_for_who_has_it_all(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = first_stamp(cache, {"a": 1})
    monkeypatch.setattr("trivet.cache.changes.stamp_of", None)
    monkeypatch.setattr(Values, "decode", None)
    assert cache.get(key(), VALUES, known=known) == Unchanged(known)


def test_an_expired_or_invalidated_version_is_not_unchanged(cache: Cache) -> None:
    cache.get_or_compute(key(), lambda: {"a": 1}, VALUES, tags=["t"])
    found = cache.get(key(), VALUES, known=b"")
    assert isinstance(found, Replaced)
    cache.invalidate("t")
    assert isinstance(cache.get(key(), VALUES, known=found.stamp), Miss)


def test_another_codec_is_another_value(cache: Cache) -> None:
    known = first_stamp(cache, {"a": 1, "b": 2})
    assert isinstance(cache.get(key(), MsgPack(dict[str, int]), known=known), Miss)
    put(cache, {"a": 1, "b": 2}, MsgPack(dict[str, int]))
    assert isinstance(cache.get(key(), MsgPack(dict[str, int]), known=known), Replaced)


def test_tasks_ask_too(cache: Cache) -> None:
    put(cache, [1, 2, 3])
    face = AsyncCache(cache)
    found = asyncio.run(face.get(key(), VALUES, known=b""))
    assert isinstance(found, Replaced)
    assert isinstance(asyncio.run(face.get(key(), VALUES, known=found.stamp)), Unchanged)


def test_a_memo_tells_what_has_changed(cache: Cache) -> None:
    table = np.zeros((50, 8), np.float32)

    @memo(cache, ignore=["table"])
    def features(day: str) -> np.ndarray[Any, Any]:
        return table.copy()

    assert isinstance(features.look_since(b"", "monday"), Miss)
    features("monday")
    first = features.look_since(b"", "monday")
    assert isinstance(first, Replaced)
    assert features.look_since(first.stamp, "monday") == Unchanged(first.stamp)
    table[7] = 1
    features.forget("monday")
    features("monday")
    second = features.look_since(first.stamp, "monday")
    assert isinstance(second, ChangedRows)
    assert [at for at, _ in second.runs] == [7]
    found = features.look("monday")
    assert isinstance(found, Hit)
    assert np.array_equal(apply(first.value, second, VALUES), found.value)


ASK = """
import sys
from trivet import Cache
from trivet.keys import Key
from trivet.values.codec import Values
with Cache.open(sys.argv[1]) as cache:
    print(cache.get(Key("test/1", {"n": 0}), Values(), known=b"").stamp.hex())
"""


def test_stamps_are_the_same_in_every_process(cache: Cache, tmp_path: Path) -> None:
    known = first_stamp(cache, {"a": 1, "b": [1.5, None], ("c", 2): b"x"})
    seen = {finish(start(ASK, tmp_path)).strip() for _ in range(2)}
    assert seen == {known.hex()}
