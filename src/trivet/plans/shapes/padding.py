"""Checking, padding and masking of input arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trivet.errors import ShapeError
from trivet.plans.model import TensorInfo
from trivet.plans.shapes.variables import Solution

if TYPE_CHECKING:
    import numpy as np

    from trivet.plans.model import Array, Arrays

EDGE = "edge"


class Padding:
    """How the inputs of one model are padded."""

    def __init__(
        self,
        inputs: Sequence[TensorInfo],
        solution: Solution,
        pad: Mapping[str, Any],
        mask: str | None,
    ) -> None:
        self._inputs = {each.name: each for each in inputs}
        self._axes = _bucketed_axes(solution)
        for name in pad:
            if name not in self._axes:
                raise ShapeError(f"pad is given for {name!r}, but none of its axes has buckets")
        self._edge = {name for name, value in pad.items() if value == EDGE and type(value) is str}
        self._fill = {
            name: pad[name] if name in pad and name not in self._edge else self._zero(name)
            for name in self._axes
        }
        self._mask = mask
        self._mask_axes = () if mask is None else _mask_axes(self._inputs[mask], solution)
        self._dtypes: dict[str, np.dtype[Any] | None] = {}

    def padded(
        self, arrays: Arrays, requested: Mapping[str, int], padded: Mapping[str, int]
    ) -> dict[str, Array]:
        """See `BoundShapes.pad`. Sizes are by the variables' names."""
        result: dict[str, Array] = {}
        for name, array in arrays.items():
            self._check(name, array)
            target = list(array.shape)
            for axis, variable in self._axes.get(name, ()):
                if target[axis] != requested[variable]:
                    raise ShapeError(f"this variant was not made for the shape of {name!r}")
                target[axis] = padded[variable]
            if tuple(target) == array.shape:
                result[name] = array
            else:
                result[name] = _padded(array, target, self._fill[name], edge=name in self._edge)
        return self._with_mask(result, requested, padded)

    def plain(self, arrays: Arrays, sizes: Mapping[str, int]) -> dict[str, Array]:
        """See `BoundShapes.plain`."""
        for name, array in arrays.items():
            self._check(name, array)
        return self._with_mask(dict(arrays), sizes, sizes)

    def _zero(self, name: str) -> Any:
        return "" if self._inputs[name].dtype == "string" else 0

    def _check(self, name: str, array: Array) -> None:
        import numpy as np

        if name not in self._inputs:
            raise ShapeError(f"the model has no input {name!r}")
        if not isinstance(array, np.ndarray):
            raise ShapeError(f"input {name!r} is a {type(array).__name__}, not a NumPy array")
        expected = self._dtype(name)
        if expected is None:
            return
        right = array.dtype.kind in "OSUT" if expected.kind == "O" else array.dtype == expected
        if not right:
            raise ShapeError(
                f"input {name!r} is {self._inputs[name].dtype}, the array is {array.dtype}",
                hint="nothing is cast silently: convert the array",
            )

    def _dtype(self, name: str) -> np.dtype[Any] | None:
        """NumPy's type for an input; None where it has none, and the framework checks."""
        if name not in self._dtypes:
            import numpy as np

            text = self._inputs[name].dtype
            try:
                self._dtypes[name] = np.dtype(object if text == "string" else text)
            except TypeError:
                self._dtypes[name] = None
        return self._dtypes[name]

    def _with_mask(
        self, arrays: dict[str, Array], requested: Mapping[str, int], padded: Mapping[str, int]
    ) -> dict[str, Array]:
        if self._mask is None or self._mask in arrays:
            return arrays
        import numpy as np

        axes = self._mask_axes
        mask = np.zeros(
            [each if isinstance(each, int) else padded[each] for each in axes],
            dtype=self._dtype(self._mask),
        )
        real = (each if isinstance(each, int) else requested[each] for each in axes)
        mask[tuple(slice(size) for size in real)] = 1
        return {**arrays, self._mask: mask}


def _padded(array: Array, target: Sequence[int], value: Any, *, edge: bool) -> Array:
    import numpy as np

    result = np.empty(target, dtype=array.dtype)
    region = [slice(size) for size in array.shape]
    result[tuple(region)] = array
    # Axis by axis: the tail of one axis covers what is already there of the axes before it.
    for axis, (size, padded) in enumerate(zip(array.shape, target, strict=True)):
        if padded == size:
            continue
        tail, last = region.copy(), region.copy()
        tail[axis], last[axis] = slice(size, None), slice(size - 1, size)
        result[tuple(tail)] = result[tuple(last)] if edge and size else value
        region[axis] = slice(None)
    return result


def _bucketed_axes(solution: Solution) -> dict[str, tuple[tuple[int, str], ...]]:
    """Input to its bucketed axes, each with the variable's name."""
    found: dict[str, list[tuple[int, str]]] = {}
    for variable in solution.variables:
        if variable.buckets:
            for name, axis in variable.places:
                found.setdefault(name, []).append((axis, variable.name))
    return {name: tuple(sorted(axes)) for name, axes in found.items()}


def _mask_axes(mask: TensorInfo, solution: Solution) -> tuple[int | str, ...]:
    """For each axis of the mask its size, or the variable that gives it."""
    axes = solution.axes[mask.name]
    if axes is None or mask.dtype == "string":
        raise ShapeError(f"{mask.name!r} can't be a mask: its rank is unknown or it holds text")
    found: list[int | str] = []
    for axis, (index, _) in enumerate(axes):
        variable = None if index is None else solution.variables[index]
        if variable is not None and variable.size is not None:
            found.append(variable.size)
        elif variable is not None and any(name != mask.name for name, _ in variable.places):
            found.append(variable.name)
        else:
            raise ShapeError(
                f"axis {axis} of the mask {mask.name!r} has no size that another input gives",
                hint=f"add a rule for {mask.name!r} that uses the other input's symbols",
            )
    return tuple(found)
