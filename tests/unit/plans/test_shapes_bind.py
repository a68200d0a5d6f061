"""Shape rules against a model: what fits, what doesn't, and which axes are one variable."""

from __future__ import annotations

import numpy as np
import pytest

from trivet.errors import ShapeError
from trivet.plans.model import Dimension, TensorInfo
from trivet.plans.shapes import Shapes


def tensor(name: str, *shape: Dimension, dtype: str = "float32") -> TensorInfo:
    return TensorInfo(name, dtype, shape)


IMAGE = tensor("x", "batch", 3, 224, 224)
LOGITS = tensor("y", "batch", 1000)
IDS = tensor("ids", "batch", "seq", dtype="int64")
MASK = tensor("mask", "batch", "seq", dtype="int64")
HIDDEN = tensor("h", "batch", "seq", 768)


def refused(match: str, shapes: Shapes, inputs: list[TensorInfo], outputs: list[TensorInfo]) -> str:
    with pytest.raises(ShapeError, match=match) as caught:
        shapes.bind(inputs, outputs)
    return str(caught.value)


def test_without_rules_the_model_is_one_variant_with_its_own_shapes() -> None:
    bound = Shapes().bind([IDS, MASK], [HIDDEN])
    (variant,) = bound.variants()
    assert variant.shapes == {"ids": ("batch", "seq"), "mask": ("batch", "seq")}
    assert bound.signature(variant) == variant.shapes


def test_free_axes_keep_the_dimension_of_the_model() -> None:
    bound = Shapes("x=?xCx224x224").bind([tensor("x", None, "c", 224, None)], [])
    assert bound.variants()[0].shapes == {"x": (None, "c", 224, 224)}


def test_a_fixed_size_reaches_every_axis_with_the_models_symbol() -> None:
    bound = Shapes("ids=4x?").bind([IDS, MASK], [HIDDEN])
    assert bound.variants()[0].shapes == {"ids": (4, "seq"), "mask": (4, "seq")}


def test_variants_are_all_combinations_of_buckets_and_no_more() -> None:
    bound = Shapes("ids=B{1,2}x'seq'{16,32}", "mask=Bx'seq'").bind([IDS, MASK], [HIDDEN])
    found = [variant.shapes["ids"] for variant in bound.variants()]
    assert found == [(1, 16), (1, 32), (2, 16), (2, 32)]
    assert all(v.shapes["mask"] == v.shapes["ids"] for v in bound.variants())


def test_more_variants_than_the_limit_are_refused() -> None:
    bound = Shapes("ids=B{1,2,4}x{16,32}", "mask=Bx{16,32}").bind([IDS, MASK], [HIDDEN])
    assert len(bound.variants(limit=6)) == 6
    with pytest.raises(ShapeError, match="6 variants"):
        bound.variants(limit=5)


def test_unknown_axes_are_never_the_same_variable() -> None:
    inputs = [tensor("a", None), tensor("b", None)]
    bound = Shapes("a={4,8}", "b={4,8}").bind(inputs, [])
    assert len(bound.variants()) == 4


def test_axes_with_one_symbol_in_the_model_are_one_variable() -> None:
    inputs = [tensor("a", "n"), tensor("b", "n")]
    bound = Shapes("a=A{4,8}", "b=B{4,8}").bind(inputs, [])
    assert len(bound.variants()) == 2


def test_a_symbol_of_the_rules_is_not_a_symbol_of_the_model() -> None:
    inputs = [tensor("a", "n"), tensor("b", "m")]
    bound = Shapes("a='m'{4,8}").bind(inputs, [tensor("y", "m")])
    assert bound.variants()[0].shapes == {"a": (4,), "b": ("m",)}
    # The output's "m" is the model's, which is not padded.
    variant = bound.variant({"a": np.zeros(3), "b": np.zeros(5)})
    assert bound.cut({"y": np.zeros(5)}, variant)["y"].shape == (5,)


@pytest.mark.parametrize(
    ("rules", "match"),
    [
        (["z=3"], "which the model doesn't have"),
        (["x=Nx3"], "has 2 axes"),
        (["x=Nx4x224x224"], "contradicting"),
        (["x=NxC{1,3}x224x224"], "can't have other buckets"),
        (["x=NxC[4..9]x224x224"], "outside its bounds"),
        (["x=NxHxHx3"], "contradicting"),
    ],
)
def test_rules_that_contradict_the_model_are_refused(rules: list[str], match: str) -> None:
    refused(match, Shapes(*rules), [IMAGE], [LOGITS])


def test_a_symbol_shared_with_a_fixed_axis_is_fixed() -> None:
    bound = Shapes("x=NxNx224x224").bind([IMAGE], [LOGITS])
    assert bound.variants()[0].shapes == {"x": (3, 3, 224, 224)}


def test_two_bucket_rules_for_one_symbol_of_the_model_are_refused() -> None:
    refused("contradicting", Shapes("ids=B{1,2}x?", "mask=C{1,4}x?"), [IDS, MASK], [HIDDEN])


def test_a_static_axis_may_be_padded_up_to_its_own_size() -> None:
    bound = Shapes("x=N{32}x3").bind([tensor("x", 32, 3)], [tensor("y", 32)])
    assert bound.variants()[0].shapes == {"x": (32, 3)}


def test_padding_never_reaches_an_input_that_no_rule_declares() -> None:
    text = refused("no rule for 'mask'", Shapes("ids=Bx{16,32}"), [IDS, MASK], [HIDDEN])
    assert "add a rule for 'mask'" in text


def test_a_free_axis_mark_does_not_declare_padding() -> None:
    refused("no rule for 'mask'", Shapes("ids=Bx{16}", "mask=Bx?"), [IDS, MASK], [HIDDEN])


def test_the_mask_needs_no_rule_of_its_own() -> None:
    bound = Shapes("ids=Bx{16,32}", mask="mask").bind([IDS, MASK], [HIDDEN])
    assert bound.variants()[1].shapes["mask"] == ("batch", 32)


@pytest.mark.parametrize(
    "mask", [tensor("m", "batch", None), tensor("m", "other"), TensorInfo("m", "int64", None)]
)
def test_a_mask_whose_size_no_input_gives_is_refused(mask: TensorInfo) -> None:
    refused("mask", Shapes("ids=Bx{16}", mask="m"), [IDS, mask], [HIDDEN])


def test_a_mask_that_the_model_lacks_is_refused() -> None:
    refused("which the model doesn't have", Shapes("ids=Bx{16}", mask="m"), [IDS], [HIDDEN])


@pytest.mark.parametrize(
    "output",
    [
        tensor("y", None, 1000),
        tensor("y", "2*batch", 1000),
        tensor("y", "unk__7"),
        TensorInfo("y", "float32", None),
    ],
)
def test_an_output_that_may_be_padded_unseen_needs_a_declaration(output: TensorInfo) -> None:
    shapes = Shapes("x=N{1,8}x3x224x224")
    assert "cut={'y'" in refused("can't be told", shapes, [IMAGE], [output])
    Shapes("x=N{1,8}x3x224x224", cut={"y": {0: "N"}}).bind([IMAGE], [output])
    Shapes("x=N{1,8}x3x224x224", cut={"y": {0: "batch"}}).bind([IMAGE], [output])
    Shapes("x=N{1,8}x3x224x224", cut={"y": {}}).bind([IMAGE], [output])
    Shapes("x=Nx3x224x224").bind([IMAGE], [output])  # nothing is padded


@pytest.mark.parametrize(
    "cut", [{"z": {0: "N"}}, {"y": {2: "N"}}, {"y": {-1: "N"}}, {"y": {0: "M"}}]
)
def test_a_cut_that_means_nothing_is_refused(cut: dict[str, dict[int, str]]) -> None:
    refused("cut", Shapes("x=N{1,8}x3x224x224", cut=cut), [IMAGE], [LOGITS])


def test_a_cut_without_any_padding_is_refused() -> None:
    shapes = Shapes("x=Nx3x224x224", cut={"y": {0: "N"}})
    refused("nothing is padded", shapes, [IMAGE], [LOGITS])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", -100),
        ("uint8", 256),
        ("int64", 0.5),
        ("int64", float("nan")),
        ("int32", 2**31),
        ("bool", 2),
        ("float32", "zero"),
        ("string", 0),
    ],
)
def test_a_pad_value_that_the_type_cannot_hold_is_refused(dtype: str, value: float) -> None:
    shapes = Shapes("x={4}", pad={"x": value})
    refused("is not a", shapes, [tensor("x", None, dtype=dtype)], [])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", 255),
        ("int64", -100),
        ("float32", float("nan")),
        ("string", "[PAD]"),
        ("bool", True),
    ],
)
def test_a_pad_value_that_fits_is_accepted(dtype: str, value: float) -> None:
    Shapes("x={4}", pad={"x": value}).bind([tensor("x", None, dtype=dtype)], [])


def test_a_pad_value_for_an_input_that_is_never_padded_is_refused() -> None:
    refused("none of its axes has buckets", Shapes("x=?", pad={"x": 1}), [tensor("x", None)], [])


def test_signatures_differ_exactly_when_shapes_do() -> None:
    bound = Shapes("x=N{1,8,32}x3x224x224").bind([IMAGE], [LOGITS])
    signatures = [bound.signature(each) for each in bound.variants()]
    assert signatures == [{"x": (n, 3, 224, 224)} for n in (1, 8, 32)]
    unknown = Shapes().bind([TensorInfo("x", "float32", None)], [])
    assert unknown.signature(unknown.variants()[0]) == {"x": None}


def test_many_inputs_are_joined_quickly() -> None:
    inputs = [tensor(f"past.{i}", "batch", 8, "past", 64) for i in range(300)]
    bound = Shapes(*(f"past.{i}=B{{1,2}}x8x?x64" for i in range(300))).bind(inputs, [])
    assert len(bound.variants()) == 2
