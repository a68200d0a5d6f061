"""Exported programs inside PyTorch: loaded, refused, narrowed to shapes, run uncompiled.

Importing this imports nothing; calling it loads `torch.export`, and with it Dynamo and Inductor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.errors import BackendError, ShapeError
from trivet.plans.backends.torch_executable import TorchExecutable
from trivet.plans.model import Dimension, TensorInfo

_PURE_INPUTS = {"PARAMETER", "BUFFER", "CONSTANT_TENSOR", "USER_INPUT"}
_PURE_OUTPUTS = {"USER_OUTPUT"}


def load_program(model: Path) -> Any:
    """The exported program in ``model``, with its constants among the buffers.

    Raises `BackendError` for one that changes its own state or its inputs, that holds objects which
    are no tensors, that is not for the CPU, or whose sizes are expressions.
    """
    import torch
    from torch.export.graph_signature import InputKind

    program = torch.export.load(str(model))
    signature = program.graph_signature
    _require_pure(torch, program)
    for spec in signature.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR:
            # As a buffer it keeps its name, by which it is bound; a constant is given a new one.
            spec.kind, spec.persistent = InputKind.BUFFER, False
    tensors = [*program.state_dict.values(), *program.constants.values()]
    devices = {str(each.device) for each in tensors if isinstance(each, torch.Tensor)} - {"cpu"}
    if devices:
        raise BackendError(
            f"the program is for {', '.join(sorted(devices))}; plans are for the CPU"
        )
    return program


def _require_pure(torch: Any, program: Any) -> None:
    """Refuse what gives the same request another answer, or writes into a caller's arrays.

    As exported, a program may still write in place; only its functional form says what it changes.
    """
    if any(_may_write(torch, node) for node in program.graph.nodes):
        program = program.run_decompositions({})
    signature = program.graph_signature
    kinds = {each.kind.name for each in signature.input_specs} - _PURE_INPUTS
    kinds |= {each.kind.name for each in signature.output_specs} - _PURE_OUTPUTS
    if kinds:
        raise BackendError(
            f"the program has {', '.join(sorted(kinds)).lower()}, which no plan is kept of",
            hint="a plan must give the same answer to the same request; return the new state",
        )


def _may_write(torch: Any, node: Any) -> bool:
    """Whether a node of a graph writes in place, or has a graph of its own that might."""
    if node.op != "call_function" or node.target is torch.ops.aten.detach_.default:
        return False
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def sizes_of(
    inputs: Sequence[TensorInfo], shapes: Mapping[str, tuple[Dimension, ...]]
) -> dict[str, int]:
    """The size of each symbol that ``shapes`` fix."""
    sizes: dict[str, int] = {}
    for each in inputs:
        for symbol, size in zip(each.shape or (), shapes.get(each.name, ()), strict=False):
            if isinstance(symbol, str) and isinstance(size, int):
                sizes[symbol] = size
    return sizes


def narrowed(program: Any, inputs: Sequence[TensorInfo], sizes: Mapping[str, int]) -> Any:
    """``program`` for these sizes, with made-up contiguous inputs as its example.

    Examples that somebody saved steer no compile: they are not part of the model's identity. Sizes
    that are left open stay open, within the bounds that they had. Raises `ShapeError` for a size
    outside of these.
    """
    import torch
    from torch.utils import _pytree

    _require_within(sizes, bounds_of(program))
    api: Any = torch.export  # its types say less than it takes
    leaves, spec = _pytree.tree_flatten(program.example_inputs)
    names = iter(inputs)
    open_shapes, again, dims = api.ShapesCollection(), False, dict[str, Any]()
    for position, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            continue
        info = next(names)
        shape = [
            sizes.get(symbol, size) if isinstance(symbol, str) else size
            for symbol, size in zip(info.shape or (), leaf.shape, strict=True)
        ]
        again |= not leaf.is_contiguous() or shape != list(leaf.shape)
        again |= any(symbol in sizes for symbol in info.shape or ())
        made = leaves[position] = torch.zeros(shape, dtype=leaf.dtype)
        free = {
            axis: dims.setdefault(symbol, _dim(api.Dim, symbol, program))
            for axis, symbol in enumerate(info.shape or ())
            if isinstance(symbol, str) and symbol not in sizes
        }
        if free:
            open_shapes[made] = free
    args, kwargs = _pytree.tree_unflatten(leaves, spec)
    if again:
        module = program.module(check_guards=False)
        return api.export(module, args, kwargs, dynamic_shapes=open_shapes)
    program.example_inputs = (args, kwargs)
    return program


def bounds_of(program: Any) -> dict[str, tuple[int | None, int | None]]:
    """Lowest and highest size of each symbol; None for no limit."""
    return {
        str(symbol): (_number(found.lower), _number(found.upper))
        for symbol, found in program.range_constraints.items()
    }


def uncompiled(
    program: Any, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]
) -> TorchExecutable:
    """The program as PyTorch runs it, operator by operator."""
    import torch
    from torch.utils import _pytree

    module = program.module()  # which checks sizes that follow from others
    example, spec = _pytree.tree_flatten(program.example_inputs)

    def call(tensors: list[Any]) -> Sequence[Any]:
        given = iter(tensors)
        leaves = [next(given) if isinstance(e, torch.Tensor) else e for e in example]
        args, kwargs = _pytree.tree_unflatten(leaves, spec)
        with torch.no_grad():
            found: Sequence[Any] = _pytree.tree_leaves(module(*args, **kwargs))
            return found

    executable = TorchExecutable(torch, call, module, inputs, outputs, bounds_of(program))
    executable.weights = {**program.state_dict, **program.constants}
    return executable


def _dim(kind: Any, symbol: str, program: Any) -> Any:
    low, high = bounds_of(program).get(symbol, (None, None))
    if not symbol.isidentifier():
        raise BackendError(
            f"an input has the size {symbol}: compiled code does not check that sizes follow from "
            "others, so no plan is kept of such a program",
            hint="export it with independent sizes, or run it uncompiled",
        )
    return kind(symbol, min=low, max=high)


def _require_within(
    sizes: Mapping[str, int], bounds: Mapping[str, tuple[int | None, int | None]]
) -> None:
    for symbol, size in sizes.items():
        low, high = bounds.get(symbol, (None, None))
        if (low is not None and size < low) or (high is not None and size > high):
            raise ShapeError(
                f"the rules want the size {size} where the program was exported for {low} to {high}"
            )


def _number(bound: Any) -> int | None:
    try:
        number = int(bound)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None  # one of PyTorch's infinities
    return number if 0 <= number < 1 << 62 else None
