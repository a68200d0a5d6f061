"""The canary: one small, fixed run whose result is known.

It is run when a plan is made, on the model in memory and on what was written and loaded back, and
again when a plan is loaded for the first time on a machine, against what was stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.errors import TrivetError
from trivet.plans.backend import Executable
from trivet.plans.model import Dimension, TensorInfo

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

_FILE_NAME = "canary"
_MOST_ELEMENTS = 1 << 26  # of one input; a canary must not take the memory that serving needs
# Powers of two: what masks are filled with is at least about that large, within so many, and so
# many away from everything smaller.
_FILL, _WIDTH, _GAP = 10, 3, 4
_KEPT_PER_OUTPUT = 4096  # elements; enough to notice, small enough to keep


def file_name(bound_weights: bytes) -> str:
    """Where the canary's result is kept beside a plan.

    Where the weights are bound at loading, the result is that of one set of weights, and stands for
    no other.
    """
    return f"{_FILE_NAME}.{bound_weights.hex()}" if bound_weights else _FILE_NAME


def is_kept(folder: Path) -> bool:
    """Whether a canary's result is kept in ``folder``, for whichever weights."""
    return any(each.name.startswith(_FILE_NAME) for each in folder.iterdir())


class CanaryMismatch(TrivetError):
    """A plan gives another result than it must."""


def canary_inputs(
    inputs: Sequence[TensorInfo], shapes: Mapping[str, tuple[Dimension, ...]]
) -> dict[str, Array] | None:
    """Fixed inputs, the same in every process; None where one can't be made up, or is too large.

    Unknown sizes are 1. Integers are 0 or 1, since they are often indices; floats lie in [-1, 1).
    """
    import numpy as np

    made = {}
    for each in inputs:
        shape = shapes.get(each.name, each.shape)
        if shape is None:
            return None
        sizes = tuple(size if isinstance(size, int) else 1 for size in shape)
        if math.prod(sizes) > _MOST_ELEMENTS:
            return None
        ramp = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes)
        try:
            dtype = np.dtype(each.dtype)
        except TypeError:
            return None
        if dtype.kind == "f":
            made[each.name] = ((ramp * 7919 % 1024) / 512.0 - 1.0).astype(dtype)
        elif dtype.kind in "iub":
            made[each.name] = (ramp % 2).astype(dtype)
        else:
            return None
    return made


def kept(outputs: Arrays) -> bytes | None:
    """The first elements of each output, encoded; None where they have no byte form."""
    from trivet import codecs

    try:
        return codecs.Arrays().encode(heads(outputs))
    except TypeError:
        return None


def heads(outputs: Arrays) -> dict[str, Array]:
    """The elements of each output that are kept, in one row."""
    return {name: each.reshape(-1)[:_KEPT_PER_OUTPUT] for name, each in outputs.items()}


def matches(
    outputs: Arrays,
    expected: Arrays,
    tolerance: tuple[float, float],
) -> bool:
    """Whether two sets of outputs agree in their first elements. NaN agrees with NaN.

    In half precision they may differ by a few roundings, whatever the tolerance.
    """
    import numpy as np

    if outputs.keys() != expected.keys():
        return False
    relative, absolute = tolerance
    for name, each in outputs.items():
        mine = each.reshape(-1)[:_KEPT_PER_OUTPUT]
        theirs = expected[name].reshape(-1)[:_KEPT_PER_OUTPUT]
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return False
        if mine.dtype.kind not in "fc":
            if not np.array_equal(mine, theirs):
                return False
        elif not np.allclose(
            mine,
            theirs,
            rtol=max(relative, rounding(mine)),
            atol=max(absolute, rounding(mine) * scale(theirs)),
            equal_nan=True,
        ):
            return False
    return True


def rounding(array: Array) -> float:
    """What a few roundings make of elements in half precision, relative to the largest; else 0.

    Longer elements are rounded by far less than any tolerance.
    """
    import numpy as np

    return 4.0 * float(np.finfo(array.dtype).eps) if array.dtype.itemsize == 2 else 0.0


def scale(expected: Array) -> float:
    """The absolute value of the largest finite element that was computed; 0 where there is none.

    What a mask puts in doesn't count, or nothing would ever be wrong beside it: -1e4 or -1e9 where
    it forbids, with a logit added to it or not, and twice that where two masks forbid. Such
    elements are close to each other and far from all others.
    """
    import numpy as np

    sizes = np.abs(expected[np.isfinite(expected)])
    sizes = sizes[sizes > 0]
    if not sizes.size:
        return 0.0
    powers = np.frexp(sizes)[1]
    least = int(powers.min())
    found = (np.flatnonzero(np.bincount(powers - least)) + least).tolist()
    computed = found
    while computed:
        first = sum(each <= computed[-1] - _WIDTH for each in computed)
        below = computed[first - 1] if first else -math.inf
        if computed[first] < _FILL or computed[first] - below < _GAP:
            break
        computed = computed[:first]
    if not computed:
        return 0.0
    return float(sizes.max(where=powers <= computed[-1], initial=0))


def expected_of(model: Executable, inputs: Arrays | None) -> dict[str, Array] | None:
    """What ``model`` gives for the canary; None where there is none or the model refuses it."""
    if inputs is None:
        return None
    try:
        return model.run(inputs)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  made-up inputs: a framework may say anything about them
        return None


def check_fresh(
    plan: Executable,
    inputs: Arrays,
    expected: Arrays,
    tolerance: tuple[float, float],
) -> bytes | None:
    """Check a plan that was just written and loaded back against the model it was made from.

    Returns what to keep for later checks; None for a model that gives another result every time. It
    may give the same in its first runs: a framework draws a seed once for each process.

    Raises `CanaryMismatch` when the plan fails or differs.
    """
    try:
        found, again = plan.run(inputs), plan.run(inputs)
    except MemoryError:
        raise
    except Exception as error:
        raise CanaryMismatch(f"the compiled plan fails where the model runs: {error}") from error
    if not matches(again, found, tolerance):
        return None
    if matches(found, expected, tolerance):
        return kept(found)
    raise CanaryMismatch("the compiled plan gives another result than the model")
