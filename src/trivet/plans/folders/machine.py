"""Compilers by content, and graphics processors by name and driver."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.keys import FieldValue
from trivet.plans.installed import file_digest

if TYPE_CHECKING:
    from trivet.plans.memo import Memo

_NVIDIA = Path("/proc/driver/nvidia")
_AMD = Path("/sys/class/kfd/kfd/topology/nodes")
_PATIENCE = 10.0


def compilers(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], memo: Memo | None
) -> dict[str, FieldValue]:
    """Each compiler that would be run, as the content of its driver and of what that runs.

    ``commands`` maps the variable that names a compiler to its usual names. A compiler that isn't
    there is None: a framework may do without, and then does something else.
    """
    search = environment.get("PATH")
    found: dict[str, FieldValue] = {}
    for variable, usual in commands.items():
        wanted = environment.get(variable, "").split()[:1] or list(usual)
        program = next(filter(None, (shutil.which(each, path=search) for each in wanted)), None)
        found[variable] = program and _content(Path(program).resolve(), variable, memo)
    return found


def _content(driver: Path, variable: str, memo: Memo | None) -> dict[str, FieldValue]:
    return {each.name: file_digest(each, memo) for each in _parts(driver, variable)}


@functools.cache
def _parts(driver: Path, variable: str) -> tuple[Path, ...]:
    """The driver, which hardly ever changes, and the compiler, assembler and linker it runs."""
    parts = [driver]
    for name in ("cc1plus" if variable == "CXX" else "cc1", "as", "ld"):
        try:
            told = subprocess.run(
                [driver, f"-print-prog-name={name}"],
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        path = shutil.which(told.stdout.strip() or name)
        if path is not None:
            parts.append(Path(path).resolve())
    return tuple(parts)


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
