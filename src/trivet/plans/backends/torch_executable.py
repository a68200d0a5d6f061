"""Running PyTorch programs: arrays in, arrays out, from any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trivet.errors import BackendError, ShapeError
from trivet.plans.model import Dimension, TensorInfo, shape_in_words

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

# What PyTorch and NumPy store alike.
_SHARED = (
    *("float16", "float32", "float64", "bool", "complex64", "complex128"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)

Bounds = Mapping[str, Sequence[int | None]]  # symbol: lowest and highest size, None for any


class TorchExecutable:
    """A plan or a model that takes and gives tensors.

    Args:
        torch: the module.
        call: takes the input tensors in order and gives the output tensors in order.
        native: what `native` is.
        inputs, outputs: names, types and shapes; a symbol stands for one size everywhere.
        bounds: of the symbols. A compiled plan checks nothing itself.

    Attributes:
        weights: tensors by name that the plan reads; they live as long as it does. None for a plan
            that has not been given any.

    Raises `BackendError` for element types that can't be exchanged with NumPy.
    """

    def __init__(
        self,
        torch: Any,
        call: Callable[[list[Any]], Sequence[Any]],
        native: Any,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        bounds: Bounds,
    ) -> None:
        for each in (*inputs, *outputs):
            if each.dtype not in _SHARED:
                raise BackendError(
                    f"{each.name!r} has element type {each.dtype}, which NumPy does not have",
                    hint="convert it inside the model, for example with .float()",
                )
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.weights: Mapping[str, Any] | None = None
        self._torch = torch
        self._call = call
        self._native = native
        self._bounds = bounds

    @property
    def native(self) -> Any:
        """The runner of a plan's library; the module of an uncompiled model."""
        return self._native

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """All outputs by name. The arrays returned are the caller's own.

        Inputs have exactly the model's element types: nothing is converted. Raises `ShapeError` for
        missing or unknown inputs, other element types, and sizes that the program does not take.
        """
        import numpy as np

        if self.weights is None:
            raise BackendError("the plan has no weights yet")
        found = self._call([self._torch.from_numpy(each) for each in self._checked(inputs)])
        # Copies, since an output may be an input, a weight, or a view of another output.
        return {
            info.name: np.array(_plain(tensor).numpy(), order="C")
            for info, tensor in zip(self.outputs, found, strict=True)
        }

    def _checked(self, inputs: Arrays) -> list[Array]:
        import numpy as np

        names = [each.name for each in self.inputs]
        if inputs.keys() != set(names):
            wrong = sorted(set(names) ^ inputs.keys())
            raise ShapeError(f"{wrong} are missing or no inputs", hint=f"the inputs are {names}")
        arrays, sizes = [], dict[str, int]()
        for info in self.inputs:
            array = np.asarray(inputs[info.name], order="C")
            if array.dtype != np.dtype(info.dtype):
                raise ShapeError(f"input {info.name!r} takes {info.dtype}, got {array.dtype}")
            self._check_shape(info, array.shape, sizes)
            # A tensor can't be told not to be written; and an array in a caller's mapping may be.
            arrays.append(array if array.flags.writeable else array.copy())
        return arrays

    def _check_shape(self, info: TensorInfo, given: tuple[int, ...], sizes: dict[str, int]) -> None:
        wanted = info.shape or ()
        fits = len(given) == len(wanted) and all(
            self._fits(dim, size, sizes) for dim, size in zip(wanted, given, strict=True)
        )
        if not fits:
            raise ShapeError(
                f"input {info.name!r} is {shape_in_words(wanted)}{self._in_words(wanted)}, "
                f"got {shape_in_words(given)}"
            )

    def _fits(self, wanted: Dimension, size: int, sizes: dict[str, int]) -> bool:
        if not isinstance(wanted, str):
            return wanted is None or wanted == size
        low, high = self._bounds.get(wanted, (None, None))
        if (low is not None and size < low) or (high is not None and size > high):
            return False
        return sizes.setdefault(wanted, size) == size

    def _in_words(self, shape: Sequence[Dimension]) -> str:
        known = [each for each in shape if isinstance(each, str) and each in self._bounds]
        told = [f"{each} from {self._bounds[each][0]} to {self._bounds[each][1]}" for each in known]
        return f" ({', '.join(told)})" if told else ""


def _plain(tensor: Any) -> Any:
    """Without a gradient, and with what PyTorch only notes (conjugate, negative) carried out."""
    return tensor.detach().resolve_conj().resolve_neg()
