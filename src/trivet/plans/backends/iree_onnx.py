"""ONNX models as IREE's importer wants them: sizes fixed, shapes inferred, weights in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trivet.errors import BackendError, ModelError, ShapeError
from trivet.plans.facts.iree import ONNX
from trivet.plans.graph.dtypes import onnx_name
from trivet.plans.installed import missing
from trivet.plans.model import Dimension, TensorInfo

_LARGE = 1024  # bytes; shape inference looks at values of smaller tensors only


def read_model(path: Path, shapes: Mapping[str, tuple[Dimension, ...]]) -> Any:
    """The ``ModelProto`` with ``shapes`` in place of its own, and with what follows from them.

    Raises `ModelError`, `ShapeError` for sizes that contradict the model, `OSError`.
    """
    try:
        import onnx
    except ImportError as error:
        raise missing(ONNX, f"can't be imported: {error}") from error
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path))
    except DecodeError as error:
        raise ModelError(f"{path.name} is no ONNX model: {error}") from error
    except onnx.checker.ValidationError as error:  # external data where it must not be
        raise ModelError(f"{path.name}: {error}") from error
    if not model.graph.output:
        raise ModelError(f"{path.name} has no outputs")
    _fix(model.graph, shapes)
    return _inferred(model)


def signature(model: Any) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """Inputs without those that have a value already, and outputs."""
    valued = {each.name for each in model.graph.initializer}
    return (
        [_info(each) for each in model.graph.input if each.name not in valued],
        [_info(each) for each in model.graph.output],
    )


def _info(value: Any) -> TensorInfo:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise BackendError(f"{value.name!r} is a {kind}: IREE compiles models of tensors")
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(_size(each) for each in tensor.shape.dim)
    return TensorInfo(value.name, onnx_name(tensor.elem_type), shape)


def _size(dim: Any) -> Dimension:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) or None


def _fix(graph: Any, shapes: Mapping[str, tuple[Dimension, ...]]) -> None:
    """Write ``shapes`` into the inputs; a symbol that gets a size gets it everywhere."""
    inputs = {each.name: each.type.tensor_type for each in graph.input}
    fixed: dict[str, int] = {}
    for name, sizes in shapes.items():
        if name not in inputs:
            raise ShapeError(f"the model has no input {name!r}")
        _fix_input(name, inputs[name], sizes, fixed)
    for each in (*graph.input, *graph.output, *graph.value_info):
        for dim in each.type.tensor_type.shape.dim:
            if dim.dim_param in fixed:
                dim.dim_value = fixed[dim.dim_param]


def _fix_input(name: str, tensor: Any, sizes: tuple[Dimension, ...], fixed: dict[str, int]) -> None:
    """Write ``sizes`` into one input; what symbols became is added to ``fixed``."""
    if not tensor.HasField("shape"):
        tensor.shape.SetInParent()
        for _ in sizes:
            tensor.shape.dim.add()
    dims = tensor.shape.dim
    if len(dims) != len(sizes):
        raise ShapeError(
            f"input {name!r} has {len(dims)} axes in the model, {len(sizes)} were given"
        )
    for dim, size in zip(dims, sizes, strict=True):
        if not isinstance(size, int):
            continue
        own = _size(dim)
        known = fixed.setdefault(own, size) if isinstance(own, str) else own
        if known is not None and known != size:
            raise ShapeError(f"input {name!r}: {own!r} can't be {size} here")
        dim.dim_value = size


def _inferred(model: Any) -> Any:
    """``model`` with the shapes that follow, inferred without copying its large weights."""
    import onnx

    large = dict(_take_large(model.graph))
    try:
        found = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise ModelError(f"shapes can't be inferred: {error}") from error
    del model
    for index, data in large.items():
        weight = found.graph.initializer[index]
        weight.ClearField("data_location")
        weight.raw_data = data
    return found


def _take_large(graph: Any) -> Iterator[tuple[int, bytes]]:
    for index, weight in enumerate(graph.initializer):
        data = weight.raw_data  # a copy, each time
        if len(data) > _LARGE:
            yield index, data
            weight.ClearField("raw_data")
            weight.data_location = weight.EXTERNAL
