"""Arrays: numbers only, and hostile bytes neither execute nor allocate."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.codecs import Arrays

encode = msgspec.msgpack.encode


class Executed(Exception):
    """Raised when something runs code that only bytes asked for."""


class Bomb:
    def __reduce__(self) -> Any:
        raise Executed


@pytest.mark.parametrize(
    "array",
    [
        np.array([Bomb()], dtype=object),
        np.array([None, 1]),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array([1], dtype="datetime64[s]"),
        np.array([1], dtype="timedelta64[s]"),
        np.zeros(2, dtype=[("a", "i4"), ("b", "f4")]),
        np.zeros(2, dtype="V8"),
        np.zeros(2, dtype=np.longdouble),
        np.zeros(2, dtype=np.clongdouble),
        np.ma.masked_array([1, 2], mask=[0, 1]),
        np.ones(2).view(type("WithUnits", (np.ndarray,), {})),
        [1, 2],
        np.float32(1),
        b"bytes",
        None,
    ],
    ids=lambda value: f"{type(value).__name__} {getattr(value, 'dtype', '')}",
)
def test_what_is_not_an_array_of_numbers_is_refused(array: Any) -> None:
    with pytest.raises(TypeError, match="bad"):
        Arrays().encode({"bad": array})


def test_names_are_strings() -> None:
    with pytest.raises(TypeError, match="name"):
        Arrays().encode({1: np.zeros(1)})  # type: ignore[dict-item]


def round_trip(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return Arrays().decode(memoryview(Arrays().encode({"x": array})))["x"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(2, 3, 4)[::-1, ::2].T,
        np.asfortranarray(np.ones((3, 4), np.float32)),
        np.arange(5, dtype=">i4"),
        np.broadcast_to(np.float16(2), (3, 3)),
        np.array(7),
        np.zeros((3, 0, 2), np.uint8),
        np.array([np.nan, -0.0, np.inf]),
    ],
    ids=["strided", "fortran", "big-endian", "broadcast", "0-d", "empty", "odd floats"],
)
def test_layouts_do_not_matter_and_shapes_do(array: np.ndarray[Any, Any]) -> None:
    decoded = round_trip(array)
    assert type(decoded) is np.ndarray
    assert decoded.shape == array.shape
    assert decoded.dtype == array.dtype.newbyteorder("<")
    assert np.array_equal(decoded, array, equal_nan=array.dtype.kind == "f")
    assert np.array_equal(np.signbit(decoded), np.signbit(array)) or array.dtype.kind not in "f"


def test_a_decoded_value_can_be_shared() -> None:
    decoded = Arrays().decode(memoryview(Arrays().encode({"x": np.zeros(3)})))
    with pytest.raises(ValueError, match="read-only"):
        decoded["x"][0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        decoded["x"].flags.writeable = True
    with pytest.raises(TypeError):
        decoded["y"] = np.zeros(1)  # type: ignore[index]


def test_order_is_kept() -> None:
    names = ["z", "a", "m", ""]
    decoded = Arrays().decode(memoryview(Arrays().encode({name: np.zeros(1) for name in names})))
    assert list(decoded) == names


HOSTILE_ROWS: dict[str, list[Any]] = {
    "objects": ["x", "|O", [1], bytes(8)],
    "objects by alias": ["x", "object", [1], bytes(8)],
    "text": ["x", "<U2", [1], bytes(8)],
    "a structure": ["x", "i4,i4", [1], bytes(8)],
    "a structure with an object": ["x", "O,i4", [1], bytes(12)],
    "a subarray": ["x", "(1000000,1000000)f8", [0], b""],
    "a huge element": ["x", "V9999999999", [0], b""],
    "a Python literal": ["x", "__import__('os').system('false')", [1], b"x"],
    "an alias that NumPy knows": ["x", "float32", [1], bytes(4)],
    "big-endian": ["x", ">f4", [1], bytes(4)],
    "no type": ["x", "", [1], bytes(8)],
    "long double": ["x", "<f16", [1], bytes(16)],
    "too few bytes": ["x", "<f4", [2], bytes(4)],
    "too many bytes": ["x", "<f4", [1], bytes(8)],
    "half an element": ["x", "<f4", [1], bytes(5)],
    "a claim of a terabyte": ["x", "<f8", [1 << 37], bytes(8)],
    "a claim that overflows 64 bits to nothing": ["x", "<f8", [1 << 32, 1 << 32], b""],
    "a claim that overflows to the right size": ["x", "|u1", [(1 << 40) + 1, 1 << 40], bytes(1)],
    "a negative length": ["x", "<f4", [-1], bytes(4)],
    "two negative lengths": ["x", "<f4", [-1, -1], bytes(4)],
    "a length over 48 bits": ["x", "<f4", [0, 1 << 48], b""],
    "a length over 64 bits": ["x", "<f4", [0, (1 << 64) - 1], b""],
    "33 axes": ["x", "<f4", [1] * 33, bytes(4)],
    "a length that is a float": ["x", "<f4", [1.0], bytes(4)],
    "a shape that is a number": ["x", "<f4", 1, bytes(4)],
    "a name that is bytes": [b"x", "<f4", [1], bytes(4)],
    "data that is text": ["x", "<f4", [1], "abcd"],
    "data that is missing": ["x", "<f4", [1]],
}


@pytest.mark.parametrize("name", HOSTILE_ROWS)
def test_hostile_claims_are_refused_and_allocate_nothing(name: str) -> None:
    raw = memoryview(encode([HOSTILE_ROWS[name]]))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            Arrays().decode(raw)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "raw",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\x91\xdd\xff\xff\xff\xff",
        b"\x91\x94\xa1x\xa3<f4\xdd\xff\xff\xff\xff",
        b"\x91\x94\xa1x\xa3<f4\x91\x01\xc6\xff\xff\xff\xff",
        b"\x91" * 1_000_000,
    ],
    ids=["rows", "columns", "shape", "data", "nesting"],
)
def test_huge_counts_allocate_nothing(raw: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            Arrays().decode(memoryview(raw))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_two_arrays_of_one_name_are_refused() -> None:
    row = ["x", "|u1", [1], b"\0"]
    with pytest.raises(ValueError, match="same name"):
        Arrays().decode(memoryview(encode([row, row])))


def test_an_empty_array_may_claim_long_axes_and_takes_no_memory() -> None:
    decoded = Arrays().decode(memoryview(encode([["x", "<f8", [0, 1 << 40], b""]])))
    assert decoded["x"].shape == (0, 1 << 40)


@given(
    st.lists(
        st.tuples(
            st.text(max_size=2),
            st.sampled_from(["<f4", "|b1", "|u1", "<c16", "|O", "f"]),
            st.lists(st.integers(-2, 1 << 50), max_size=3),
            st.binary(max_size=20),
        ),
        max_size=3,
    )
)
def test_any_rows_are_arrays_or_an_error_of_value(rows: list[Any]) -> None:
    try:
        decoded = Arrays().decode(memoryview(encode(rows)))
    except ValueError:
        return
    assert Arrays().encode(decoded) == encode(rows)


def test_a_decoded_array_costs_one_copy() -> None:
    raw = memoryview(Arrays().encode({"x": np.zeros(1 << 20, np.uint8)}))
    tracemalloc.start()
    try:
        decoded = Arrays().decode(raw)
        assert tracemalloc.get_traced_memory()[1] < 1.2 * (1 << 20)
        assert decoded["x"].nbytes == 1 << 20
    finally:
        tracemalloc.stop()
