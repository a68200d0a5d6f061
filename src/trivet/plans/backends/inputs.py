"""Checks of a caller's arrays, for runtimes that trust what they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from trivet.errors import ShapeError
from trivet.plans.model import TensorInfo, shape_in_words

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

Wanted: TypeAlias = Mapping[str, tuple[Any, TensorInfo]]


def wanted(inputs: Sequence[TensorInfo]) -> Wanted:
    """Inputs by name, each with its NumPy type."""
    import numpy as np

    return {each.name: (np.dtype(each.dtype), each) for each in inputs}


def check_inputs(inputs: Arrays, wanted: Wanted) -> list[Array]:
    """Contiguous arrays in the order of ``wanted``. Nothing is converted.

    Raises `ShapeError` for missing or unknown inputs, for other element types or shapes, and where
    one symbol would have two sizes.
    """
    import numpy as np

    unknown = inputs.keys() - wanted.keys()
    missing = wanted.keys() - inputs.keys()
    if unknown or missing:
        what = "no input of the model" if unknown else "missing"
        raise ShapeError(
            f"{min(unknown or missing)!r} is {what}",
            hint=f"the inputs are {', '.join(map(repr, wanted))}",
        )
    arguments, sizes = [], dict[str, int]()
    for name, (dtype, info) in wanted.items():
        array = np.asarray(inputs[name])
        if array.dtype != dtype:
            raise ShapeError(f"input {name!r} takes {dtype}, got {array.dtype}")
        _check_shape(info, array.shape, sizes)
        # A scalar would come out of `ascontiguousarray` with one axis.
        arguments.append(np.ascontiguousarray(array).reshape(array.shape))
    return arguments


def _check_shape(info: TensorInfo, given: tuple[int, ...], sizes: dict[str, int]) -> None:
    """``sizes`` are those of the symbols so far."""
    shape = info.shape
    if shape is None:
        return
    fits = len(given) == len(shape) and all(
        size is None or (sizes.setdefault(size, mine) if isinstance(size, str) else size) == mine
        for size, mine in zip(shape, given, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"input {info.name!r} has shape {shape_in_words(shape)}, got {shape_in_words(given)}"
        )
