"""Keys that are remembered by arguments: only where equal arguments are the same arguments."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from trivet import Cache
from trivet.errors import Unkeyable
from trivet.values import memo
from trivet.values.keys import CallKeys, Settings
from trivet.values.remembered import is_plain


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path) as cache:
        yield cache


class Text(str):
    __slots__ = ("mark",)


class Number(int):
    pass


class Chameleon:
    """Equals everything of its hash."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return True


ALIKE: list[Any] = [
    0, False, 0.0, -0.0, 1, True, 1.0, "1", b"1", "", b"", None, float("nan"), 2**70, 2.0**70,
    (1,), (True,), (1.0,), ((0.0,),), ((-0.0,),), (), [1], [True], {"a": 1}, {"a": True},
    frozenset({1}), frozenset({True}), 1j,
]  # fmt: skip


def test_arguments_that_python_takes_for_equal_have_their_own_keys(cache: Cache) -> None:
    @memo(cache)
    def tell(x: object, y: object = None) -> str:
        return f"{x!r} {y!r}"

    for _ in range(3):  # in every order of who comes first
        for one, other in product(ALIKE, ALIKE):
            assert tell(one) == f"{one!r} None"
            assert tell(other, one) == f"{other!r} {one!r}"
            assert tell(one, y=other) == f"{one!r} {other!r}"


def test_a_subclass_is_never_taken_for_its_base(cache: Cache) -> None:
    @memo(cache)
    def tell(x: object) -> str:
        return type(x).__name__

    assert [tell("a"), tell(1)] == ["str", "int"]
    for strange in (Text("a"), Number(1), Chameleon(1)):
        with pytest.raises(Unkeyable, match="no known form"):
            tell(strange)
    assert [tell("a"), tell(1)] == ["str", "int"]


def test_what_can_change_under_its_hash_is_looked_at_each_time(cache: Cache) -> None:
    from trivet.values import register

    class Box:
        value = 1

    register(Box, lambda box: box.value)

    @memo(cache)
    def get(box: Box) -> int:
        return box.value

    box, items = Box(), [1]
    assert get(box) == 1
    box.value = 2
    assert get(box) == 2

    @memo(cache)
    def total(items: list[int]) -> int:
        return sum(items)

    assert total(items) == 1
    items.append(5)
    assert total(items) == 6
    assert get.key(box) != get.key(Box())


def keys_of(function: Any) -> CallKeys:
    return CallKeys(
        function,
        Settings(version=None, depends=(), ignore=frozenset(), normalise={}, tenant=None),
    )


def tell(x: object, y: object = 0) -> object:
    return x


def test_a_key_is_made_once_for_the_same_arguments() -> None:
    keys = keys_of(tell)
    for args, named in (((1,), {}), (("a", 2.5), {}), ((b"x",), {"y": None}), ((), {"x": True})):
        assert keys.key(args, named) is keys.key(args, named)
    for args in ((0.0,), (-0.0,), (float("nan"),), ((1,),)):
        assert keys.key(args, {}) is not keys.key(args, {})
        assert keys.key(args, {}) == keys.key(args, {})


def test_the_table_is_bounded_in_calls_and_bytes() -> None:
    keys = keys_of(tell)
    keys.key((-1,), {})
    before = keys.key((-1,), {})
    for n in range(5000):
        assert keys.key((n,), {})["arguments"]["x"] == n
    assert len(keys.made()) <= 4096
    assert keys.key((-1,), {}) is not before
    large = "x" * 5000
    held = sys.getrefcount(large)
    keys.key((large,), {}), keys.key((), {"x": large}), keys.key((1 << 50_000,), {})
    assert sys.getrefcount(large) == held
    assert (large,) not in keys.made()


def test_a_default_that_changes_in_place_counts_with_a_version_too(cache: Cache) -> None:
    options = [1]

    def total(x: int, options: list[int] = options) -> int:
        return x + sum(options)

    for version in (None, "1"):
        options[:] = [1]
        added = memo(cache, version=version)(total)
        assert [added(1), added(1)] == [2, 2]
        options[0] = 5
        assert added(1) == 6


def test_calls_that_were_made_are_told_by_type_and_once(cache: Cache) -> None:
    @memo(cache, tenant=lambda: "a")
    def tell(x: object) -> str:
        return repr(x)

    for each in (1, True, 1.0, 1, "a", [1]):
        tell(each)
    tell(x=7)
    assert sorted(map(repr, tell._keys.made())) == ["('a',)", "(1,)", "(1.0,)", "(True,)"]


def test_a_call_that_does_not_fit_is_an_error_each_time(cache: Cache) -> None:
    @memo(cache)
    def tell(args: object) -> str:
        return repr(args)

    for _ in range(2):
        with pytest.raises(TypeError, match="too many positional"):
            tell(1, 2)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="missing"):
            tell()  # type: ignore[call-arg]
    assert tell(args=1) == tell(1) == "1"


@pytest.mark.parametrize(
    "values", [(1, True, 1.0), (0.0, -0.0), ((1,), (True,)), ([1], [1.0]), ("1", 1)]
)
def test_what_python_takes_for_equal_in_depends_makes_another_key(
    values: tuple[Any, ...], cache: Cache
) -> None:
    config: list[Any] = [None]

    @memo(cache, depends=[config], ignore=["config"])
    def first(x: int) -> str:
        return repr(config[0])

    for _ in range(2):
        for each in values:
            config[0] = each
            assert first(1) == repr(each)


@pytest.mark.parametrize(
    "value", [0.0, -0.0, float("nan"), (1,), [1], 1j, Text("a"), Number(1), object]
)
def test_equal_values_of_these_may_differ(value: object) -> None:
    assert not is_plain(value)
