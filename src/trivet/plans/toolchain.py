"""The compilers that frameworks call, by content: a version says nothing about a patched one.

The driver is a small program; what translates, assembles and links are others that it names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trivet.keys import FieldValue
from trivet.plans.installed import file_digest

if TYPE_CHECKING:
    from trivet.plans.memo import Memo

_PROGRAMS = ("cc1", "cc1plus", "as", "collect2", "ld")
_DRIVER = re.compile(r"(.+-)?(gcc|g\+\+|clang|clang\+\+)(-[\d.]+)?")
_SEARCHED = ("COMPILER_PATH", "GCC_EXEC_PREFIX", "PATH")  # where a driver looks for its programs
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
    version, programs = _parts(path, memo)
    files = {"driver": path, **programs}
    return {
        "version": version,
        "programs": {
            program: file_digest(Path(found).resolve(), memo) for program, found in files.items()
        },
    }


def _parts(path: str, memo: Memo | None) -> tuple[str, dict[str, str]]:
    """First line of ``--version``, and where the other programs are."""
    answers = _asked(path, memo)
    found = {}
    for program in _PROGRAMS:
        # A bare name is looked for by the driver on the search path, as it is now.
        place = shutil.which(answers[program] or program)
        if place is not None:
            found[program] = place
    return answers["version"], found


def _asked(path: str, memo: Memo | None) -> dict[str, str]:
    """What the driver says of itself: its version, and its programs by name.

    Remembered for a driver that is a program of its own and did not change. A script or a launcher
    such as ccache may pass the question on to another one every day.
    """
    real = Path(path).resolve()
    key = None
    if memo is not None and _DRIVER.fullmatch(real.name) and _is_program(real):
        facts = real.stat()
        place = [path, str(real), *(os.environ.get(each, "") for each in _SEARCHED)]
        stamp = [facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]
        key = b"compiler/1\0" + msgspec.json.encode([place, stamp])
        known = memo.get(key)
        if known is not None:
            return msgspec.json.decode(known, type=dict[str, str])
    answers = {"version": _ask(path, "--version").partition("\n")[0]}
    for program in _PROGRAMS:
        answers[program] = _ask(path, f"-print-prog-name={program}").strip()
    if memo is not None and key is not None and answers["version"]:
        memo.put(key, msgspec.json.encode(answers))
    return answers


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


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
