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


def _model(information: Path) -> str:
    return _field(information, "Model:")


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.removeprefix(name).strip()
    return ""
