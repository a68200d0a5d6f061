"""What identifies ONNX Runtime: its package on disk, and the environment that it reads."""

from __future__ import annotations

from trivet.plans.environment import LOADER, Rules
from trivet.plans.installed import Package

PACKAGE = Package(
    module="onnxruntime",
    distributions=(
        "onnxruntime",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-directml",
        "onnxruntime-qnn",
        "onnxruntime-training",
        "ort-nightly",
    ),
    libraries=("capi/onnxruntime_pybind11_state*.so", "capi/libonnxruntime*.so*"),
    extra="onnxruntime",
)

_OUTPUT = "only writes logs, traces or profiles"

ENVIRONMENT = Rules(
    prefixes=("ORT_", "ONNXRUNTIME_", "MLAS_", "OMP_", "KMP_", "GOMP_", "MKL_", "ONEDNN_", "DNNL_"),
    names=("ALLOW_RELEASED_ONNX_OPSET_ONLY", *LOADER),
    neutral={
        "ORT_DISABLE_TELEMETRY": "only switches telemetry off",
        "ORT_DEFAULT_MAX_VLOG_LEVEL": _OUTPUT,
        "OMP_NUM_THREADS": "not read: built without OpenMP since 1.7; a plan holds a graph and no "
        "division of work",
        "OMP_DISPLAY_ENV": _OUTPUT,
        "ONEDNN_VERBOSE": _OUTPUT,
        "DNNL_VERBOSE": _OUTPUT,
    },
)
