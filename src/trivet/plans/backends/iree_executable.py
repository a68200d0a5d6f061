"""Running what IREE compiled: arrays in, arrays out, from any thread."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trivet.errors import BackendError
from trivet.plans.backends.forks import Threads
from trivet.plans.backends.inputs import check_inputs, wanted
from trivet.plans.facts.iree import PACKAGE
from trivet.plans.installed import missing
from trivet.plans.model import TensorInfo

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

FUNCTION = "main"
PLAN_FILE = "plan.vmfb"
# What IREE and NumPy both have. It computes unsigned integers as integers without a sign.
DTYPES = (
    *("float16", "float32", "float64", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)

_devices: dict[tuple[int, str], tuple[Any, Any]] = {}
_lock = threading.Lock()
_threads = Threads("IREE")


def load_runtime() -> Any:
    """The module ``iree.runtime``. Raises `MissingExtra` when it can't be imported."""
    try:
        import iree.runtime
    except ImportError as error:
        raise missing(PACKAGE, f"can't be imported: {error}") from error
    return iree.runtime


def open_device(name: str) -> tuple[Any, Any]:
    """The VM instance and the device that this process runs everything of one kind on.

    Raises as `Threads.require`; ``local-sync`` has no threads, and a child has its own.
    """
    _require_threads(name)
    key = os.getpid(), name
    with _lock:
        if key not in _devices:
            runtime = load_runtime()
            _devices[key] = runtime.VmInstance(), runtime.get_driver(name).create_default_device()
        return _devices[key]


def _require_threads(device: str) -> None:
    if device != "local-sync":
        _threads.require()


def refuse_types(tensors: Sequence[TensorInfo]) -> None:
    """Raise `BackendError` for element types that can't be exchanged with NumPy."""
    for each in tensors:
        if each.dtype not in DTYPES:
            raise BackendError(
                f"{each.name!r} has element type {each.dtype}, which can't be exchanged with NumPy",
                hint="convert it inside the model, for example with a Cast to float32",
            )


class IreeExecutable:
    """A compiled module with a pool of contexts; one is in use per running call.

    Args:
        device: name of the device, as in `open_device`.
        open_module: makes the ``VmModule`` in a VM instance.
        inputs, outputs: of the module's function, in its order.

    Raises `BackendError` when the module is not one of this backend.
    """

    def __init__(
        self,
        device: str,
        open_module: Callable[[Any], Any],
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
    ) -> None:
        import numpy as np

        self._runtime = load_runtime()
        self._device_name = device
        self._instance, self._device = open_device(device)
        self._hal = self._runtime.create_hal_module(self._instance, self._device)
        self._module = open_module(self._instance)
        if FUNCTION not in self._module.function_names:
            raise BackendError(f"the module has no function {FUNCTION!r}")
        self._function = self._module.lookup_function(FUNCTION)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._wanted = wanted(inputs)
        self._results = [(each.name, np.dtype(each.dtype)) for each in outputs]
        self._idle: deque[Any] = deque([self._invoker()])

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """All outputs by name, in the model's order. The arrays returned are the caller's own.

        Inputs have exactly the model's element types: nothing is converted.

        Raises `ShapeError` for missing or unknown inputs and for other element types or shapes.
        """
        given = check_inputs(inputs, self._wanted)
        _require_threads(self._device_name)
        try:
            invoker = self._idle.pop()
        except IndexError:
            invoker = self._invoker()
        found = invoker(*given)
        self._idle.append(invoker)
        results = found if isinstance(found, tuple) else (found,)
        # Copied: arrays of IREE live in the device's memory, and one that outlives the device
        # brings the process down when it ends.
        return {
            name: _as(each.to_host(), dtype)
            for (name, dtype), each in zip(self._results, results, strict=True)
        }

    @property
    def native(self) -> Any:
        """The ``iree.runtime.VmModule``."""
        return self._module

    def _invoker(self) -> Any:
        context = self._runtime.VmContext(self._instance, [self._hal, self._module])
        return self._runtime.FunctionInvoker(context, self._device, self._function)


def _as(array: Array, dtype: Any) -> Array:
    """A copy of ``array``; its bytes are those of ``dtype``, whatever sign IREE gave them."""
    if array.dtype == dtype:
        return array.copy()
    if array.dtype.itemsize != dtype.itemsize or {array.dtype.kind, dtype.kind} > {"i", "u", "b"}:
        raise BackendError(f"IREE gave {array.dtype} where the model has {dtype}")
    return array.copy().view(dtype)
