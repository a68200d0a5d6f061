"""What identifies OpenVINO: its package on disk, and the environment that it reads."""

from __future__ import annotations

from trivet.plans.environment import LOADER, Rules
from trivet.plans.installed import Package

PACKAGE = Package(
    module="openvino",
    distributions=("openvino", "openvino-nightly"),
    libraries=(
        "_pyopenvino*.so",
        "libs/libopenvino.so*",
        "libs/libopenvino_intel_cpu_plugin.so*",
        "libs/libopenvino_onnx_frontend.so*",
        "libs/libopenvino_ir_frontend.so*",
        "libs/libtbb.so*",
    ),
    extra="openvino",
)

_OUTPUT = "only writes logs, traces or profiles"
_MEMORY = "sizes an allocator or a cache of the process, not what is computed"

ENVIRONMENT = Rules(
    prefixes=(
        "OV_",
        "OPENVINO_",
        "ONEDNN_",
        "DNNL_",
        "TBB_",
        "OMP_",
        "KMP_",
        "GOMP_",
        "MKL_",
        "ONNX_",  # its ONNX front end has switches of its own
    ),
    names=LOADER,
    neutral={
        "OV_ENABLE_PROFILE_PASS": _OUTPUT,
        "OV_ENABLE_SERIALIZE_TRACING": _OUTPUT,
        "OV_ENABLE_VISUALIZE_TRACING": _OUTPUT,
        "OV_VISUALIZE_*": _OUTPUT,
        "OPENVINO_TRACE_DEPTH": _OUTPUT,
        "ONEDNN_ITT_TASK_LEVEL": _OUTPUT,
        "ONEDNN_JIT_DUMP": _OUTPUT,
        "ONEDNN_JIT_PROFILE": _OUTPUT,
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": _MEMORY,
        "ONEDNN_VERBOSE": _OUTPUT,
        "DNNL_ITT_TASK_LEVEL": _OUTPUT,
        "DNNL_JIT_DUMP": _OUTPUT,
        "DNNL_JIT_PROFILE": _OUTPUT,
        "DNNL_PRIMITIVE_CACHE_CAPACITY": _MEMORY,
        "DNNL_VERBOSE": _OUTPUT,
        "KMP_FOR_TCHECK": _OUTPUT,
        "KMP_FOR_TPROFILE": _OUTPUT,
        "OMP_DISPLAY_ENV": _OUTPUT,
        "TBB_MALLOC_*": _MEMORY,
        "TBB_VERSION": _OUTPUT,
    },
)
