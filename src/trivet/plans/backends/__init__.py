"""The backends that come with Trivet. Each imports its framework only when it has to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily

if TYPE_CHECKING:
    from trivet.plans.backends.iree import Iree
    from trivet.plans.backends.jax import Jax
    from trivet.plans.backends.onnxruntime import OnnxRuntime
    from trivet.plans.backends.openvino import OpenVino
    from trivet.plans.backends.tensorrt import TensorRt
    from trivet.plans.backends.torch import Torch
    from trivet.plans.backends.triton import TritonKernels

__getattr__ = lazily(
    __name__,
    {
        "Iree": "iree",
        "Jax": "jax",
        "OnnxRuntime": "onnxruntime",
        "OpenVino": "openvino",
        "TensorRt": "tensorrt",
        "Torch": "torch",
        "TritonKernels": "triton",
    },
)

__all__ = ["Iree", "Jax", "OnnxRuntime", "OpenVino", "TensorRt", "Torch", "TritonKernels"]
