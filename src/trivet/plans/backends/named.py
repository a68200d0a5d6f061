"""Backends by their names: what files and command lines say instead of a class."""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.errors import BackendError

if TYPE_CHECKING:
    from trivet.plans.backend import Backend


class BackendName(enum.StrEnum):
    """The backends that come with the package."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"
    IREE = "iree"
    JAX = "jax"
    TENSORRT = "tensorrt"
    TORCH = "torch"


_CLASSES = {
    BackendName.ONNXRUNTIME: "OnnxRuntime",
    BackendName.OPENVINO: "OpenVino",
    BackendName.IREE: "Iree",
    BackendName.JAX: "Jax",
    BackendName.TENSORRT: "TensorRt",
    BackendName.TORCH: "Torch",
}
_BY_SUFFIX = {
    ".xml": BackendName.OPENVINO,
    ".jaxexport": BackendName.JAX,
    ".pt2": BackendName.TORCH,
}


def default_backend(model: Path) -> BackendName:
    """The one that is meant where none is named, by the file's suffix."""
    return _BY_SUFFIX.get(model.suffix, BackendName.ONNXRUNTIME)


def make_backend(model: Path, name: BackendName | None, options: Mapping[str, Any]) -> Backend:
    """The backend for ``model``.

    An option with the name of one of the backend's own parameters sets that, lists separated by
    commas; all others are handed to the framework as they are.

    Raises `BackendError` when an option can't be what it is said to be, or the backend has none
    of its name.
    """
    from trivet.plans import backends

    name = name or default_backend(model)
    kind = getattr(backends, _CLASSES[name])
    parameters = inspect.signature(kind, eval_str=True).parameters
    own: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for option, value in options.items():
        if option in parameters and option != "options":
            own[option] = _converted(option, value, parameters[option].annotation)
        else:
            others[option] = value
    if "options" in parameters:
        own["options"] = others
    elif others:
        known = ", ".join(parameters)
        raise BackendError(f"{name} has no option {min(others)}", hint=f"its options are {known}")
    made: Backend = kind(**own)
    return made


def _converted(name: str, value: Any, kind: Any) -> Any:
    if isinstance(value, str) and typing.get_origin(kind) is Sequence:
        value = value.split(",")
    import msgspec  # most commands need none

    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BackendError(f"the option {name} can't be {value!r}: {error}") from error
