"""What identifies PyTorch: its package on disk, and the environment that it reads."""

from __future__ import annotations

from trivet.plans.environment import LOADER, Rules
from trivet.plans.installed import Package

PACKAGE = Package(
    module="torch",
    distributions=("torch",),
    libraries=(
        "_C*.so",
        "lib/libc10*.so*",
        "lib/libgomp*.so*",
        "lib/libtorch_cpu*.so*",
        "lib/libtorch_python*.so*",
    ),
    extra="torch",
)

_OUTPUT = "only writes logs, traces or debug output"
_PRIVATE = "compiling is given a folder of its own, and no cache but that"
_MEMORY = "sizes an allocator or a cache of the process, not what is computed"

# What the compiler and the linker read, beside what PyTorch does.
_TOOLCHAIN = (
    *("CXX", "CC", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
    *("COMPILER_PATH", "GCC_EXEC_PREFIX", "LD_RUN_PATH", "DEPENDENCIES_OUTPUT", "SYSROOT"),
)

ENVIRONMENT = Rules(
    prefixes=(
        "AOT",  # AOT_INDUCTOR_, AOTINDUCTOR_, AOTI_
        "ATEN_",
        "C10_",
        "DNNL_",
        "DUMP_AOTI_",
        "FAKE_",
        "FBGEMM_",
        "GOMP_",
        "HALIDE_",
        "INDUCTOR_",
        "KMP_",
        "MKL_",
        "OMP_",
        "ONEDNN_",
        "PARTITIONER_",
        "PYTORCH_",
        "TORCH",  # TORCH_, TORCHINDUCTOR_, TORCHDYNAMO_
    ),
    names=(*LOADER, *_TOOLCHAIN),
    neutral={
        "DNNL_JIT_DUMP": _OUTPUT,
        "DNNL_PRIMITIVE_CACHE_CAPACITY": _MEMORY,
        "DNNL_VERBOSE": _OUTPUT,
        "KMP_FOR_TCHECK": _OUTPUT,
        "KMP_FOR_TPROFILE": _OUTPUT,
        "MKL_VERBOSE": _OUTPUT,
        "OMP_DISPLAY_ENV": _OUTPUT,
        "ONEDNN_JIT_DUMP": _OUTPUT,
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": _MEMORY,
        "ONEDNN_VERBOSE": _OUTPUT,
        "PYTORCH_VERSION": "set by images for people to read",
        "TORCHINDUCTOR_CACHE_DIR": _PRIVATE,
        "TORCH_CPP_LOG_LEVEL": _OUTPUT,
        "TORCH_HOME": "where downloaded models go",
        "TORCH_LOGS": _OUTPUT,
        "TORCH_LOGS_FORMAT": _OUTPUT,
        "TORCH_LOGS_OUT": _OUTPUT,
        "TORCH_SHOW_CPP_STACKTRACES": _OUTPUT,
    },
)
