"""Programs of ``jax.export`` in JAX: read, compiled, run from any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.errors import BackendError, ModelError, ShapeError
from trivet.plans.backends.forks import Threads
from trivet.plans.backends.inputs import check_inputs, wanted
from trivet.plans.facts.jax import PACKAGE
from trivet.plans.graph import identify
from trivet.plans.installed import missing
from trivet.plans.model import Dimension, TensorInfo

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

PLAN_FILE = "plan.xla"
# What NumPy has, with ml_dtypes, which comes with JAX.
_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
    *("float8_e4m3fn", "float8_e5m2"),
)
_threads = Threads("JAX")


def load_jax() -> Any:
    """The module ``jax``. Raises `MissingExtra` when it can't be imported."""
    try:
        import flatbuffers  # noqa: F401  which jax.export needs and does not require
        import jax
        import jax.export
    except ImportError as error:
        raise missing(PACKAGE, f"can't be imported: {error}") from error
    return jax


def cpu_device() -> Any:
    """The device on which plans run. Raises `BackendError` where JAX was told to leave it out, and
    as `Threads.require`."""
    jax = load_jax()
    _threads.require()
    try:
        return jax.devices("cpu")[0]
    except RuntimeError as error:
        raise BackendError(
            f"JAX has no CPU here: {error}", hint="add cpu to JAX_PLATFORMS, or unset it"
        ) from error


def prepare_lapack(program: bytes) -> None:
    """Have LAPACK's functions at hand where ``program`` calls them. Raises `MissingExtra`.

    JAX loads them when it lowers such a call itself; else the process jumps to nowhere.
    """
    if b"lapack_" in program:
        import numpy as np

        try:
            from jaxlib import lapack

            prepare: Any = lapack.prepare_lapack_call
            prepare("potrf_ffi", np.dtype(np.float32))
        except ImportError as error:  # it is SciPy's
            raise missing(PACKAGE, f"can't load LAPACK: {error}") from error


class Program:
    """An exported program as a function of flat arrays.

    Attributes:
        inputs, outputs: as exported, with names as in `trivet.plans.graph`.
        call: takes arrays in the order of ``inputs``, gives a list in that of ``outputs``.

    Raises `ModelError` for a file that is none, `BackendError` for a program that is not for one
    CPU, has side effects, or exchanges types that NumPy does not have.
    """

    def __init__(self, path: Path) -> None:
        jax = load_jax()
        graph = identify(path)  # refuses what is malformed, which JAX does not
        try:
            raw = path.read_bytes()
            exported = jax.export.deserialize(bytearray(raw))
        except (OSError, MemoryError):
            raise
        except Exception as error:
            raise ModelError(f"JAX can't read {path.name}: {error}") from error
        prepare_lapack(raw)
        if "cpu" not in exported.platforms:
            raise BackendError(
                f"the program was exported for {', '.join(exported.platforms)}",
                hint="export it with platforms=['cpu']",
            )
        if exported.nr_devices != 1:
            raise BackendError(f"the program is for {exported.nr_devices} devices")
        if exported.ordered_effects or exported.unordered_effects:
            raise BackendError("the program has side effects, which a plan can't have")
        for each in (*graph.inputs, *graph.outputs):
            if each.dtype not in _DTYPES:
                raise BackendError(
                    f"{each.name!r} has element type {each.dtype}, which NumPy does not have"
                )
        self.inputs, self.outputs = graph.inputs, graph.outputs

        def call(*leaves: Any) -> list[Any]:
            args, kwargs = jax.tree_util.tree_unflatten(exported.in_tree, leaves)
            return list(jax.tree_util.tree_leaves(exported.call(*args, **kwargs)))

        self.call = call

    def sized(self, shapes: Mapping[str, tuple[Dimension, ...]]) -> tuple[TensorInfo, ...]:
        """Inputs with ``shapes`` in place of their own.

        Raises `ShapeError` for a shape that contradicts the program, `BackendError` for axes that
        are left without a size: XLA compiles for sizes.
        """
        unknown = shapes.keys() - {each.name for each in self.inputs}
        if unknown:
            raise ShapeError(f"the model has no input {min(unknown)!r}")
        sizes: dict[str, int] = {}
        return tuple(_sized(each, shapes.get(each.name), sizes) for each in self.inputs)


def _sized(
    info: TensorInfo, shape: tuple[Dimension, ...] | None, sizes: dict[str, int]
) -> TensorInfo:
    own = info.shape or ()
    given = own if shape is None else shape
    if len(given) != len(own):
        raise ShapeError(f"input {info.name!r} has {len(own)} axes, {len(given)} were given")
    for mine, size in zip(own, given, strict=True):
        if not isinstance(size, int):
            raise BackendError(
                f"axis {mine!r} of {info.name!r} has no size, and XLA compiles for sizes",
                hint="give sizes or buckets, such as Shapes('arg0=N{1,8}x128')",
            )
        if (sizes.setdefault(mine, size) if isinstance(mine, str) else mine) != size:
            raise ShapeError(f"input {info.name!r}: {mine!r} can't be {size} here")
    return TensorInfo(info.name, info.dtype, given)


def executes(executable: Any, outputs: int) -> Callable[[list[Any]], Sequence[Any]]:
    """An executable of XLA as a function of JAX arrays."""

    def execute(arrays: list[Any]) -> Sequence[Any]:
        found = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
        assert len(found) == outputs
        return [each for (each,) in found]

    return execute


class JaxExecutable:
    """A function of JAX arrays on the CPU, and the checks that make its errors clear.

    Args:
        execute: takes JAX arrays in the order of ``inputs``, gives them in that of ``outputs``.
        native: the framework's own object.
    """

    def __init__(
        self,
        execute: Callable[[list[Any]], Sequence[Any]],
        native: Any,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
    ) -> None:
        self._jax = load_jax()
        self._device = cpu_device()
        self._execute = execute
        self._native = native
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._wanted = wanted(inputs)

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """All outputs by name, in the program's order. The arrays returned are the caller's own.

        Inputs have exactly the program's element types: nothing is converted.

        Raises `ShapeError` for missing or unknown inputs and for other element types or shapes.
        """
        import numpy as np

        given = check_inputs(inputs, self._wanted)
        _threads.require()
        with self._jax.enable_x64(True):  # else numbers of 64 bits are cut on their way in
            arrays = [self._jax.device_put(each, self._device) for each in given]
            found = self._execute(arrays)
            # Waits for the results, and for the last look at the caller's arrays.
            return {
                info.name: np.array(each) for info, each in zip(self.outputs, found, strict=True)
            }

    @property
    def native(self) -> Any:
        """The loaded executable of XLA, or the jitted function of a model that is not compiled."""
        return self._native
