"""Which axes of a model's inputs are the same variable, and what may be its size.

Axes are joined where the rules or the model give them the same symbol (union-find); each class of
joined axes is a variable. Two axes of unknown size are never joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from trivet.errors import ShapeError
from trivet.plans.model import Dimension, TensorInfo
from trivet.plans.shapes.grammar import Axis, format_axis

Place: TypeAlias = tuple[str, int]  # input, axis
_Node: TypeAlias = tuple[str, str, int]  # kind, name, axis


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One size that a request chooses, or that is fixed.

    Attributes:
        name: unique; for messages and for `Variant.requested`.
        size: the only size allowed, or None. by_model: whether the model itself says so.
        bounds: lowest and highest size allowed.
        buckets: sizes that a request is padded to, ascending; empty for no padding.
        places: the axes that have this size, in the model's order.
    """

    name: str
    size: int | None
    by_model: bool
    bounds: tuple[int, int] | None
    buckets: tuple[int, ...]
    places: tuple[Place, ...]


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """Variables, and where they stand.

    Attributes:
        axes: input to its axes, each ``(index into variables or None, the model's dimension)``;
            None in place of the tuple when neither the model nor a rule gives the rank.
        rule_symbols, model_symbols: symbol to the index of its variable.
    """

    variables: tuple[Variable, ...]
    axes: Mapping[str, tuple[tuple[int | None, Dimension], ...] | None]
    rule_symbols: Mapping[str, int]
    model_symbols: Mapping[str, int]


def solve(
    inputs: Sequence[TensorInfo], rules: Mapping[str, tuple[Axis, ...]], mask: str | None
) -> Solution:
    """Join the axes and check that rules and model agree. Raises `ShapeError` when they don't."""
    joined = _Joined()
    dims: dict[str, tuple[tuple[Axis, Dimension], ...] | None] = {}
    for tensor in inputs:
        dims[tensor.name] = _match(tensor, rules.get(tensor.name))
        for index, (axis, dim) in enumerate(dims[tensor.name] or ()):
            node = ("axis", tensor.name, index)
            joined.add(node)
            if axis.symbol is not None:
                joined.join(node, ("rule", axis.symbol, 0))
            if isinstance(dim, str):
                joined.join(node, ("model", dim, 0))

    variables: list[Variable] = []
    index_of: dict[_Node, int] = {}
    for root, places in joined.classes().items():
        variable = _variable(places, dims, mask)
        if variable is not None:
            if any(variable.name == other.name for other in variables):
                variable = msgspec.structs.replace(variable, name=_place_name(places[0]))
            index_of[root] = len(variables)
            variables.append(variable)

    def place(name: str, i: int) -> int | None:
        return index_of.get(joined.root(("axis", name, i)))

    return Solution(
        variables=tuple(variables),
        axes={
            name: None
            if axes is None
            else tuple((place(name, i), d) for i, (_, d) in enumerate(axes))
            for name, axes in dims.items()
        },
        rule_symbols=joined.symbols("rule", index_of),
        model_symbols=joined.symbols("model", index_of),
    )


def _match(
    tensor: TensorInfo, rule: tuple[Axis, ...] | None
) -> tuple[tuple[Axis, Dimension], ...] | None:
    """Each axis of an input: what the rule says and what the model says."""
    if rule is None:
        return None if tensor.shape is None else tuple((Axis(), dim) for dim in tensor.shape)
    shape: tuple[Dimension, ...] = (None,) * len(rule) if tensor.shape is None else tensor.shape
    if len(shape) != len(rule):
        raise ShapeError(
            f"the rule for {tensor.name!r} has {len(rule)} axes "
            f"({', '.join(map(format_axis, rule))}), the model has {len(shape)} "
            f"({', '.join('?' if dim is None else str(dim) for dim in shape)})"
        )
    return tuple(zip(rule, shape, strict=True))


def _variable(
    places: Sequence[Place],
    dims: Mapping[str, tuple[tuple[Axis, Dimension], ...] | None],
    mask: str | None,
) -> Variable | None:
    """The variable of one class of axes; None when nothing is said about it."""
    said = [(place, *(dims[place[0]] or ())[place[1]]) for place in places]
    model_sizes = {dim for _, _, dim in said if isinstance(dim, int)}
    rule_sizes = {axis.size for _, axis, _ in said if axis.size is not None}
    buckets = {axis.buckets for _, axis, _ in said if axis.buckets}
    bounds = {axis.bounds for _, axis, _ in said if axis.bounds is not None}
    symbols = [axis.symbol for _, axis, _ in said if axis.symbol is not None]
    if not (model_sizes or rule_sizes or buckets or bounds or symbols):
        return None

    name = _name(said, symbols)
    sizes = model_sizes | rule_sizes
    size = min(sizes) if sizes else None
    if len(sizes) > 1 or len(buckets) > 1 or len(bounds) > 1 or (buckets and bounds):
        raise ShapeError(f"contradicting rules for {name}: {_told(said)}")
    one_bucket = next(iter(buckets), ())
    one_bounds = next(iter(bounds), None)
    if size is not None:
        if one_bounds is not None and not one_bounds[0] <= size <= one_bounds[1]:
            raise ShapeError(f"{name} is always {size}, outside its bounds: {_told(said)}")
        if one_bucket not in ((), (size,)):
            raise ShapeError(
                f"{name} is always {size}, so it can't have other buckets: {_told(said)}",
                hint="export the model with this axis symbolic (dynamic)",
            )
    for place, axis, _ in said:
        if one_bucket and not axis.constrained and place[0] != mask:
            raise ShapeError(
                f"the rules pad {name}, and the model gives axis {place[1]} of input "
                f"{place[0]!r} the same size, but no rule for {place[0]!r} says so",
                hint=f"add a rule for {place[0]!r} with the same symbol, so that padding it is "
                "your decision, or make it the mask",
            )
    return Variable(
        name=name,
        size=None if one_bucket else size,
        by_model=bool(model_sizes),
        bounds=one_bounds,
        buckets=one_bucket,
        places=tuple(places),
    )


_Said: TypeAlias = Sequence[tuple[Place, Axis, Dimension]]


def _name(said: _Said, symbols: Sequence[str]) -> str:
    model = [dim for _, _, dim in said if isinstance(dim, str)]
    return next(iter([*symbols, *model]), _place_name(said[0][0]))


def _place_name(place: Place) -> str:
    return f"{place[0]}.{place[1]}"


def _told(said: _Said) -> str:
    return "; ".join(
        f"{tensor!r} axis {index}: rule {format_axis(axis)}, model {'?' if dim is None else dim}"
        for (tensor, index), axis, dim in said
    )


class _Joined:
    """Union-find over axes and symbols."""

    def __init__(self) -> None:
        self._parent: dict[_Node, _Node] = {}

    def add(self, node: _Node) -> None:
        self._parent.setdefault(node, node)

    def root(self, node: _Node) -> _Node:
        while self._parent[node] != node:
            self._parent[node] = node = self._parent[self._parent[node]]
        return node

    def join(self, one: _Node, other: _Node) -> None:
        self.add(one)
        self.add(other)
        self._parent[self.root(other)] = self.root(one)

    def classes(self) -> dict[_Node, list[Place]]:
        """Root to the axes joined under it, in order."""
        found: dict[_Node, list[Place]] = {}
        for node in self._parent:
            if node[0] == "axis":
                found.setdefault(self.root(node), []).append((node[1], node[2]))
        return found

    def symbols(self, kind: str, index_of: Mapping[_Node, int]) -> dict[str, int]:
        return {
            node[1]: index_of[self.root(node)]
            for node in self._parent
            if node[0] == kind and self.root(node) in index_of
        }
