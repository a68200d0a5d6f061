"""Arrays in fewer bytes: never further off than was said, and exact where nothing was said."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trivet.codecs.compact import Compact
from trivet.codecs.narrow import E4M3, FLOAT16, FORMS, INT8, INT8_TWICE

Array = np.ndarray[Any, Any]

floats = arrays.arrays(
    st.sampled_from(["<f2", "<f4", "<f8", ">f4"]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
)
others = arrays.arrays(
    st.sampled_from(["|b1", "|i1", "<i4", ">i8", "<u2", "<c8"]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
)


def there_and_back(codec: Compact, array: Array) -> Array:
    return codec.decode(memoryview(codec.encode(array)))


def bits(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.str, array.shape, array.tobytes()


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@given(floats | others, st.integers(0, 3))
def test_without_a_bound_everything_comes_back_to_the_bit(array: Array, axis: int) -> None:
    found = there_and_back(Compact(axis=axis), array)
    assert bits(found) == bits(array.astype(array.dtype.newbyteorder("<")))
    assert not found.flags.writeable


@given(
    floats,
    st.sampled_from([0.0, 1e-6, 1e-3, 0.5, 1e6]),
    st.sampled_from([0.0, 1e-6, 1e-3, 0.07, 0.5]),
    st.integers(0, 3),
)
def test_no_element_is_further_off_than_was_said(
    array: Array, absolute: float, relative: float, axis: int
) -> None:
    found = there_and_back(Compact(absolute=absolute, relative=relative, axis=axis), array)
    assert (found.dtype, found.shape) == (array.dtype.newbyteorder("<"), array.shape)
    exact, back = array.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(exact)
    assert np.array_equal(exact[~finite], back[~finite], equal_nan=True)
    bound = np.maximum(absolute, relative * np.abs(exact[finite]))
    assert (np.abs(exact[finite] - back[finite]) <= bound).all()


@pytest.mark.parametrize(
    ("bound", "bytes_of_an_element"),
    [
        ({"absolute": 0.02}, 1),  # integers
        ({"relative": 0.07}, 1),  # floats of 8 bits
        ({"relative": 1e-3}, 2),  # floats of 16 bits
        ({"absolute": 1e-4}, 2),  # an integer, and one that corrects it
        ({}, 4),
    ],
)
def test_the_smallest_form_that_keeps_within_the_bound_is_taken(
    bound: dict[str, float], bytes_of_an_element: int
) -> None:
    array = normal(64, 1024)
    size = len(Compact(**bound).encode(array))
    assert 0.75 * bytes_of_an_element < size / array.size <= 1.02 * bytes_of_an_element


def test_an_outlier_costs_its_own_row_only() -> None:
    array = normal(100, 256)
    plain = len(Compact(absolute=0.02).encode(array))
    array[7, 3] = 1e6
    assert len(Compact(absolute=0.02).encode(array)) < plain + 4 * 256


def test_channels_have_scales_of_their_own() -> None:
    array = normal(50, 4, 50) * np.array([1e-3, 1, 1e3, 1e6], np.float32)[:, None]
    by_channel, by_row = Compact(relative=0.5, absolute=1e-5, axis=1), Compact(absolute=1e-5)
    assert len(by_channel.encode(array)) < len(by_row.encode(array))
    assert np.allclose(there_and_back(by_channel, array), array, rtol=0.5, atol=1e-5)


def test_what_compresses_is_compressed() -> None:
    steps = np.arange(100_000, dtype=np.int64)
    assert len(Compact().encode(steps)) < steps.nbytes / 20
    assert len(Compact().encode(np.zeros((1000, 1000)))) < 10_000


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32])
def test_what_does_not_compress_is_left_as_it_is(kind: type) -> None:
    noise = np.frombuffer(np.random.default_rng(1).bytes(81_920), kind)
    raw = Compact().encode(noise)
    assert noise.nbytes < len(raw) < noise.nbytes + 1000
    assert noise.tobytes() in raw


def test_the_bound_is_in_the_id_so_what_was_kept_loosely_does_not_answer() -> None:
    assert Compact(absolute=0.1).id != Compact(absolute=0.01).id != Compact(relative=0.01).id
    assert Compact(absolute=0.1, axis=1).id == Compact(absolute=0.1).id


@pytest.mark.parametrize("number", FORMS)
def test_each_form_keeps_what_it_says(number: int) -> None:
    rows = normal(8, 500).astype(np.float64)
    form = FORMS[number]
    scale = np.abs(rows).max(axis=1, keepdims=True) / (form.largest or 1)
    back = form.restore(form.keep(rows, scale), scale)
    most = {INT8: 0.5 / 127, E4M3: 0.0625, FLOAT16: 2**-11, INT8_TWICE: 0.5 / 127 / 254}
    assert np.abs(back - rows).max() <= most.get(number, 2**-8) * np.abs(rows).max()


@pytest.mark.parametrize(
    "value",
    [
        [1.0],
        np.array(["a"]),
        np.array([None]),
        np.ma.masked_array([1.0]),
        np.ones(2).view(type("WithUnits", (np.ndarray,), {})),
        "text",
    ],
)
def test_what_is_no_array_of_numbers_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        Compact().encode(value)


@pytest.mark.parametrize("bound", [{"absolute": -1.0}, {"relative": 1.0}, {"absolute": np.nan}])
def test_a_bound_that_is_none_is_refused(bound: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="bound"):
        Compact(**bound)


@given(st.binary(max_size=300))
def test_other_bytes_are_an_error_of_value(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Compact().decode(memoryview(raw))


@given(st.data())
def test_damage_is_an_array_or_an_error_of_value(data: st.DataObject) -> None:
    """Not found here, but by the checksum of the entry: nothing else may come of it."""
    codec = Compact(absolute=0.02)
    array = normal(5, 40)
    array[2] = np.inf
    raw = bytearray(codec.encode(array))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        codec.decode(memoryview(raw))


def test_a_small_message_of_a_huge_array_makes_little_work() -> None:
    for shape in ((1, 1 << 46), (1 << 46, 1), (1 << 30, 1 << 30)):
        message = ["<f8", shape, 0, b"\0", b"", [[True, False, b"\x28\xb5\x2f\xfd" * 9]]]
        with pytest.raises(ValueError, match="array"):
            Compact().decode(memoryview(msgspec.msgpack.encode(message)))


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), ()])
def test_what_came_back_can_not_be_made_writable(shape: tuple[int, ...]) -> None:
    found = there_and_back(Compact(absolute=0.1), np.ones(shape, np.float32))
    with pytest.raises(ValueError, match="WRITEABLE"):
        found.flags.writeable = True
