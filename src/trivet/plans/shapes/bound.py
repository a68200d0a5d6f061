"""`BoundShapes`: rules applied to one model; picks the variant of a request."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from trivet.errors import ShapeError, ShapeOutside
from trivet.keys import FieldValue
from trivet.plans.model import Dimension, TensorInfo, shape_in_words, shapes_in_words
from trivet.plans.shapes.outputs import find_cuts
from trivet.plans.shapes.padding import Padding
from trivet.plans.shapes.variables import Solution, Variable

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

_REMEMBERED = 512  # requests' shapes; a variant is small and quickly made again


class Shaped(Protocol):
    """An array, as far as its shape goes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""


class Variant:
    """The shapes of one plan, and what a request asks of it.

    Variants are equal when they are the same plan of one model, whatever the request.

    Attributes:
        shapes: input to its shape as the plan is compiled: a size where the rules or the model fix
            one, else the model's own symbol or None. Inputs of unknown rank are left out.
        requested: variable to the size of the request's arrays.
        padded: variable to the size that the plan is run with.
    """

    __slots__ = ("_hash", "padded", "requested", "shapes")

    def __init__(
        self,
        shapes: Mapping[str, tuple[Dimension, ...]],
        requested: Mapping[str, int],
        padded: Mapping[str, int],
    ) -> None:
        self.shapes = shapes
        self.requested = requested
        self.padded = padded
        self._hash = hash(tuple(shapes.items()))

    @property
    def is_padded(self) -> bool:
        """Whether the request is smaller than what the plan is run with."""
        return self.requested != self.padded

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and self.shapes == other.shapes

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return shapes_in_words(self.shapes)

    def __repr__(self) -> str:
        return f"Variant({dict(self.shapes)}, {dict(self.requested)} in {dict(self.padded)})"


class BoundShapes:
    """Shape rules and one model's inputs and outputs, found to agree. Made by `Shapes.bind`.

    All methods may be called from any thread.
    """

    def __init__(
        self,
        inputs: tuple[TensorInfo, ...],
        outputs: tuple[TensorInfo, ...],
        solution: Solution,
        *,
        pad: Mapping[str, Any],
        mask: str | None,
        cut: Mapping[str, Mapping[int, str]],
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._axes = solution.axes
        self._variables = solution.variables
        self._bucketed = [i for i, each in enumerate(self._variables) if each.buckets]
        self._chosen = [i for i, each in enumerate(self._variables) if not _is_fixed(each)]
        self._mask = mask
        self._cuts = find_cuts(inputs, outputs, solution, cut)
        self._lengths = {
            each.name: each.shape for each in outputs if each.name not in cut and each.shape
        }
        self._padding = Padding(inputs, solution, pad, mask)
        self._remembered: dict[tuple[tuple[str, tuple[int, ...]], ...], Variant] = {}

    def variant(self, arrays: Mapping[str, Shaped]) -> Variant:
        """The variant for a request. Only the arrays' shapes are looked at.

        Raises `ShapeOutside` when the request lies outside the rules, and plain `ShapeError` when
        it is not one that the model takes: a missing or unknown input, another rank, another size
        where the model fixes one.
        """
        asked = tuple([(name, _shape(name, array)) for name, array in arrays.items()])
        found = self._remembered.get(asked)
        if found is None:
            found = self._variant(dict(asked))
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[asked] = found
        return found

    def variants(self, limit: int = 64) -> tuple[Variant, ...]:
        """One variant for each combination of buckets, smallest first; what there is to warm.

        Sizes that a request chooses freely (symbols without buckets) are not enumerated: they are
        one variant. Raises `ShapeError` when there are more than ``limit``.
        """
        bucketed = [self._variables[i] for i in self._bucketed]
        count = math.prod(len(each.buckets) for each in bucketed)
        if count > limit:
            raise ShapeError(
                f"the shape rules make {count} variants "
                f"({' x '.join(f'{each.name}: {len(each.buckets)}' for each in bucketed)}), "
                f"more than the limit of {limit}",
                hint="use fewer buckets, or bounds on axes where one plan for all sizes will do",
            )
        combinations = itertools.product(*(each.buckets for each in bucketed))
        fitted = [dict(zip(self._bucketed, sizes, strict=True)) for sizes in combinations]
        return tuple(self._made(sizes, sizes) for sizes in fitted)

    def smaller(self, variant: Variant) -> list[dict[str, tuple[int, ...]]]:
        """Shapes of the smallest and the largest request that ``variant`` pads, without the mask.

        Sizes that a request is free to choose are the least that the rules allow. Empty where
        nothing is padded, or where an input's rank is unknown.
        """
        if any(axes is None for axes in self._axes.values()):
            return []
        least, most = {}, {}
        for index in self._bucketed:
            variable = self._variables[index]
            size = variant.padded[variable.name]
            least[index] = 1 + max((each for each in variable.buckets if each < size), default=0)
            most[index] = max(least[index], size - 1)
        requests = [self._least_request(least)]
        if most != least:
            requests.append(self._least_request(most))
        return [each for each in requests if self._variant(each).is_padded]

    def signature(self, variant: Variant) -> FieldValue:
        """What a key needs to know of a variant: two are the same plan exactly if this is equal."""
        return {each.name: variant.shapes.get(each.name) for each in self.inputs}

    def pad(self, arrays: Arrays, variant: Variant) -> dict[str, Array]:
        """Arrays as the plan takes them: checked, padded, with the mask if it is to be made.

        Arrays that need no padding are passed on as they are, not copied. Raises `ShapeError` when
        an array has another type than the model's input; nothing is cast.
        """
        return self._padding.padded(arrays, variant.requested, variant.padded)

    def plain(self, arrays: Arrays) -> dict[str, Array]:
        """Arrays for a run without a plan: checked, not padded; a missing mask is all ones."""
        shapes = {name: _shape(name, array) for name, array in arrays.items()}
        sizes = self._sizes(shapes, equal=False)
        return self._padding.plain(
            arrays, {self._variables[i].name: size for i, size in sizes.items()}
        )

    def cut(self, outputs: Arrays, variant: Variant) -> dict[str, Array]:
        """Outputs without what padding added; views of the arrays given.

        Raises `ShapeError` when an output that is to be cut does not have the padded size there,
        or one has another size than the model fixes: the model then doesn't do what its axes say,
        and nothing is guessed.
        """
        results = dict(outputs)
        if not variant.is_padded:
            return results
        for name, axes in self._cuts.items():
            array = results.get(name)
            if array is None:
                continue
            region = [slice(None)] * array.ndim
            for axis, index in axes:
                variable = self._variables[index].name
                size = array.shape[axis] if axis < array.ndim else None
                if size != variant.padded[variable]:
                    raise ShapeError(
                        f"output {name!r} should have {variant.padded[variable]} elements along "
                        f"axis {axis} ({variable}), it has {size}",
                        hint=f"the model's axis names mislead; declare cut={{{name!r}: {{...}}}}",
                    )
                region[axis] = slice(variant.requested[variable])
            results[name] = array[tuple(region)]
        for name, lengths in self._lengths.items():
            if name in results:
                _require_lengths(name, results[name].shape, lengths)
        return results

    def _variant(self, shapes: Mapping[str, tuple[int, ...]]) -> Variant:
        requested = self._sizes(shapes, equal=True)
        padded = {i: _fit(self._variables[i], size) for i, size in requested.items()}
        return self._made(requested, padded)

    def _sizes(self, shapes: Mapping[str, tuple[int, ...]], *, equal: bool) -> dict[int, int]:
        """Variable (by index) to the request's size; checks names, ranks and equality."""
        unknown = shapes.keys() - self._axes.keys()
        if unknown:
            raise ShapeError(f"the model has no input {min(unknown)!r}")
        sizes: dict[int, int] = {}
        for name, axes in self._axes.items():
            shape = shapes.get(name)
            if shape is None:
                if name == self._mask:
                    continue
                raise ShapeError(f"the input {name!r} is missing")
            if axes is None:
                continue
            if len(shape) != len(axes):
                raise ShapeError(f"input {name!r} has {len(axes)} axes, the array has {len(shape)}")
            for axis, ((index, _), size) in enumerate(zip(axes, shape, strict=True)):
                if index is None:
                    continue
                if sizes.setdefault(index, size) != size and equal:
                    raise ShapeOutside(
                        f"{self._variables[index].name} is {sizes[index]}, but axis {axis} of "
                        f"input {name!r} has {size}"
                    )
        return sizes

    def _least_request(self, sizes: Mapping[int, int]) -> dict[str, tuple[int, ...]]:
        """The smallest shapes that the rules allow, with these sizes of variables."""

        def size(index: int | None, model: Dimension) -> int:
            if index is None:
                return model if isinstance(model, int) else 1
            variable = self._variables[index]
            fixed = sizes.get(index, variable.size)
            if fixed is None:
                fixed = max(1, variable.bounds[0] if variable.bounds else 1)
            return fixed

        return {
            name: tuple(size(index, model) for index, model in axes or ())
            for name, axes in self._axes.items()
            if name != self._mask
        }

    def _made(self, requested: Mapping[int, int], padded: Mapping[int, int]) -> Variant:
        def dimension(index: int | None, model: Dimension) -> Dimension:
            if index is None:
                return model
            variable = self._variables[index]
            if variable.buckets:
                return padded[index]
            return model if variable.size is None else variable.size

        named = [(i, self._variables[i].name) for i in self._chosen if i in requested]
        return Variant(
            shapes={
                name: tuple(dimension(index, model) for index, model in axes)
                for name, axes in self._axes.items()
                if axes is not None
            },
            requested={name: requested[i] for i, name in named},
            padded={name: padded[i] for i, name in named},
        )


def _shape(name: str, array: Shaped) -> tuple[int, ...]:
    try:
        return array.shape
    except AttributeError:
        raise ShapeError(f"input {name!r} is a {type(array).__name__}, not an array") from None


def _require_lengths(name: str, found: tuple[int, ...], said: tuple[Dimension, ...]) -> None:
    """Models exported with a fixed batch promise sizes that no runtime keeps."""
    fits = len(found) == len(said) and all(
        size == length for size, length in zip(found, said, strict=True) if isinstance(length, int)
    )
    if not fits:
        raise ShapeError(
            f"the model says that output {name!r} is {shape_in_words(said)}, it is "
            f"{shape_in_words(found)}, and inputs were padded",
            hint=f"declare what to cut: cut={{{name!r}: {{axis: 'SYMBOL'}}}}",
        )


def _is_fixed(variable: Variable) -> bool:
    return variable.by_model and not variable.buckets


def _fit(variable: Variable, size: int) -> int:
    """The size to run with. Raises `ShapeOutside`, or `ShapeError` where the model says no."""
    if variable.size is not None and size != variable.size:
        kind = ShapeError if variable.by_model else ShapeOutside
        raise kind(f"{variable.name} is always {variable.size}, the request has {size}")
    if variable.bounds is not None and not variable.bounds[0] <= size <= variable.bounds[1]:
        low, high = variable.bounds
        raise ShapeOutside(f"{variable.name} is {low} to {high}, the request has {size}")
    if not variable.buckets:
        return size
    for bucket in variable.buckets:
        if size <= bucket:
            return bucket
    raise ShapeOutside(
        f"{variable.name} is at most {variable.buckets[-1]}, the request has {size}",
        hint="add a larger bucket, split the request, or use outside='fallback'",
    )
