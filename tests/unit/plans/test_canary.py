"""The canary's made-up inputs, and what is taken for the same result."""

from __future__ import annotations

import numpy as np
import pytest

from trivet.plans.canary import canary_inputs, matches, scale
from trivet.plans.compare import difference
from trivet.plans.model import TensorInfo


@pytest.mark.parametrize("size", [1 << 24, 10**12, 10**30])
def test_a_canary_never_asks_for_more_memory_than_a_check_is_worth(size: int) -> None:
    inputs = [TensorInfo("x", "float32", ("n", 8))]
    assert canary_inputs(inputs, {"x": (size, 8)}) is None
    made = canary_inputs(inputs, {"x": (4, 8)})
    assert made is not None
    assert made["x"].shape == (4, 8)


@pytest.mark.parametrize(
    ("dtype", "units", "same"),
    [("float16", 1, True), ("float16", 40, False), ("float32", 40, True), ("float32", 4000, False)],
)
def test_half_precision_is_not_held_to_a_tolerance_that_it_can_not_express(
    dtype: str, units: int, same: bool
) -> None:
    right = np.array([1.0, 0.001, np.nan, np.inf], dtype)
    found = right.copy()
    found[0] += units * np.finfo(dtype).eps
    assert matches({"y": found}, {"y": right}, (1e-4, 1e-5)) is same
    assert not matches({"y": right + right[:1]}, {"y": right}, (1e-4, 1e-5))


def test_in_half_precision_a_mask_does_not_hide_what_is_beside_it() -> None:
    right = np.array([-65504, 1.0, -65504, 2.0], np.float16)
    wrong = np.array([-65504, 2.0, -65504, 1.0], np.float16)
    assert matches({"y": right}, {"y": right}, (1e-4, 1e-5))
    assert not matches({"y": wrong}, {"y": right}, (1e-4, 1e-5))
    moved = np.roll(right, 1)
    assert not matches({"y": moved}, {"y": right}, (1e-4, 1e-5))


@pytest.mark.parametrize(
    ("elements", "largest"),
    [
        ([1.0, -3.0, 0.5], 3.0),
        ([-1e4 + 1.5, -1e4 - 0.25, 3.0, 0.0], 3.0),  # a mask was added to what was computed
        ([-1e9, -2e9, -3.4e38, 0.25, 0.0], 0.25),
        ([-1e9, 1e9, 0.0], 0.0),
        ([6e4, 3e4, 4e3, 200.0, 7.0], 6e4),  # nothing is apart
        ([300.0, 20.0, 1.0], 300.0),  # and nothing is so large
        ([np.inf, np.nan, 2.0], 2.0),
        ([0.0, 0.0], 0.0),
        ([], 0.0),
    ],
)
def test_the_scale_is_that_of_what_was_computed(elements: list[float], largest: float) -> None:
    assert scale(np.array(elements, np.float64)) == largest
    assert scale(np.array(elements, np.float32)) == np.float32(largest)


@pytest.mark.parametrize("many", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("levels", [[-1e4], [-1e4, -2e4], [-1e9, float(np.finfo(np.float32).min)]])
def test_however_much_a_mask_forbids_the_rest_is_held_to_what_it_is(
    many: float, levels: list[float]
) -> None:
    random = np.random.default_rng(0)
    logits = random.standard_normal(4096).astype(np.float32)
    added = np.where(random.random(4096) < many, random.choice(levels, 4096), 0.0)
    right = (logits + added).astype(np.float32)
    shown = np.flatnonzero(added == 0)
    assert 2.0 < scale(right) < 5.0
    wrong = right.copy()
    wrong[shown[0]] += 0.1
    assert difference({"y": wrong}, {"y": right}, (1e-3, 1e-5)) == "output 'y' has other values"
    near = right * np.float32(1 - 1e-5)
    assert not difference({"y": near}, {"y": right}, (1e-3, 1e-5))
    moved = np.roll(right, 1)
    assert difference({"y": moved}, {"y": right}, (1e-3, 1e-5))


def test_extremes_of_opposite_sign_are_not_alike() -> None:
    most = np.finfo(np.float32).max
    right = np.array([most, -most, 1.0, np.inf, np.nan], np.float32)
    assert not difference({"y": right}, {"y": right}, (1e-3, 1e-5))
    for wrong in (-right, np.abs(right), np.where(np.isinf(right), np.float32(1), right)):
        assert difference({"y": wrong}, {"y": right}, (1e-3, 1e-5))
