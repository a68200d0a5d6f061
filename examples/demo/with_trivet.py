"""The Trivet side of the comparison: all that a server needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from examples.demo.jobs import Array

Run = Callable[[dict[str, Array]], dict[str, Array]]


def load_with_trivet(
    backend: str, shapes: str, model: Path, folder: Path, threads: int
) -> tuple[Run, bool]:
    """Something that answers, and whether this process compiled it."""
    from trivet import Cache
    from trivet.plans import Plans, Shapes
    from trivet.plans.backends import OnnxRuntime, OpenVino

    kinds = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}
    plans = Plans(Cache.open(folder), kinds[backend](threads=threads))
    plan = plans.load(model, Shapes(shapes))
    return plan.run, plan.source != "cache"
