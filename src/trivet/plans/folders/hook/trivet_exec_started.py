"""Programs that a program under the guard starts; a part of `trivet_exec_hook`."""

from __future__ import annotations

import os
import re
import sys

_SWITCH = re.compile(r"-[A-Za-z]*[IES]")  # of a Python that runs no sitecustomize of ours
_PYTHON = re.compile(r"python[\d.]*[a-z]?$")
# Not the place of its headers, before another one of headers.
_SILENT = re.compile(r"python[\d.]*[a-z]?['\"]?\s+(-\S+\s+)*-[A-Za-z]*[IES][A-Za-z]*(\s|$)")
_STARTS_OTHERS = re.compile(r"(^|/)(\w*sh|env|timeout|nice|nohup|setsid|xargs)$")


def doubt_of(words: list[str], environment: dict[str, str]) -> str:
    """Why the program may be a Python that reports nothing, or start one; empty if it is none.

    Args:
        words: the program and its arguments.
        environment: that it is given.
    """
    if not words:
        return ""
    if not _is_silent(words) and (_leads_here(environment) or _is_compiled(words[0])):
        return ""
    return "a Python that reports nothing was started: " + " ".join(words)[:200]


def _is_silent(words: list[str]) -> bool:
    """Whether a Python is told to run no sitecustomize of ours."""
    if not _PYTHON.search(words[0]):
        told = _STARTS_OTHERS.search(words[0]) and _SILENT.search(" ".join(words))
        return bool(told)
    takes_next = False
    for word in words[1:]:
        if not takes_next and (not word.startswith("-") or word in ("-c", "-m")):
            return False
        if not takes_next and _SWITCH.match(word):
            return True
        takes_next = not takes_next and word in ("-X", "-W")
    return False


def _leads_here(environment: dict[str, str]) -> bool:
    """Whether a Python with this environment runs our sitecustomize."""
    search = environment.get("PYTHONPATH", "")
    if "torch" in sys.modules and search == os.pathsep.join(map(str, sys.path)):
        return True  # PyTorch's own workers, which run nothing but what is in the key
    here = os.path.dirname(os.path.abspath(__file__))
    return "TRIVET_EXEC_RUN" in environment and here in search.split(os.pathsep)


def _is_compiled(program: str) -> bool:
    """Whether it is a program such as a compiler: no Python, nor anything that may start one."""
    import shutil

    path = shutil.which(program)
    if path is None or _PYTHON.search(program) or _STARTS_OTHERS.search(program):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(2) != b"#!"
    except OSError:
        return False
