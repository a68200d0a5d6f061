"""The plain data that plans pass around: tensors, graph identity, source files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]
    Arrays: TypeAlias = Mapping[str, Array]

Dimension: TypeAlias = int | str | None  # a size, a symbol, or unknown


def shape_in_words(shape: Sequence[Dimension] | None) -> str:
    """A shape as rules write it, such as ``8x3x?``; else ``scalar`` or ``any rank``."""
    if shape is None:
        return "any rank"
    return "x".join("?" if size is None else str(size) for size in shape) or "scalar"


def shapes_in_words(shapes: Mapping[str, Sequence[Dimension] | None]) -> str:
    """Shapes by name, such as ``x=8x3x224x224``."""
    return " ".join(f"{name}={shape_in_words(shape)}" for name, shape in shapes.items())


def backend_in_words(name: str, version: str) -> str:
    """A backend and its version; versions of wheels begin with the wheel's own name."""
    return version if version.startswith(name) else f"{name} {version}"


class TensorInfo(msgspec.Struct, frozen=True):
    """One input or output of a graph.

    ``dtype`` is NumPy's name (``"float32"``, ``"int64"``) or the format's own lower-case name where
    NumPy has none (``"bfloat16"``, ``"string"``). ``shape`` is None when the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[Dimension, ...] | None


class SourceFile(msgspec.Struct, frozen=True):
    """A file that was read to identify a graph, as ``stat`` saw it. Times are in nanoseconds."""

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class GraphId(msgspec.Struct, frozen=True, kw_only=True):
    """What a model file computes, apart from how it is written down.

    Attributes:
        format: ``"onnx"``, ``"openvino-ir"``, ``"jax-export"`` or ``"torch-export"``.
        structure: BLAKE3 over topology, operators, attributes, names and types of inputs and
            outputs, and types and shapes of the weights.
        weights: BLAKE3 over the weights' contents, external files included.
        metadata: BLAKE3 over what neither computes nor names anything (documentation, producer,
            custom properties). Not part of a plan's key.
        inputs, outputs: in the model's order.
        operators: sorted distinct operators as ``"domain::type"``.
        sources: every file that was read, as it was before the first byte was read.
    """

    format: str
    structure: bytes
    weights: bytes
    metadata: bytes
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: tuple[str, ...]
    sources: tuple[SourceFile, ...]
