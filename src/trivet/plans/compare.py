"""Whether two ways of computing one thing gave the same, where neither is the other one bit by bit.

Other kernels sum in another order. What is wrong is about as large as the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trivet.plans.canary import rounding, scale
from trivet.plans.model import shape_in_words

if TYPE_CHECKING:
    from trivet.plans.model import Arrays

# Parts of an output's largest element.
_LEAST = 1e-3
# Where activations are quantized, one scale serves a whole batch: its rows do depend on each other,
# by a few steps of eight bits.
_LEAST_QUANTIZED = 5e-2


def widened(tolerance: tuple[float, float], operators: Sequence[str]) -> tuple[float, float]:
    """What other kernels may make of a result, from the tolerance between two runs of one plan.

    ``operators`` are the model's, as in `GraphId`.
    """
    quantized = any("DynamicQuantize" in each for each in operators)
    return max(tolerance[0], _LEAST_QUANTIZED if quantized else _LEAST), tolerance[1]


def says_nothing(outputs: Arrays) -> bool:
    """Whether there is nothing in ``outputs`` that anything could differ from: no element, or NaN
    alone."""
    import numpy as np

    return all(
        bool(np.isnan(each).all()) if each.dtype.kind in "fc" else each.size == 0
        for each in outputs.values()
    )


def difference(found: Arrays, expected: Arrays, tolerance: tuple[float, float]) -> str:
    """What is wrong with ``found``, in words; empty where nothing is.

    ``tolerance`` is a part of each expected output's largest element, and an absolute one. NaN
    agrees with NaN. Outputs that are not expected are left alone.
    """
    import numpy as np

    relative, absolute = tolerance
    for name, right in expected.items():
        array = found.get(name)
        if array is None:
            return f"output {name!r} is missing"
        if array.shape != right.shape:
            return (
                f"output {name!r} is {shape_in_words(array.shape)} where the model gives "
                f"{shape_in_words(right.shape)}"
            )
        if right.dtype.kind != "f":
            same = np.array_equal(array, right)
        else:
            bound = absolute + max(relative, rounding(right)) * scale(array, right)
            same = np.allclose(array, right, rtol=0.0, atol=bound, equal_nan=True)
        if not same:
            return f"output {name!r} has other values"
    return ""
