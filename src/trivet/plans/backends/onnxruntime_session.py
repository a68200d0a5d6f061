"""ONNX Runtime sessions as executables: arrays in, arrays out, from any thread."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trivet.errors import BackendError, ShapeError
from trivet.plans.backends.onnxruntime_options import LEVELS, Options
from trivet.plans.facts.onnxruntime import PACKAGE
from trivet.plans.graph.dtypes import ONNX
from trivet.plans.installed import missing
from trivet.plans.model import Dimension, TensorInfo

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

_TENSOR = re.compile(r"tensor\((\w+)\)")
_OUT_OF_MEMORY = r"bad_alloc|cannot allocate memory|failed to allocate"
_ERRORS_ONLY = 3  # log severity

# ONNX Runtime's names of element types, where they are not NumPy's or those of `TensorInfo`.
_RENAMED = {"float": "float32", "double": "float64"}
_BY_SQUEEZED_NAME = {each.name.replace("_", ""): each.name for each in ONNX.values()}


def load_runtime() -> Any:
    """The module ``onnxruntime``. Raises `MissingExtra` when it can't be imported."""
    try:
        import onnxruntime
    except ImportError as error:
        raise missing(PACKAGE, f"can't be imported: {error}") from error
    return onnxruntime


def session_options(runtime: Any, options: Options, level: str) -> Any:
    """``SessionOptions`` as the backend's options say, at an optimisation level of their names."""
    made = runtime.SessionOptions()
    made.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, LEVELS[level])
    made.log_severity_level = _ERRORS_ONLY
    made.intra_op_num_threads = options.threads or 0
    if options.inter_op_threads is not None:
        # Without the parallel mode the number of threads between operators has no effect.
        made.execution_mode = runtime.ExecutionMode.ORT_PARALLEL
        made.inter_op_num_threads = options.inter_op_threads
    for key, value in options.entries.items():
        made.add_session_config_entry(key, value)
    for path in options.custom_op_libraries:
        made.register_custom_ops_library(path)
    return made


def open_session(runtime: Any, model: Path, made: Any, options: Options) -> Any:
    """An ``InferenceSession``. What ONNX Runtime can't get memory for is a `MemoryError`.

    Another provider than the ones asked for is never taken silently.
    """
    available = runtime.get_available_providers()
    missing = [name for name, _ in options.providers if name not in available]
    if missing:
        raise BackendError(
            f"the installed ONNX Runtime has no {', '.join(missing)}",
            hint=f"it has {', '.join(available)}",
        )
    with _memory_errors(runtime):
        return runtime.InferenceSession(
            str(model),
            made,
            providers=list(options.providers),
            disabled_optimizers=options.disabled_optimizers,
            enable_fallback=0,
        )


@contextmanager
def _memory_errors(runtime: Any) -> Iterator[None]:
    """Raise `MemoryError` where ONNX Runtime says in its own words that memory ran out."""
    try:
        yield
    except _error_classes(runtime) as error:
        if re.search(_OUT_OF_MEMORY, str(error), re.IGNORECASE):
            raise MemoryError(str(error)) from error
        raise


def _error_classes(runtime: Any) -> tuple[type[Exception], ...]:
    """Every exception class of ONNX Runtime; they have no common base of their own."""
    module = runtime.capi.onnxruntime_pybind11_state
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ]
    return (*found, RuntimeError)


class OrtExecutable:
    """A session and the checks that make its errors clear.

    Args:
        session: an ``onnxruntime.InferenceSession``.
        scalars: inputs and outputs known to have no axes. ONNX Runtime reports these like ones of
            unknown rank.
    """

    def __init__(self, session: Any, scalars: Collection[str] = ()) -> None:
        import numpy as np

        self._session = session
        self.inputs = tuple(_info(each, scalars) for each in session.get_inputs())
        self.outputs = tuple(_info(each, scalars) for each in session.get_outputs())
        # Defaults of a model that its callers may replace.
        extra = [_info(each, scalars) for each in session.get_overridable_initializers()]
        self._expected = {
            each.name: (_numpy_type(np, each.dtype), each) for each in (*self.inputs, *extra)
        }
        self._required = {each.name for each in self.inputs if each.dtype != "optional"}
        self._output_names = [each.name for each in self.outputs]

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """All outputs by name, in the model's order. The arrays returned are the caller's own.

        Inputs have exactly the model's element types: nothing is converted. Strings are arrays of
        Python strings. Sequences and maps come and go as lists and dicts, as in ONNX Runtime.

        Raises `ShapeError` for missing or unknown inputs and for other element types or shapes.
        """
        for name, array in inputs.items():
            expected = self._expected.get(name)
            if expected is None:
                self._refuse(f"{name!r} is no input of the model")
            self._check(array, *expected)
        if not self._required <= inputs.keys():
            self._refuse(f"inputs {sorted(self._required - inputs.keys())} are missing")
        found = self._session.run(self._output_names, inputs)
        return dict(zip(self._output_names, found, strict=True))

    @property
    def native(self) -> Any:
        """The ``onnxruntime.InferenceSession``."""
        return self._session

    def _check(self, array: Any, dtype: Any, info: TensorInfo) -> None:
        if dtype is None:  # no NumPy type: ONNX Runtime's own check has to do
            return
        found = getattr(array, "dtype", None)
        if found is None:
            self._refuse(f"input {info.name!r} is an array, got {type(array).__name__}")
        if found != dtype and not (info.dtype == "string" and found.kind in "US"):
            self._refuse(f"input {info.name!r} has elements of {info.dtype}, got {found}")
        if info.shape is None:
            return
        shape = array.shape
        if len(shape) != len(info.shape) or any(
            isinstance(wanted, int) and wanted != size
            for wanted, size in zip(info.shape, shape, strict=True)
        ):
            self._refuse(f"input {info.name!r} has shape {_text(info.shape)}, got {_text(shape)}")

    def _refuse(self, what: str) -> NoReturn:
        raise ShapeError(what, hint=f"the inputs are {', '.join(map(repr, self._expected))}")


def _text(shape: tuple[Dimension, ...]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _info(argument: Any, scalars: Collection[str]) -> TensorInfo:
    tensor = _TENSOR.fullmatch(argument.type)
    if tensor is None:
        kind = argument.type.partition("(")[0]
        return TensorInfo(argument.name, "sequence" if kind == "seq" else kind, None)
    element = tensor.group(1)
    dtype = _RENAMED.get(element) or _BY_SQUEEZED_NAME.get(element, element)
    shape = tuple(size if size != "" else None for size in argument.shape)
    known = shape or argument.name in scalars
    return TensorInfo(argument.name, dtype, shape if known else None)


def _numpy_type(np: Any, dtype: str) -> Any:
    if dtype == "string":
        return np.dtype(object)
    try:
        return np.dtype(dtype)
    except TypeError:
        return None
