"""Running what OpenVINO compiled: tensors in, tensors out, from any thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trivet.errors import BackendError, ShapeError
from trivet.plans.graph.dtypes import OPENVINO as _DTYPES
from trivet.plans.model import Dimension, TensorInfo

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

# What OpenVINO and NumPy store alike. OpenVINO hands out others in disguise (bfloat16 as float16
# with the same bits, four-bit integers packed), which would be wrong numbers to a caller.
_SHARED = (
    *("float16", "float32", "float64", "bool", "string"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)

# Mapped plans whose framework object was handed out. Requests made from that object read the
# mapping and nobody can tell when the last one goes, so these stay mapped until the process ends.
_pinned: list[object] = []


class OpenVinoExecutable:
    """A compiled model with a pool of infer requests; one is in use per running call.

    Args:
        runtime: the loaded extension module.
        compiled: its ``CompiledModel``.
        inputs, outputs: names by position, as callers use them.
        mapping: the memory that the compiled model reads its weights from; None when it has its
            own. OpenVINO keeps no reference to it.

    Raises `BackendError` for element types that can't be exchanged with NumPy.
    """

    def __init__(
        self,
        runtime: Any,
        compiled: Any,
        inputs: Sequence[str],
        outputs: Sequence[str],
        mapping: Array | None = None,
    ) -> None:
        # The order matters: attributes are released in this order, and what reads the mapping
        # must be gone before it is unmapped.
        self._idle: deque[Any] = deque()
        self._compiled = compiled
        self._mapping = mapping
        self._runtime = runtime
        self.inputs = tuple(map(_info, compiled.inputs, inputs))
        self.outputs = tuple(map(_info, compiled.outputs, outputs))
        self._aliases = {
            alias: position
            for position, port in enumerate(compiled.inputs)
            for alias in (*port.get_names(), inputs[position])
        }
        self._prepare = [_preparation(runtime, info) for info in self.inputs]

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """All outputs by name, in the model's order. The arrays returned are the caller's own.

        Inputs have exactly the model's element types: nothing is converted. An input with several
        names may be given by any of them. String outputs are arrays of Python strings.

        Raises `ShapeError` for missing, unknown or doubled inputs, other element types or shapes.
        """
        tensors = self._tensors(inputs)
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        for state in request.query_state():
            state.reset()  # variables of a stateful model belong to one call, not to the pool
        found = request.infer(tensors, False, True)
        # Only now: a request that raised may be left with tensors that no longer exist.
        self._idle.append(request)
        return {
            info.name: array.astype(object) if info.dtype == "string" else array
            for info, array in zip(self.outputs, found.values(), strict=True)
        }

    @property
    def native(self) -> Any:
        """An ``openvino.CompiledModel``. Imports the whole of OpenVINO, and keeps the plan mapped
        until the process ends."""
        import openvino

        if self._mapping is not None:
            _pinned.append(self._mapping)
        return openvino.CompiledModel(self._compiled)

    def _tensors(self, inputs: Arrays) -> dict[int, Any]:
        tensors = {}
        for name, array in inputs.items():
            position = self._aliases.get(name)
            if position is None or position in tensors:
                what = "no input of the model" if position is None else "given under two names"
                raise ShapeError(f"{name!r} is {what}", hint=f"the inputs are {self._names()}")
            tensors[position] = self._prepare[position](array)
        if len(tensors) < len(self.inputs):
            missing = [i.name for n, i in enumerate(self.inputs) if n not in tensors]
            raise ShapeError(
                f"inputs {missing} are missing", hint=f"the inputs are {self._names()}"
            )
        return tensors

    def _names(self) -> str:
        return ", ".join(repr(info.name) for info in self.inputs)


def _info(port: Any, name: str) -> TensorInfo:
    type_name = port.get_element_type().get_type_name()
    dtype = _DTYPES.get(type_name, type_name)
    if dtype not in _SHARED:
        raise BackendError(
            f"{name!r} has element type {dtype}, which NumPy does not have",
            hint="convert it inside the model, for example with a Cast to float32",
        )
    return TensorInfo(name=name, dtype=dtype, shape=_shape(port.get_partial_shape()))


def _shape(shape: Any) -> tuple[Dimension, ...] | None:
    if shape.rank.is_dynamic:
        return None
    return tuple(None if size.is_dynamic else size.get_length() for size in shape)


def _preparation(runtime: Any, info: TensorInfo) -> Callable[[Any], Any]:
    """What turns a caller's array into a tensor for this input."""
    import numpy as np

    def strings(array: Any) -> Any:
        given = np.asarray(array)
        if not all(isinstance(each, str) for each in given.flat):
            raise ShapeError(f"input {info.name!r} takes strings, got {given.dtype}")
        if any(each.endswith("\0") for each in given.flat):  # OpenVINO would cut it off
            raise ShapeError(f"input {info.name!r} has a string that ends with a NUL character")
        _check_shape(info, given.shape)
        return runtime.Tensor(given.astype(str))

    def numbers(array: Any) -> Any:
        given = np.asarray(array, order="C")
        if given.dtype != dtype:
            raise ShapeError(f"input {info.name!r} takes {dtype}, got {given.dtype}")
        _check_shape(info, given.shape)
        return runtime.Tensor(given, shared_memory=given.flags.writeable)

    if info.dtype == "string":
        return strings
    dtype = np.dtype(info.dtype)
    return numbers


def _check_shape(info: TensorInfo, given: tuple[int, ...]) -> None:
    wanted = info.shape
    if wanted is None:
        return
    if len(given) != len(wanted) or any(
        size is not None and size != mine for size, mine in zip(wanted, given, strict=True)
    ):
        raise ShapeError(f"input {info.name!r} has shape {wanted}, got {given}")
