"""The compilers that frameworks call, by content: a version says nothing about a patched one.

The driver is a small program; what translates, assembles and links are others that it names.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.keys import FieldValue
from trivet.plans.installed import file_digest

if TYPE_CHECKING:
    from trivet.plans.memo import Memo

_PROGRAMS = ("cc1", "cc1plus", "as", "collect2", "ld")
_SECONDS = 20.0
NONE = "none"


def compiler_name(environment: Mapping[str, str]) -> str:
    """What Inductor calls: ``CXX``, or ``g++``."""
    return environment.get("CXX") or "g++"


def has_compiler(environment: Mapping[str, str]) -> bool:
    """Whether what Inductor calls is there."""
    return shutil.which(compiler_name(environment)) is not None


def compiler_fields(name: str, memo: Memo | None = None) -> dict[str, FieldValue]:
    """Version, and program to BLAKE3 hex of the compiler and of what it calls.

    Without a compiler nothing can be compiled; the key then says so.
    """
    path = shutil.which(name)
    if path is None:
        return {"version": NONE}
    version, programs = _parts(path)
    files = {"driver": path, **dict(programs)}
    return {
        "version": version,
        "programs": {
            program: file_digest(Path(found).resolve(), memo) for program, found in files.items()
        },
    }


@functools.lru_cache(maxsize=8)
def _parts(path: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """First line of ``--version``, and where the other programs are; asked once per process."""
    version = _ask(path, "--version").partition("\n")[0]
    found = []
    for program in _PROGRAMS:
        place = shutil.which(_ask(path, f"-print-prog-name={program}").strip() or program)
        if place is not None:
            found.append((program, place))
    return version, tuple(found)


def _ask(path: str, argument: str) -> str:
    try:
        done = subprocess.run(
            [path, argument],
            capture_output=True,
            text=True,
            errors="backslashreplace",
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
