"""The files of a plan: an AOTInductor package, unpacked, and the instructions that it may need."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

from trivet.errors import BackendError, CorruptEntry
from trivet.plans.host import missing_features, read_host

LIBRARY = "plan.so"
CALLS = "plan.json"  # of operators by name; PyTorch looks for it beside the library
METADATA = "metadata.json"

_INSIDE = "data/aotinductor/model/"
_METADATA_SUFFIX = "_metadata.json"
_KNOWN = ("archive_format", "archive_version", "byteorder")
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


def unpack(package: Path, folder: Path) -> None:
    """Put what runs of an AOTInductor package into ``folder``; sources are left behind.

    PyTorch's loader would unpack it at every load, into a folder for temporary files: a copy that
    nobody verified. Raises `BackendError` when the package is not made of what it is known to be.
    """
    with zipfile.ZipFile(package) as found:
        names = {each.partition("/")[2]: each for each in found.namelist()}
        inside = {k: v for k, v in names.items() if k.startswith(_INSIDE)}
        others = [k for k in names if not k.startswith((_INSIDE, ".data/")) and k not in _KNOWN]
        libraries = [v for k, v in inside.items() if k.endswith(".so")]
        calls = [v for k, v in inside.items() if _is_calls(k)]
        said = {found.read(v) for k, v in inside.items() if k.endswith(_METADATA_SUFFIX)}
        if others or len(libraries) != 1 or len(calls) > 1 or len(said) != 1:
            raise BackendError(f"a package of another kind than plans are made of: {sorted(names)}")
        (folder / METADATA).write_bytes(said.pop())
        for place, name in ((LIBRARY, libraries[0]), *((CALLS, each) for each in calls)):
            with found.open(name) as source, (folder / place).open("xb") as target:
                shutil.copyfileobj(source, target)


def calls_size(folder: Path) -> int:
    """Size of the list of operators that PyTorch calls by name; -1 where the plan has none."""
    place = folder / CALLS
    return place.stat().st_size if place.is_file() else -1


def package_isa(folder: Path) -> str:
    """The instruction set that a plan says it was compiled for, such as ``AVX512``.

    Nothing of the plan is executed. Raises `CorruptEntry` when it does not say one.
    """
    try:
        said = json.loads((folder / METADATA).read_bytes())[_ISA_KEY]
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptEntry(f"{folder / METADATA} is damaged: {error}") from error
    return str(said)


def require_isa(folder: Path, compiled_on: tuple[str, ...], torch: Any) -> None:
    """Raise `BackendError` unless this machine has the instructions that a package may use.

    PyTorch only warns, and the process ends with SIGILL. Inductor's name for the instruction set
    is not all: the compiler is told to use whatever the machine has.
    """
    said = package_isa(folder).split()
    live = read_host({}).instruction_set
    needed = [feature for each in said for feature in _NEEDED.get(each, (each.lower(),))]
    lacking = missing_features((*compiled_on, *needed), live)
    if lacking:
        raise BackendError(f"the plan needs instructions that this CPU lacks: {', '.join(lacking)}")
    capability = str(torch.backends.cpu.get_cpu_capability())
    if max(_CAPABILITY.get(each, 0) for each in said) > _CAPABILITY.get(capability, 0):
        raise BackendError(f"the plan is for {' '.join(said)}, PyTorch runs with {capability}")


def _is_calls(name: str) -> bool:
    return name.endswith(".json") and not name.endswith((_METADATA_SUFFIX, "_config.json"))
