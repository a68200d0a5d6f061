"""Compilers by content, and graphics processors by name and driver."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.keys import FieldValue
from trivet.plans.toolchain import compiler_fields

if TYPE_CHECKING:
    from trivet.plans.memo import Memo

_NVIDIA = Path("/proc/driver/nvidia")
_AMD = Path("/sys/class/kfd/kfd/topology/nodes")
_SLICES = "capabilities/gpu*/mig/gi*"
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def compilers(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], memo: Memo | None
) -> dict[str, FieldValue]:
    """Each compiler that would be run; see `compiler_fields`.

    ``commands`` maps the variable that names a compiler to its usual names. A compiler that isn't
    there is None: a framework may do without, and then does something else.
    """
    search = environment.get("PATH")
    found: dict[str, FieldValue] = {}
    for variable, usual in commands.items():
        wanted = environment.get(variable, "").split()[:1] or list(usual)
        program = next(filter(None, (shutil.which(each, path=search) for each in wanted)), None)
        found[variable] = program and compiler_fields(program, memo)
    return found


def graphics() -> dict[str, FieldValue]:
    """Names and driver of the graphics processors that the kernel knows; empty without any.

    Read from the kernel's files: no library of a vendor is needed or loaded.
    """
    told: dict[str, FieldValue] = {}
    if (_NVIDIA / "version").is_file():
        told["nvidia"] = (_NVIDIA / "version").read_text().splitlines()[0]
        told["nvidia models"] = tuple(
            sorted(_model(each) for each in (_NVIDIA / "gpus").glob("*/information"))
        )
    if _AMD.is_dir():
        told["amd"] = tuple(sorted(each.read_text() for each in _AMD.glob("*/name")))
        told["amd targets"] = tuple(
            sorted(_field(each, "gfx_target_version") for each in _AMD.glob("*/properties"))
        )
    return told


def alike_counted(
    environment: dict[str, FieldValue], processors: dict[str, FieldValue]
) -> tuple[dict[str, FieldValue], dict[str, FieldValue]]:
    """Which of several NVIDIA processors a process sees makes no difference where all are alike:
    the variables that choose are replaced by how many they choose.

    Whatever can't be shown to choose among those that the kernel knows stays as it is: slices of a
    processor, names that are not known, anything on a machine with processors of several models.
    """
    models = processors.get("nvidia models")
    if not isinstance(models, tuple) or len(set(models)) != 1 or any(_NVIDIA.glob(_SLICES)):
        return environment, processors
    left, seen = dict(environment), dict(processors)
    for variable in _VISIBLE:
        chosen = _chosen(left.get(variable), len(models))
        if chosen is not None:
            del left[variable]
            seen[variable] = chosen
    return left, seen


def _chosen(value: FieldValue, known: int) -> int | None:
    """How many processors a list of numbers or UUIDs chooses; None for any other."""
    words = value.split(",") if isinstance(value, str) else []
    places = _NVIDIA.glob("gpus/*/information")
    names = {*map(str, range(known)), *(_field(each, "GPU UUID:") for each in places)}
    if not words or len({*words}) < len(words) or not {*words} <= names - {""}:
        return None
    return len(words)


def _model(information: Path) -> str:
    return _field(information, "Model:")


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.removeprefix(name).strip()
    return ""
