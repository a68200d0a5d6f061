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
