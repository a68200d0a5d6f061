"""Which Python a command will run, and where that Python looks for packages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

_ASK = (
    "import sys, json; print(json.dumps({'executable': sys.executable, 'version': sys.version, "
    "'tag': sys.implementation.cache_tag, 'path': sys.path, 'prefix': sys.prefix, "
    "'base': sys.base_prefix}))"
)
# Nothing else that begins so may be asked: it would be run a second time.
_IS_PYTHON = re.compile(r"python[\d.]*[a-z]?").fullmatch
_PATIENCE = 20.0  # seconds; a start takes hundredths


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python interpreter as it describes itself.

    Attributes:
        executable: its absolute path.
        version: the whole of ``sys.version``, with the compiler it was built by.
        tag: such as ``"cpython-311"``.
        path: ``sys.path`` in the command's environment.
        prefix, base: ``sys.prefix`` and ``sys.base_prefix``.
    """

    executable: str
    version: str
    tag: str
    path: list[str]
    prefix: str
    base: str


def interpreter_of(command: Sequence[str], environment: Mapping[str, str]) -> Interpreter | None:
    """The interpreter that ``command`` runs in; for a command that is no Python program, the one
    that it would find first. None where there is none that answers.
    """
    search = environment.get("PATH", os.defpath)
    program = shutil.which(command[0], path=search)
    candidates = [_python_of(program)] if program else []
    candidates += [shutil.which(name, path=search) for name in ("python3", "python")]
    for each in candidates:
        found = each and _ask(each, environment)
        if found:
            return found
    return None


def arguments_of(command: Sequence[str]) -> list[str]:
    """What ``sys.argv`` holds after the program's name, where ``command`` starts the program
    itself. What a script or another program that stands before it will pass on can't be told.
    """
    words = list(command[1:])
    if not _IS_PYTHON(Path(command[0]).name):
        return words
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            break  # the program
        takes = not word.startswith("--") and word[-1:] in "cmXW"
        if takes and words:
            words.pop(0)
        if takes and word[-1:] in "cm":
            break
    return words


def _python_of(program: str) -> str | None:
    """``program`` itself where it is a Python, or the Python of its first line."""
    if _IS_PYTHON(Path(program).name):
        return program
    try:
        with Path(program).open("rb") as file:
            head = file.read(4096).splitlines()[:3]
    except OSError:
        return None
    if not head or not head[0].startswith(b"#!"):
        return None
    words = head[0][2:].decode(errors="replace").split()
    if len(words) > 1 and Path(words[0]).name == "env":
        return shutil.which(words[-1])
    if words and Path(words[0]).name == "sh" and len(head) > 1:
        # How pip writes a first line that is too long for the kernel.
        words = [word.strip("'\"") for word in head[1].decode(errors="replace").split()[1:]]
    return words[0] if words and _IS_PYTHON(Path(words[0]).name) else None


def _ask(python: str, environment: Mapping[str, str]) -> Interpreter | None:
    try:
        told = subprocess.run(
            [python, "-c", _ASK],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=True,
        )
        # Whatever a start-up file of the environment prints stands before.
        # Not msgspec's decoder: names of folders may be no Unicode.
        return msgspec.convert(json.loads(told.stdout.splitlines()[-1]), type=Interpreter)
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None
