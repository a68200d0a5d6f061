"""The canary's made-up inputs."""

from __future__ import annotations

import pytest

from trivet.plans.canary import canary_inputs
from trivet.plans.model import TensorInfo


@pytest.mark.parametrize("size", [1 << 24, 10**12, 10**30])
def test_a_canary_never_asks_for_more_memory_than_a_check_is_worth(size: int) -> None:
    inputs = [TensorInfo("x", "float32", ("n", 8))]
    assert canary_inputs(inputs, {"x": (size, 8)}) is None
    made = canary_inputs(inputs, {"x": (4, 8)})
    assert made is not None
    assert made["x"].shape == (4, 8)
