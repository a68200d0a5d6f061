"""Whether two ways of computing one thing gave the same, where neither is the other one bit by bit.

Other kernels sum in another order. What is wrong is about as large as the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trivet.plans.canary import rounding, scale
from trivet.plans.model import shape_in_words

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

_PIECE = 1 << 20  # elements
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

    ``tolerance`` is a part of each expected output's largest computed element (see `scale`), or of
    the element itself where that is larger, and an absolute one. NaN agrees with NaN. Outputs that
    are not expected are left alone.
    """
    import numpy as np

    for name, right in expected.items():
        wrong = _misfit(found, name, right)
        if wrong:
            return wrong
        left = found[name]
        if right.dtype.kind == "f" and left.dtype.kind in "fiub":
            same = _close(left, right, tolerance)
        else:
            same = np.array_equal(left, right)
        if not same:
            return f"output {name!r} has other values"
    return ""


def misfit(found: Arrays, expected: Arrays) -> str:
    """`difference`, as far as names and shapes go."""
    return next(filter(None, (_misfit(found, *each) for each in expected.items())), "")


def _misfit(found: Arrays, name: str, right: Array) -> str:
    array = found.get(name)
    if array is None:
        return f"output {name!r} is missing"
    if array.shape != right.shape:
        return (
            f"output {name!r} is {shape_in_words(array.shape)} where the model gives "
            f"{shape_in_words(right.shape)}"
        )
    return ""


def _close(found: Array, right: Array, tolerance: tuple[float, float]) -> bool:
    """Piece by piece, in double precision: differences between the largest numbers of a type have
    no place in it."""
    import numpy as np

    relative, absolute = max(tolerance[0], rounding(right)), tolerance[1]
    largest = scale(right)
    mine, theirs = found.reshape(-1), right.reshape(-1)
    for start in range(0, mine.size, _PIECE):
        piece = theirs[start : start + _PIECE].astype(np.float64)
        bound = absolute + relative * np.maximum(np.abs(piece), largest)
        each = mine[start : start + _PIECE].astype(np.float64)
        with np.errstate(invalid="ignore"):  # infinity less infinity
            near = (np.abs(each - piece) <= bound) & np.isfinite(piece)
        if not (near | (each == piece) | (np.isnan(each) & np.isnan(piece))).all():
            return False
    return True
