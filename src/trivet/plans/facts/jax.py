"""What identifies JAX: its packages on disk, and the environment that they read."""

from __future__ import annotations

from trivet.plans.environment import LOADER, Rules
from trivet.plans.installed import Package

# XLA, which compiles. JAX itself is Python alone.
PACKAGE = Package(
    module="jaxlib",
    distributions=("jaxlib",),
    libraries=("libjax_common.so*", "_jax*.so", "_xla*.so"),
    extra="jax",
)
FRONT = Package(module="jax", distributions=("jax",), libraries=(), extra="jax")

_OUTPUT = "only writes logs, traces or profiles"
_CACHE = "JAX's own cache is switched off where plans are compiled"

# What the compiler's process is told, whatever the environment says.
FORCED = {
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "JAX_ENABLE_X64": "true",  # else numbers of 64 bits are cut; a program's own types stay
}

ENVIRONMENT = Rules(
    prefixes=(
        *("JAX_", "XLA_", "PJRT_", "TF_", "TSL_", "LIBTPU_"),
        *("ONEDNN_", "DNNL_", "OMP_", "KMP_", "MKL_"),
    ),
    names=("NPROC", *LOADER),
    neutral={
        "JAX_PLATFORMS": "plans are compiled for the CPU, and say so",
        "JAX_PLATFORM_NAME": "plans are compiled for the CPU, and say so",
        "JAX_ENABLE_X64": "always set where plans are compiled",
        "JAX_ENABLE_COMPILATION_CACHE": _CACHE,
        "JAX_COMPILATION_CACHE_*": _CACHE,
        "JAX_PERSISTENT_CACHE_*": _CACHE,
        "JAX_RAISE_PERSISTENT_CACHE_ERRORS": _CACHE,
        "JAX_EXPLAIN_CACHE_MISSES": _OUTPUT,
        "JAX_LOG_COMPILES": _OUTPUT,
        "JAX_LOGGING_LEVEL": _OUTPUT,
        "JAX_DEBUG_LOG_MODULES": _OUTPUT,
        "JAX_TRACEBACK_FILTERING": _OUTPUT,
        "TF_CPP_MIN_LOG_LEVEL": _OUTPUT,
        "TF_CPP_MAX_VLOG_LEVEL": _OUTPUT,
        "TF_CPP_VMODULE": _OUTPUT,
        "TF_DISABLE_PROFILING": _OUTPUT,
        "TF_PROFILER_*": _OUTPUT,
        "TF_GCS_*": "only how files are fetched from Google's storage",
    },
)
