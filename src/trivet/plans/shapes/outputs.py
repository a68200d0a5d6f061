"""Which axes of the outputs padding makes longer, from names, never from equal numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from trivet.errors import ShapeError
from trivet.plans.model import TensorInfo
from trivet.plans.shapes.variables import Solution

Cuts: TypeAlias = Mapping[str, tuple[tuple[int, int], ...]]  # output: (axis, index of variable)


def find_cuts(
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    solution: Solution,
    declared: Mapping[str, Mapping[int, str]],
) -> Cuts:
    """Output to the axes to cut. Raises `ShapeError` where it can't be told."""
    if not any(variable.buckets for variable in solution.variables):
        if declared:
            raise ShapeError("cut is declared, but no axis has buckets, so nothing is padded")
        return {}
    input_symbols = {dim for tensor in inputs for dim in tensor.shape or () if isinstance(dim, str)}
    cuts: dict[str, tuple[tuple[int, int], ...]] = {}
    for output in outputs:
        if output.name in declared:
            axes = _declared(output, declared[output.name], solution)
        else:
            axes = _by_symbol(output, solution, input_symbols)
        if axes:
            cuts[output.name] = tuple(axes)
    return cuts


def _declared(
    output: TensorInfo, declared: Mapping[int, str], solution: Solution
) -> list[tuple[int, int]]:
    axes = []
    for axis, symbol in sorted(declared.items()):
        if axis < 0 or (output.shape is not None and axis >= len(output.shape)):
            raise ShapeError(f"cut: output {output.name!r} has no axis {axis}")
        index = solution.rule_symbols.get(symbol, solution.model_symbols.get(symbol))
        if index is None or not solution.variables[index].buckets:
            raise ShapeError(f"cut: {symbol!r} (output {output.name!r}) names no bucketed axis")
        axes.append((axis, index))
    return axes


def _by_symbol(
    output: TensorInfo, solution: Solution, input_symbols: set[str]
) -> list[tuple[int, int]]:
    if output.shape is None:
        raise _unclear(output, "its rank is unknown")
    axes = []
    for axis, dim in enumerate(output.shape):
        if isinstance(dim, int):
            continue
        if dim is None or dim not in input_symbols:
            what = "unknown" if dim is None else f"{dim!r}, which no input has"
            raise _unclear(output, f"axis {axis} is {what}")
        index = solution.model_symbols.get(dim)
        if index is not None and solution.variables[index].buckets:
            axes.append((axis, index))
    return axes


def _unclear(output: TensorInfo, why: str) -> ShapeError:
    return ShapeError(
        f"inputs are padded, and it can't be told how to cut the output {output.name!r}: {why}",
        hint=f"declare it: cut={{{output.name!r}: {{axis: 'SYMBOL'}}}}, or {{}} to leave it whole",
    )
