"""A model without a kept plan: built for each set of sizes that it is run with, and not kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trivet.plans.backends.inputs import check_inputs, wanted
from trivet.plans.backends.tensorrt_executable import TensorRtExecutable
from trivet.plans.graph import identify
from trivet.plans.model import Dimension

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

Build = Callable[[Mapping[str, tuple[Dimension, ...]]], TensorRtExecutable]


class BuiltForEachSize:
    """TensorRT runs nothing that it did not build.

    Args:
        model: an ONNX file, whose free axes take any size.
        shapes: sizes that are known already, by input.
        build: builds for sizes of all inputs.
    """

    def __init__(
        self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]], build: Build
    ) -> None:
        graph = identify(model)
        self.inputs = tuple(
            msgspec.structs.replace(each, shape=shapes.get(each.name, each.shape))
            for each in graph.inputs
        )
        self.outputs = graph.outputs
        self._wanted = wanted(self.inputs)
        self._build = build
        self._built: dict[tuple[tuple[int, ...], ...], TensorRtExecutable] = {}
        self._lock = threading.Lock()

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """All outputs by name. The first run with new sizes takes as long as compiling."""
        given = check_inputs(inputs, self._wanted)
        sizes = tuple(each.shape for each in given)
        with self._lock:
            if sizes not in self._built:
                self._built[sizes] = self._build(dict(zip(self._wanted, sizes, strict=True)))
        return self._built[sizes].run(inputs)

    @property
    def native(self) -> Any:
        """Engines by the sizes of their inputs."""
        return {sizes: each.native for sizes, each in self._built.items()}
