"""The backends that come with Trivet. Each imports its framework only when it has to."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trivet.plans.backends.onnxruntime import OnnxRuntime
    from trivet.plans.backends.openvino import OpenVino

_MODULES = {
    "OnnxRuntime": "trivet.plans.backends.onnxruntime",
    "OpenVino": "trivet.plans.backends.openvino",
}

__all__ = ["OnnxRuntime", "OpenVino"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
