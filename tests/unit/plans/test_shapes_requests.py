"""Requests under shape rules: which variant they get, how they are padded and cut back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import ShapeError, ShapeOutside
from trivet.plans.model import Dimension, TensorInfo
from trivet.plans.shapes import BoundShapes, Shapes

Array = np.ndarray[Any, Any]


def tensor(name: str, *shape: Dimension, dtype: str = "float32") -> TensorInfo:
    return TensorInfo(name, dtype, shape)


def rows(*rules: str, **options: Any) -> BoundShapes:
    """A model that maps rows of four to rows of two."""
    shapes = Shapes(*rules, **options)
    return shapes.bind([tensor("x", "n", 4)], [tensor("y", "n", 2)])


def zeros(*shape: int, dtype: str = "float32") -> Array:
    return np.zeros(shape, dtype)


IDS = [tensor("ids", "b", "s", dtype="int64"), tensor("mask", "b", "s", dtype="int64")]
HIDDEN = [tensor("h", "b", "s", 3)]


@pytest.mark.parametrize(("size", "bucket"), [(0, 2), (1, 2), (2, 2), (3, 8), (8, 8)])
def test_a_request_gets_the_smallest_bucket_that_fits(size: int, bucket: int) -> None:
    bound = rows("x=N{8,2}x4")
    variant = bound.variant({"x": zeros(size, 4)})
    assert variant.shapes == {"x": (bucket, 4)}
    assert (variant.requested, variant.padded) == ({"N": size}, {"N": bucket})
    assert variant.is_padded is (size != bucket)


def test_requests_of_one_bucket_are_one_plan() -> None:
    bound = rows("x=N{2,8}x4")
    five, six, two = (bound.variant({"x": zeros(n, 4)}) for n in (5, 6, 2))
    assert five == six == bound.variants()[1]
    assert hash(five) == hash(six)
    assert five != two
    assert bound.signature(five) == bound.signature(six) != bound.signature(two)


@pytest.mark.parametrize(
    ("rule", "size"), [("x=N{2,8}x4", 9), ("x=N[2..8]x4", 1), ("x=N[2..8]x4", 9), ("x=5x4", 4)]
)
def test_a_request_outside_the_rules_is_outside(rule: str, size: int) -> None:
    with pytest.raises(ShapeOutside, match=f"the request has {size}"):
        rows(rule).variant({"x": zeros(size, 4)})


def test_bounds_include_both_ends_and_are_one_plan() -> None:
    bound = rows("x=N[2..8]x4")
    low, high = (bound.variant({"x": zeros(n, 4)}) for n in (2, 8))
    assert low == high
    assert low.shapes == {"x": ("n", 4)}


def test_one_symbol_in_two_inputs_is_one_size() -> None:
    bound = Shapes("a=N", "b=N").bind([tensor("a", None), tensor("b", None)], [])
    bound.variant({"a": zeros(3), "b": zeros(3)})
    with pytest.raises(ShapeOutside, match="N is 3, but axis 0 of input 'b' has 4"):
        bound.variant({"a": zeros(3), "b": zeros(4)})


def test_unknown_axes_may_differ() -> None:
    bound = Shapes().bind([tensor("a", None), tensor("b", None)], [])
    assert bound.variant({"a": zeros(3), "b": zeros(4)}).shapes == {"a": (None,), "b": (None,)}


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({}, "is missing"),
        ({"x": zeros(2, 4), "z": zeros(1)}, "no input 'z'"),
        ({"x": zeros(2)}, "has 2 axes"),
        ({"x": zeros(2, 5)}, "always 4"),
        ({"x": [[1.0, 2.0, 3.0, 4.0]]}, "not an array"),
    ],
)
def test_a_request_that_the_model_cannot_take_is_no_matter_of_rules(
    arrays: Any, match: str
) -> None:
    with pytest.raises(ShapeError, match=match) as caught:
        rows("x=N{2,8}x4").variant(arrays)
    assert not isinstance(caught.value, ShapeOutside)


def test_remembered_variants_are_bounded_and_still_right() -> None:
    bound = rows("x=N[0..5000]x4")
    for size in range(1200):
        assert bound.variant({"x": zeros(size, 4)}).requested == {"N": size}
    assert len(bound._remembered) <= 512


def test_padding_is_zero_by_default_and_the_data_stay_in_front() -> None:
    bound = rows("x=N{4}x4")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    padded = bound.pad({"x": x}, bound.variant({"x": x}))["x"]
    assert padded.dtype == np.float32
    np.testing.assert_array_equal(padded, np.vstack([x, np.zeros((2, 4), np.float32)]))


def test_pad_value_and_edge() -> None:
    inputs = [tensor("a", None, None, dtype="int64"), tensor("b", None, None)]
    bound = Shapes("a={3}x{4}", "b={3}x{4}", pad={"a": -1, "b": "edge"}).bind(inputs, [])
    arrays = {"a": np.array([[1, 2]]), "b": np.array([[1, 2], [3, 4]], np.float32)}
    padded = bound.pad(arrays, bound.variant(arrays))
    assert padded["a"].tolist() == [[1, 2, -1, -1], [-1] * 4, [-1] * 4]
    np.testing.assert_array_equal(padded["b"], np.pad(arrays["b"], ((0, 1), (0, 2)), mode="edge"))


@pytest.mark.parametrize("pad", [{}, {"x": "edge"}])
def test_an_empty_axis_is_padded_with_zero_and_cut_to_empty(pad: dict[str, Any]) -> None:
    bound = rows("x=N{4}x4", pad=pad)
    x = zeros(0, 4)
    variant = bound.variant({"x": x})
    np.testing.assert_array_equal(bound.pad({"x": x}, variant)["x"], zeros(4, 4))
    assert bound.cut({"y": zeros(4, 2)}, variant)["y"].shape == (0, 2)


def test_text_is_padded_with_empty_text() -> None:
    bound = Shapes("x={3}").bind([tensor("x", None, dtype="string")], [])
    x = np.array(["a"], object)
    assert bound.pad({"x": x}, bound.variant({"x": x}))["x"].tolist() == ["a", "", ""]


def test_an_array_that_fits_is_passed_on_uncopied() -> None:
    bound = rows("x=N{2,4}x4")
    x = zeros(4, 4)
    variant = bound.variant({"x": x})
    assert bound.pad({"x": x}, variant)["x"] is x
    y = zeros(4, 2)
    assert bound.cut({"y": y}, variant)["y"] is y


@pytest.mark.parametrize("dtype", ["float64", "int64", ">f4", "bool"])
def test_no_array_is_cast_silently(dtype: str) -> None:
    bound = rows("x=N{2,4}x4")
    x = np.zeros((2, 4), dtype)
    with pytest.raises(ShapeError, match="input 'x' is float32, the array is"):
        bound.pad({"x": x}, bound.variant({"x": x}))


def test_a_type_that_numpy_lacks_is_left_to_the_framework() -> None:
    bound = Shapes().bind([tensor("x", None, dtype="float4e2m1")], [])
    x = np.zeros(3, np.uint8)
    assert bound.pad({"x": x}, bound.variant({"x": x}))["x"] is x


def test_a_missing_mask_is_made_and_marks_what_is_real() -> None:
    bound = Shapes("ids=B{2}x{4}", mask="mask").bind(IDS, HIDDEN)
    ids = np.ones((1, 3), np.int64)
    padded = bound.pad({"ids": ids}, bound.variant({"ids": ids}))
    assert padded["mask"].dtype == np.int64
    assert padded["mask"].tolist() == [[1, 1, 1, 0], [0, 0, 0, 0]]


def test_a_mask_that_the_caller_gives_is_padded_and_kept() -> None:
    bound = Shapes("ids=B{2}x{4}", mask="mask").bind(IDS, HIDDEN)
    arrays = {"ids": np.ones((1, 3), np.int64), "mask": np.array([[0, 1, 1]])}
    padded = bound.pad(arrays, bound.variant(arrays))
    assert padded["mask"].tolist() == [[0, 1, 1, 0], [0, 0, 0, 0]]


def test_a_mask_is_made_even_where_nothing_is_padded() -> None:
    bound = Shapes("ids=B{2}x{4}", mask="mask").bind(IDS, HIDDEN)
    ids = np.ones((2, 4), np.int64)
    assert bound.pad({"ids": ids}, bound.variant({"ids": ids}))["mask"].all()


def test_a_run_without_a_plan_gets_a_mask_of_ones_and_no_padding() -> None:
    bound = Shapes("ids=B{2}x{4}", mask="mask", outside="fallback").bind(IDS, HIDDEN)
    ids = np.ones((7, 9), np.int64)
    plain = bound.plain({"ids": ids})
    assert plain["ids"] is ids
    assert plain["mask"].shape == (7, 9)
    assert plain["mask"].all()
    with pytest.raises(ShapeError, match="ids"):
        bound.plain({"ids": ids.astype(np.int32)})


def test_outputs_are_cut_by_name_never_by_equal_size() -> None:
    inputs = [tensor("x", "n", 4)]
    outputs = [tensor("y", "n", 8), tensor("w", 8, 8)]
    bound = Shapes("x=N{8}x4").bind(inputs, outputs)
    x = zeros(3, 4)
    cut = bound.cut({"y": zeros(8, 8), "w": zeros(8, 8)}, bound.variant({"x": x}))
    assert cut["y"].shape == (3, 8)
    assert cut["w"].shape == (8, 8)


@pytest.mark.parametrize("found", [(8, 2), (8, 1, 2)])
def test_an_output_that_is_not_what_the_model_fixes_is_never_handed_out_with_padding(
    found: tuple[int, ...],
) -> None:
    bound = Shapes("x=N{1,8}x4").bind([tensor("x", "n", 4)], [tensor("y", 1, 2)])
    padded = bound.variant({"x": zeros(3, 4)})
    with pytest.raises(ShapeError, match="'y' is 1x2, it is 8x"):
        bound.cut({"y": zeros(*found)}, padded)
    whole = bound.variant({"x": zeros(8, 4)})
    assert bound.cut({"y": zeros(8, 2)}, whole)["y"].shape == (8, 2)


def test_a_declared_cut_replaces_what_the_names_say() -> None:
    inputs = [tensor("x", "n", 4)]
    outputs = [tensor("y", None, "n"), tensor("z", "n", 2)]
    shapes = Shapes("x=N{8}x4", cut={"y": {0: "N"}, "z": {}})
    bound = shapes.bind(inputs, outputs)
    cut = bound.cut({"y": zeros(8, 8), "z": zeros(8, 2)}, bound.variant({"x": zeros(3, 4)}))
    assert (cut["y"].shape, cut["z"].shape) == ((3, 8), (8, 2))


@pytest.mark.parametrize("shape", [(6, 2), (3, 2), ()])
def test_an_output_of_another_size_than_the_padded_one_is_an_error(shape: tuple[int, ...]) -> None:
    bound = rows("x=N{8}x4")
    with pytest.raises(ShapeError, match="output 'y' should have 8 elements"):
        bound.cut({"y": zeros(*shape)}, bound.variant({"x": zeros(3, 4)}))


def test_a_variant_of_another_request_is_not_used() -> None:
    bound = rows("x=N{8}x4")
    with pytest.raises(ShapeError, match="not made for"):
        bound.pad({"x": zeros(5, 4)}, bound.variant({"x": zeros(3, 4)}))


def rowwise(x: Array) -> Array:
    """A function in which no row looks at another, as a compiled batch does."""
    return np.stack([x.sum(axis=1), x.max(axis=1)], axis=1) if len(x) else np.zeros((0, 2), x.dtype)


@given(
    size=st.integers(min_value=0, max_value=12),
    buckets=st.sets(st.integers(min_value=1, max_value=12), min_size=1, max_size=4),
    pad=st.sampled_from([{}, {"x": 7.5}, {"x": "edge"}, {"x": float("nan")}]),
    seed=st.integers(min_value=0, max_value=2**32 - 1),
)
def test_padded_run_cut_back_equals_the_run_itself(
    size: int, buckets: set[int], pad: dict[str, Any], seed: int
) -> None:
    bound = rows(f"x=N{{{','.join(map(str, buckets))}}}x4", pad=pad)
    x = np.random.default_rng(seed).random((size, 4), np.float32)
    if size > max(buckets):
        with pytest.raises(ShapeOutside):
            bound.variant({"x": x})
        return
    variant = bound.variant({"x": x})
    padded = bound.pad({"x": x}, variant)["x"]
    assert len(padded) in buckets
    result = bound.cut({"y": rowwise(padded)}, variant)["y"]
    np.testing.assert_array_equal(result, rowwise(x))


@given(
    batch=st.integers(min_value=0, max_value=4),
    length=st.integers(min_value=0, max_value=9),
    seed=st.integers(min_value=0, max_value=2**32 - 1),
)
def test_masked_sum_over_a_padded_sequence_equals_the_run_itself(
    batch: int, length: int, seed: int
) -> None:
    bound = Shapes("ids=B{2,4}x{4,9}", mask="mask", pad={"ids": 99}).bind(
        IDS, [tensor("total", "b")]
    )
    ids = np.random.default_rng(seed).integers(0, 50, (batch, length))
    variant = bound.variant({"ids": ids})
    padded = bound.pad({"ids": ids}, variant)
    total = (padded["ids"] * padded["mask"]).sum(axis=1)
    np.testing.assert_array_equal(bound.cut({"total": total}, variant)["total"], ids.sum(axis=1))


@given(
    st.lists(st.integers(min_value=0, max_value=5), min_size=3, max_size=3),
    st.sampled_from(["edge", 3]),
)
def test_padding_several_axes_agrees_with_numpy(shape: list[int], pad: Any) -> None:
    bound = Shapes("x={5}x{6}x{7}", pad={"x": pad}).bind([tensor("x", None, None, None)], [])
    x = np.random.default_rng(0).random(shape, np.float32)
    padded = bound.pad({"x": x}, bound.variant({"x": x}))["x"]
    widths = [(0, to - size) for to, size in zip((5, 6, 7), shape, strict=True)]
    if pad == "edge" and 0 not in shape:
        np.testing.assert_array_equal(padded, np.pad(x, widths, mode="edge"))
    elif pad != "edge":
        np.testing.assert_array_equal(padded, np.pad(x, widths, constant_values=pad))
    else:
        np.testing.assert_array_equal(padded, np.zeros((5, 6, 7), np.float32))


def test_the_smallest_and_the_largest_request_that_each_variant_pads() -> None:
    bound = Shapes("ids=B{1,4}xS{8,32}", "mask=BxS", mask="mask").bind(IDS, HIDDEN)
    smaller = [bound.smaller(each) for each in bound.variants()]
    assert smaller == [
        [{"ids": (1, 1)}, {"ids": (1, 7)}],
        [{"ids": (1, 9)}, {"ids": (1, 31)}],
        [{"ids": (2, 1)}, {"ids": (3, 7)}],
        [{"ids": (2, 9)}, {"ids": (3, 31)}],
    ]


def test_nothing_is_smaller_where_nothing_is_padded() -> None:
    assert rows("x=N{1,2}x4").smaller(rows("x=N{1,2}x4").variants()[1]) == []
    free = rows("x=N[2..8]x4")
    assert free.smaller(free.variants()[0]) == []


def test_sizes_that_are_free_are_as_small_as_the_rules_allow() -> None:
    inputs = [tensor("x", "n", "m", "k", None, 5)]
    bound = Shapes("x=N{3}xM[2..9]x6x?x?").bind(inputs, [])
    assert bound.smaller(bound.variants()[0]) == [{"x": (1, 2, 6, 1, 5)}, {"x": (2, 2, 6, 1, 5)}]
