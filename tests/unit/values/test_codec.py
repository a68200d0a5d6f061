"""What is kept of a value comes back as what it was; nothing else does."""

from __future__ import annotations

import math
import threading
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.testing import CodecContract
from trivet.values.codec import Values

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("abc") | st.integers() | st.tuples(st.integers()), inner)
        | st.frozensets(st.integers() | st.text("abc"))
        | st.sets(st.tuples(st.integers(), st.text("abc")))
    ),
    max_leaves=12,
)


def there_and_back(value: object) -> Any:
    return Values().decode(memoryview(bytes(Values().encode(value))))


def same(first: Any, second: Any) -> bool:
    """Equal in type, too, all the way down."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        return math.copysign(1, first) == math.copysign(1, second) and (
            first == second or (first != first and second != second)
        )
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return same(list(first.items()), list(second.items()))
    return bool(first == second)


class TestPlainValues(CodecContract):
    """They come back with their types, as live values too."""

    def make(self) -> Values:
        return Values()

    def values(self) -> st.SearchStrategy[Any]:
        return plain

    def equal(self, one: Any, other: Any) -> bool:
        return same(one, other)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float16).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(10)[::3],
        np.zeros((0, 4), np.uint8),
        np.array(3.5),
        np.array([1, 2], ">i4"),
        np.array([1 + 2j], np.complex64),
        np.array([True, False]),
    ],
)
def test_arrays_come_back_with_type_shape_and_content(array: np.ndarray[Any, Any]) -> None:
    found = there_and_back({"x": array})["x"]
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.shape == array.shape
    assert np.array_equal(found, array)
    assert not found.flags.writeable


def test_by_choice_arrays_may_be_written_into_however_deep_they_lie() -> None:
    writable = Values(writable=True)
    raw = bytes(writable.encode([{1: (np.arange(3), {"x": np.arange(3)})}]))
    first, second = writable.decode(memoryview(raw)), writable.decode_live(raw)
    for found in (first, second):
        array, others = found[0][1]
        array[0] = others["x"][0] = 7
    assert Values().decode(memoryview(raw))[0][1][0][0] == 0
    assert writable.id == Values().id, "one may read what the other wrote"


def test_a_scalar_stays_one() -> None:
    found = there_and_back(np.float32(2.5))
    assert type(found) is np.float32
    assert found == 2.5


class Text(str):
    """Which a function may tell from a string."""


@pytest.mark.parametrize(
    "value",
    [
        object(),
        threading.Lock(),
        Text("x"),
        len,
        np.array([object()]),
        np.array(["text"]),
        (1).__class__,
    ],
)
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        Values().encode([value])


def test_a_value_in_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ValueError, match="nested too deep"):
        Values().encode(value)


@given(st.binary(max_size=200) | st.builds(
    lambda code, data: msgspec.msgpack.encode(msgspec.msgpack.Ext(code, data)),
    st.integers(-1, 12), st.binary(max_size=60),
))  # fmt: skip
def test_nothing_but_plain_values_comes_out(raw: bytes) -> None:
    try:
        found = Values().decode(memoryview(raw))
    except ValueError:
        return
    assert type(found).__module__ in ("builtins", "datetime", "numpy", "torch")
