"""What identifies Triton: its package on disk, and the environment that it reads."""

from __future__ import annotations

from trivet.plans.environment import LOADER, Rules
from trivet.plans.installed import Package

PACKAGE = Package(
    module="triton",
    distributions=("triton", "pytorch-triton", "triton-cpu"),
    libraries=("_C/libtriton.so",),
    extra="triton",
)

_WHERE = "says where the cache lies, which is replaced"
_TOLD = "only writes logs, traces or dumps"
_SEEN = "which processors are seen; for which of them is compiled is in the key"
_LAUNCH = "how kernels are loaded and launched, not what they are"

# What compiles the small libraries that launch kernels.
COMPILER_READS = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CC", "CXX", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip
COMPILERS = {"CXX": ("g++", "clang++"), "CC": ("gcc", "clang")}

# Programs and libraries that compile, named by path: they count by content.
PROGRAMS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBDEVICE_PATH")
PLUGINS = ("TRITON_PLUGIN_PATHS", "LLVM_PASS_PLUGIN_PATH")

ENVIRONMENT = Rules(
    prefixes=(
        "TRITON_", "MLIR_", "LLVM_", "PTXAS", "NVPTX_", "AMDGCN_", "CUDA_", "NVIDIA_", "HIP_",
        "DISABLE_",  # _PTXAS_OPT, _LLVM_OPT, _MMA_V3
    ),
    names=(*COMPILER_READS, "USE_IR_LOC", "ALLOW_LHS_TMEM_LAYOUT_CONVERSION", *LOADER),
    neutral={
        "CUDA_VISIBLE_DEVICES": _SEEN,
        "CUDA_DEVICE_ORDER": _SEEN,
        "NVIDIA_VISIBLE_DEVICES": _SEEN,
        "HIP_VISIBLE_DEVICES": _SEEN,
        "CUDA_CACHE_*": _LAUNCH,
        "CUDA_LAUNCH_BLOCKING": _LAUNCH,
        "CUDA_MODULE_LOADING": _LAUNCH,
        "TRITON_CACHE_DIR": _WHERE,
        "TRITON_CACHE_MANAGER": _WHERE,
        "TRITON_HOME": _WHERE,
        "TRITON_DUMP_DIR": _TOLD,
        "TRITON_PRINT_AUTOTUNING": _TOLD,
    },
)  # fmt: skip
