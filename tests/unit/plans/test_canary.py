"""The canary's made-up inputs, and what is taken for the same result."""

from __future__ import annotations

import numpy as np
import pytest

from trivet.plans.canary import canary_inputs, matches
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


def test_a_large_element_that_was_computed_says_how_far_others_may_be_off() -> None:
    right = np.array([60000, 1.0, 2.0], np.float16)
    near = np.array([60000, 3.0, 2.0], np.float16)
    assert matches({"y": near}, {"y": right}, (1e-4, 1e-5))
