"""What PyTorch reads of the environment is in the key, or somebody has said why it is not."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from trivet.plans.environment import is_read
from trivet.plans.facts.torch import ENVIRONMENT

_READ = re.compile(r"""(?:environ(?:\.get)?[\[(]|getenv\()\s*["']([A-Z][A-Z0-9_]+)["']""")
_FOLDERS = ("_inductor", "_functorch", "_export", "export", "_library", "_subclasses")
_OTHERS = {
    **dict.fromkeys(("CUDACXX", "CUDA_HOME", "CUDA_PATH", "CUDA_INC_PATH"), "another device"),
    **dict.fromkeys(("CUBLAS_WORKSPACE_CONFIG", "ROCM_HOME", "ROCM_PATH"), "another device"),
    **dict.fromkeys(("ENABLE_PERSISTENT_TMA_MATMUL", "ENABLE_TEMPLATE_TMA_STORE"), "GPU kernels"),
    **dict.fromkeys(("ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE",), "GPU kernels"),
    **dict.fromkeys(("CUTEDSL_ENABLE_AUTOTUNING", "CUTLASS_EPILOGUE_FUSION"), "GPU kernels"),
    **dict.fromkeys(("LEVEL_ZERO_V1_SDK_PATH", "ONEAPI_ROOT"), "another device"),
    **dict.fromkeys(("TRITON_INTERPRET", "TRITON_USE_META_WS", "TRITON_CACHE_DIR"), "GPU kernels"),
    **dict.fromkeys(("TRITON_LIBDEVICE_PATH", "TRITON_PTXAS_PATH"), "GPU kernels"),
    **dict.fromkeys(("JAX_PLATFORMS",), "Pallas kernels"),
    **dict.fromkeys(("VCT", "WINDOWS_CUDA_HOME"), "another system"),
    **dict.fromkeys(("CONDA_EXE", "CONDA_PREFIX"), "only to find OpenMP on macOS"),
    **dict.fromkeys(("LOG_AUTOTUNE_RESULTS", "MAST_HPC_JOB_NAME", "ROLE_RANK"), "logs"),
    **dict.fromkeys(("MAX_JOBS",), "how many compilers run at once"),
    **dict.fromkeys(("CI",), "not handed on to the process that compiles"),
    **dict.fromkeys(("PATH",), "the compiler that it leads to is in the key, by content"),
}


def test_every_variable_that_its_compiler_reads_is_classified() -> None:
    root = Path(torch.__file__).parent
    read = {
        name
        for folder in _FOLDERS
        for path in (root / folder).rglob("*.py")
        for name in _READ.findall(path.read_text(errors="replace"))
    }
    assert len(read) > 100
    assert {name for name in read - _OTHERS.keys() if not is_read(name, ENVIRONMENT)} == set()
