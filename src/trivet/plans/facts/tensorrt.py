"""What identifies TensorRT: its packages on disk, its environment, and the GPU it builds for."""

from __future__ import annotations

from pathlib import Path

from trivet.errors import BackendError
from trivet.keys import FieldValue
from trivet.plans.environment import LOADER, Rules
from trivet.plans.facts.machine import graphics
from trivet.plans.installed import Package

_CUDA = ("cu11", "cu12", "cu13")

# The libraries of the wheels. Those of a system are not followed: nothing says what they belong to.
PACKAGE = Package(
    module="tensorrt_libs",
    distributions=tuple(f"tensorrt-{each}-libs" for each in _CUDA),
    libraries=("libnvinfer*.so*", "libnvonnxparser*.so*"),
    extra="tensorrt",
)
BINDINGS = Package(
    module="tensorrt_bindings",
    distributions=tuple(f"tensorrt-{each}-bindings" for each in _CUDA),
    libraries=("tensorrt.so",),
    extra="tensorrt",
)

_SEEN = "which processors are seen; they have to be of one model, which is in the key"
_LAUNCH = "how kernels are loaded and launched, not what they are"

ENVIRONMENT = Rules(
    prefixes=("TRT_", "TENSORRT_", "NV_TENSORRT_", "CUDA_", "NVIDIA_", "CUBLAS", "CUDNN_"),
    names=LOADER,
    neutral={
        "CUDA_VISIBLE_DEVICES": _SEEN,
        "CUDA_DEVICE_ORDER": _SEEN,
        "NVIDIA_VISIBLE_DEVICES": _SEEN,
        "NVIDIA_DRIVER_CAPABILITIES": "which libraries of the driver a container gets",
        "CUDA_CACHE_*": _LAUNCH,
        "CUDA_LAUNCH_BLOCKING": _LAUNCH,
        "CUDA_MODULE_LOADING": _LAUNCH,
    },
)

_SLICES = Path("/proc/driver/nvidia/capabilities")


def gpu() -> dict[str, FieldValue]:
    """The GPU and its driver, from the kernel's files.

    Nothing of CUDA is started, so this process can still be forked.

    Raises `BackendError` where there is none, and where TensorRT could be given one of several.
    """
    found = graphics()
    models = found.get("nvidia models")
    if not isinstance(models, tuple) or not models:
        raise BackendError(
            "there is no NVIDIA GPU here, as far as the kernel knows, and TensorRT builds for one",
            hint="run it where the GPU is; an engine can't be built for another machine's",
        )
    kinds = sorted({str(each) for each in models})
    if len(kinds) > 1:
        raise BackendError(
            f"there are GPUs of several models ({', '.join(kinds)}), and "
            "which of them a process gets is not in the key",
            hint="give the container or the machine GPUs of one model",
        )
    if any(_SLICES.glob("gpu*/mig/gi*")):
        raise BackendError("the GPU is sliced (MIG), and its slices can't be told apart")
    return {"driver": found["nvidia"], "model": kinds[0]}
