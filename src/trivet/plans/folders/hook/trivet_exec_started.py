"""Programs that a program under the guard starts; a part of `trivet_exec_hook`."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SWITCH = re.compile(r"-[A-Za-z]*[IES]")  # of a Python that runs no sitecustomize of ours
_PYTHON = re.compile(r"python[\d.]*[a-z]?$")
# Not the place of its headers, before another one of headers.
_SILENT = re.compile(r"python[\d.]*[a-z]?['\"]?\s+(-\S+\s+)*-[A-Za-z]*[IES][A-Za-z]*(\s|$)")
_FEW, _LONG = 3, 1 << 16  # words that are looked at, and bytes of each
_STARTS_OTHERS = re.compile(r"(^|/)(\w*sh|env|timeout|nice|nohup|setsid|xargs)$")


def watch_forks(started: Callable[..., None]) -> Callable[[], None]:
    """Call ``started`` for what ``multiprocessing`` and its like start, of which no event tells;
    returns the undoing."""
    import _posixsubprocess

    fork_exec = _posixsubprocess.fork_exec

    def watched(arguments: Any, *more: Any) -> Any:
        with contextlib.suppress(Exception):
            if "multiprocessing.resource_tracker" not in str(arguments):  # runs nothing else
                variables = dict(each.split(b"=", 1) for each in more[4] or ())
                started(arguments[0], list(arguments), variables or None)
        return fork_exec(arguments, *more)

    _posixsubprocess.fork_exec = watched
    return lambda: setattr(_posixsubprocess, "fork_exec", fork_exec)


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
        return bool(told) or any(map(_is_silent_script, words[:_FEW]))
    takes_next = False
    for word in words[1:]:
        if not takes_next and (not word.startswith("-") or word in ("-c", "-m")):
            return False
        if not takes_next and _SWITCH.match(word):
            return True
        takes_next = not takes_next and word in ("-X", "-W")
    return False


def _is_silent_script(path: str) -> bool:
    """Whether it is a script that may start a Python which is told so."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            text = file.read(_LONG)
    except (OSError, ValueError):
        return False
    return not text.startswith(b"\x7fELF") and bool(_SILENT.search(text.decode(errors="replace")))


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
