"""Running what TensorRT built: arrays in, arrays out, from any thread."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trivet.errors import BackendError
from trivet.plans.backends.inputs import check_inputs, wanted
from trivet.plans.facts.tensorrt import PACKAGE
from trivet.plans.installed import missing
from trivet.plans.model import TensorInfo

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

PLAN_FILE = "plan.engine"
# What TensorRT and NumPy both have.
DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "UINT8": "uint8",
}


def load_tensorrt() -> Any:
    """The module ``tensorrt``. Raises `MissingExtra` when it can't be imported."""
    try:
        import tensorrt
    except ImportError as error:
        raise missing(PACKAGE, f"can't be imported: {error}") from error
    return tensorrt


def load_cuda() -> Any:
    """The module ``cuda.bindings.runtime``, NVIDIA's own. Raises `MissingExtra`."""
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        raise missing(PACKAGE, f"needs cuda-bindings to run: {error}") from error
    return runtime


def load_plugins(trt: Any, logger: Any, paths: Sequence[str]) -> None:
    """Those that come with TensorRT, and the caller's."""
    trt.init_libnvinfer_plugins(logger, "")
    for path in paths:
        trt.get_plugin_registry().load_library(path)


class TensorRtExecutable:
    """An engine with memory on the GPU for one run; runs of several threads wait for each other.

    Args:
        engine: a buffer that holds the engine.
        inputs, outputs: with all their sizes.
        plugins: libraries that the engine needs.

    Raises `BackendError` when TensorRT refuses the engine, and `MemoryError`.
    """

    def __init__(
        self,
        engine: Any,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        plugins: Sequence[str] = (),
    ) -> None:
        trt, self._cuda = load_tensorrt(), load_cuda()
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._wanted = wanted(inputs)
        self._lock = threading.Lock()
        self._logger = trt.Logger(trt.Logger.ERROR)
        load_plugins(trt, self._logger, plugins)
        self._runtime = on_the_gpu(trt.Runtime, self._logger)
        self._engine = self._runtime.deserialize_cuda_engine(engine)
        if self._engine is None:
            raise BackendError("TensorRT refuses the engine: it was built for another GPU or build")
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise MemoryError("the GPU has no memory for the engine's activations")
        self._stream = self._ask("cudaStreamCreate")
        self._memory = {each.name: self._allocate(each) for each in (*self.inputs, *self.outputs)}
        for each in self.inputs:
            if not self._context.set_input_shape(each.name, each.shape):
                raise BackendError(f"the engine does not take {each.name!r} as {each.shape}")
        for name, address in self._memory.items():
            self._context.set_tensor_address(name, address)

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """All outputs by name. The arrays returned are the caller's own.

        Raises `ShapeError` for inputs that don't fit, and `BackendError` when the GPU fails.
        """
        import numpy as np

        given = check_inputs(inputs, self._wanted)
        found = {each.name: np.empty(_sizes(each), np.dtype(each.dtype)) for each in self.outputs}
        kinds = self._cuda.cudaMemcpyKind
        with self._lock:
            for name, array in zip(self._wanted, given, strict=True):
                self._copy(
                    self._memory[name], array.ctypes.data, array, kinds.cudaMemcpyHostToDevice
                )
            started = self._context.execute_async_v3(int(self._stream))
            if started:
                for name, array in found.items():
                    self._copy(
                        array.ctypes.data, self._memory[name], array, kinds.cudaMemcpyDeviceToHost
                    )
            self._ask("cudaStreamSynchronize", self._stream)
        if not started:
            raise BackendError("TensorRT could not start the run")
        return found

    @property
    def native(self) -> Any:
        """The ``tensorrt.ICudaEngine``."""
        return self._engine

    def _copy(self, target: int, source: int, array: Array, kind: Any) -> None:
        self._ask("cudaMemcpyAsync", target, source, array.nbytes, kind, self._stream)

    def _allocate(self, tensor: TensorInfo) -> int:
        import numpy as np

        size = int(np.prod(_sizes(tensor), dtype=np.int64)) * np.dtype(tensor.dtype).itemsize
        address = int(self._ask("cudaMalloc", max(size, 1)))
        weakref.finalize(self, self._cuda.cudaFree, address).atexit = False
        return address

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call CUDA's runtime, which gives an error first and then what was asked for."""
        error, *found = getattr(self._cuda, function)(*arguments)
        if error == self._cuda.cudaError_t.cudaSuccess:
            return found[0] if found else None
        if error == self._cuda.cudaError_t.cudaErrorMemoryAllocation:
            raise MemoryError("the GPU has no memory left")
        raise BackendError(f"{function} failed: {error.name}")


def on_the_gpu(kind: Any, logger: Any) -> Any:
    """A builder or a runtime. Raises OSError where CUDA can't be started."""
    try:
        return kind(logger)
    except TypeError as error:  # what the bindings make of no object
        raise OSError(f"TensorRT finds no GPU that it can use: {error}") from error


def _sizes(tensor: TensorInfo) -> tuple[int, ...]:
    sizes = tuple(each for each in tensor.shape or () if isinstance(each, int))
    assert tensor.shape is not None
    assert len(sizes) == len(tensor.shape)
    return sizes
