"""The file of a plan: an AOTInductor package, and the instruction set that it may need."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from trivet.errors import BackendError, CorruptEntry
from trivet.plans.host import missing_features, read_host

PLAN_FILE = "plan.pt2"
MODEL = "model"

_ISA_KEY = "AOTI_CPU_ISA"
# What Inductor lets the compiler use for each of the names that it writes into a package.
_NEEDED = {
    "AVX2": ("avx2", "f16c", "fma"),
    "AVX512": ("avx512bw", "avx512dq", "avx512f", "avx512vl", "fma"),
    "AVX512_VNNI": ("avx512_vnni",),
    "AMX_TILE": ("amx_bf16", "amx_int8", "amx_tile"),
    "ASIMD": (),
    "INVALID_VEC_ISA": (),
}
# PyTorch's own vector width, which ATEN_CPU_CAPABILITY may lower below what the CPU has.
_CAPABILITY = {"AVX2": 1, "AVX512": 2}


def package_isa(path: Path) -> str:
    """The instruction set that a package says it was compiled for, such as ``AVX512``.

    Nothing of the package is executed. Raises `CorruptEntry` when it does not say one.
    """
    try:
        with zipfile.ZipFile(path) as package:
            names = [each for each in package.namelist() if each.endswith("_metadata.json")]
            said = {json.loads(package.read(each)).get(_ISA_KEY) for each in names}
    except (zipfile.BadZipFile, ValueError, AttributeError, KeyError) as error:
        raise CorruptEntry(f"{path} is no package: {error}") from error
    if len(said) != 1 or not isinstance(only := said.pop(), str):
        raise CorruptEntry(f"{path} does not say which instruction set it needs")
    return only


def require_isa(path: Path, compiled_on: tuple[str, ...], torch: Any) -> None:
    """Raise `BackendError` unless this machine has the instructions that a package may use.

    PyTorch only warns, and the process ends with SIGILL. Inductor's name for the instruction set
    is not all: the compiler is told to use whatever the machine has.
    """
    said = package_isa(path).split()
    live = read_host({}).instruction_set
    needed = [feature for each in said for feature in _NEEDED.get(each, (each.lower(),))]
    lacking = missing_features((*compiled_on, *needed), live)
    if lacking:
        raise BackendError(f"the plan needs instructions that this CPU lacks: {', '.join(lacking)}")
    capability = str(torch.backends.cpu.get_cpu_capability())
    if max(_CAPABILITY.get(each, 0) for each in said) > _CAPABILITY.get(capability, 0):
        raise BackendError(f"the plan is for {' '.join(said)}, PyTorch runs with {capability}")
