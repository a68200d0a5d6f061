"""`Shapes`: what the user declares about the shapes of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

from trivet.errors import ShapeError
from trivet.plans.model import TensorInfo
from trivet.plans.shapes.bound import BoundShapes
from trivet.plans.shapes.grammar import Axis, format_rule, parse_rule
from trivet.plans.shapes.variables import solve

PadValue: TypeAlias = int | float | bool | str
Outside: TypeAlias = Literal["refuse", "fallback"]


class Shapes:
    """Rules for the shapes of a model's inputs.

    ::

        Shapes("x=N{1,8,32}x3x224x224")
        Shapes("ids=Bx'seq'{16,64,128}", "mask=Bx'seq'", pad={"ids": 1}, mask="mask")

    Each rule names one input and gives its axes, separated by ``x``: a size, ``?`` (as the model
    has it), a symbol (any size, equal wherever it stands), a symbol with bounds ``N[1..64]``, or
    with buckets ``N{1,8,32}``; buckets may do without a symbol. Names and symbols may be quoted.
    Axes that the model gives the same symbol are one variable, whatever the rules call them. Inputs
    without a rule keep the shape of the model; so does everything when there are no rules.

    Along a bucketed axis a request is padded to the smallest bucket that fits, and outputs are cut
    back to the size asked for: where the model names the output's axis as it names the input's, or
    as ``cut`` says. That is right only if no element of the result depends on the padding. For a
    batch this holds for most models; for a sequence it takes a mask or a pad value that the model
    ignores. Nothing is padded that isn't declared with buckets, and before a plan's first use a
    made-up request is run both padded and unpadded, to see whether the rules are right.

    Args:
        rules: one text for each input.
        pad: input to the value that fills its padding (default 0, for strings ``""``), or
            ``"edge"`` to repeat the last element along the axis. An empty axis has no last
            element, so its padding is 0.
        mask: an input that is made by the cache when a request lacks it: 1 where a request's
            elements are, 0 in the padding.
        cut: output to ``{axis: symbol}`` of the rules or of the model, for outputs whose axes the
            model doesn't name. Axes that are not listed stay whole; ``{}`` leaves all whole.
        outside: what a request outside the rules gets: ``"refuse"``, a `ShapeOutside`, or
            ``"fallback"``, the model without a kept plan.
        check_padding: False for a model that answers made-up inputs differently when they are
            padded, and real ones alike.

    Raises `ShapeError` when a rule is malformed or two contradict each other.
    """

    __slots__ = ("_axes", "check_padding", "cut", "mask", "outside", "pad")

    def __init__(
        self,
        *rules: str,
        pad: Mapping[str, PadValue] | None = None,
        mask: str | None = None,
        cut: Mapping[str, Mapping[int, str]] | None = None,
        outside: Outside = "refuse",
        check_padding: bool = True,
    ) -> None:
        if outside not in ("refuse", "fallback"):
            raise ShapeError(f"outside={outside!r} is neither 'refuse' nor 'fallback'")
        axes: dict[str, tuple[Axis, ...]] = {}
        for rule in rules:
            name, parsed = parse_rule(rule)
            if name in axes:
                raise ShapeError(f"there are two shape rules for the input {name!r}")
            axes[name] = parsed
        self._axes = MappingProxyType(_complete(axes))
        self.pad = MappingProxyType(dict(pad or {}))
        self.mask = mask
        self.cut = MappingProxyType({name: dict(each) for name, each in (cut or {}).items()})
        self.outside: Outside = outside
        self.check_padding = check_padding

    def bind(self, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> BoundShapes:
        """These rules applied to one model.

        Raises `ShapeError` when they don't fit it: an input or output that it doesn't have,
        another rank, a size that it fixes otherwise, a bucketed axis whose padding would reach an
        input that no rule mentions, an output of which can't be told whether to cut it.
        """
        known = {each.name: each for each in inputs}
        for name in self._axes:
            _known(name, known, "a shape rule")
        for name, value in self.pad.items():
            _check_pad(_known(name, known, "pad"), value)
        if self.mask is not None:
            _known(self.mask, known, "mask")
        for name in self.cut:
            _known(name, {each.name: each for each in outputs}, "cut", "output")
        solution = solve(inputs, self._axes, self.mask)
        return BoundShapes(
            tuple(inputs), tuple(outputs), solution, pad=self.pad, mask=self.mask, cut=self.cut
        )

    def __repr__(self) -> str:
        rules = [repr(format_rule(name, axes)) for name, axes in self._axes.items()]
        options = [
            f"{name}={value!r}"
            for name, value, default in (
                ("pad", dict(self.pad), {}),
                ("mask", self.mask, None),
                ("cut", dict(self.cut), {}),
                ("outside", self.outside, "refuse"),
                ("check_padding", self.check_padding, True),
            )
            if value != default
        ]
        return f"Shapes({', '.join(rules + options)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shapes) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _complete(axes: Mapping[str, tuple[Axis, ...]]) -> dict[str, tuple[Axis, ...]]:
    """Give a symbol's bounds or buckets, said once, to every place where it stands."""
    said: dict[str, Axis] = {}
    for axis in (axis for each in axes.values() for axis in each):
        if axis.symbol is None or (axis.bounds is None and not axis.buckets):
            continue
        if said.setdefault(axis.symbol, axis) != axis:
            raise ShapeError(f"the symbol {axis.symbol!r} has two different rules")
    return {
        name: tuple(said.get(axis.symbol, axis) if axis.symbol else axis for axis in each)
        for name, each in axes.items()
    }


def _known(
    name: str, tensors: Mapping[str, TensorInfo], what: str, kind: str = "input"
) -> TensorInfo:
    if name not in tensors:
        raise ShapeError(
            f"{what} names the {kind} {name!r}, which the model doesn't have",
            hint=f"its {kind}s are {', '.join(map(repr, tensors))}",
        )
    return tensors[name]


def _check_pad(tensor: TensorInfo, value: PadValue) -> None:
    """No silent cast: the pad value must be one that the input's type can hold."""
    if value == "edge" and type(value) is str:
        return
    kind = tensor.dtype.rstrip("0123456789")
    if kind == "string":
        fits = isinstance(value, str)
    elif isinstance(value, str):
        fits = False
    elif kind == "bool":
        fits = value in (0, 1)
    elif kind in ("int", "uint"):
        bits = int(tensor.dtype.removeprefix(kind))
        low, high = (
            (0, 2**bits - 1) if kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        fits = (isinstance(value, int) or value.is_integer()) and low <= value <= high
    else:
        fits = True
    if not fits:
        raise ShapeError(f"the pad value {value!r} is not a {tensor.dtype} (input {tensor.name!r})")
