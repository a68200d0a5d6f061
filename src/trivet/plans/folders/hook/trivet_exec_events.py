"""Watches what the program loads, writes, sets and starts; a part of `trivet_exec_hook`.

By Python's audit events, see https://docs.python.org/3/library/audit_events.html.
"""

from __future__ import annotations

import contextlib
import os

from trivet_exec_ask import fit, fit_library, fit_variable
from trivet_exec_loaded import is_own
from trivet_exec_report import report, report_use
from trivet_exec_started import doubt_of
from trivet_exec_state import FOLDERS, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    """What Python calls at each event, before that happens."""
    watch, thread = _EVENTS.get(event), state.thread
    if (watch is None and not thread.has_loaded) or thread.is_ours:
        return
    with contextlib.suppress(Exception):
        if thread.has_loaded:
            thread.has_loaded = False
            fit()
        if watch is not None:
            watch(*arguments)


def _write(path: object, *_: object) -> None:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(FOLDERS):
        report_use(os.fspath(path)[len(FOLDERS) :].partition(os.sep)[0])


def _open(path: object, _: object = None, flags: object = 0) -> None:
    if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
        _write(path)


def _rename(_: object, target: object, *__: object) -> None:
    _write(target)


def _import(_: object, path: object, *__: object) -> None:
    _load(path)


def _load(path: object, *_: object) -> None:
    """A library is about to be loaded."""
    if not isinstance(path, str):
        return
    found = path if os.sep in path else _searched(path)
    if found and is_own(found := os.path.realpath(found)):
        fit_library(found)
        state.thread.has_loaded = True  # it may have brought others


def _searched(name: str) -> str:
    """The library of this name that the program brings; empty where the system has it."""
    search = os.environ.get("LD_LIBRARY_PATH", "")
    paths = [os.path.join(folder, name) for folder in search.split(":")] if search else []
    return next(filter(os.path.isfile, paths), "")


def _set(name: bytes, value: bytes | None = None) -> None:
    fit_variable(os.fsdecode(name), None if value is None else os.fsdecode(value))


def _start(program: object, arguments: object = (), *more: object) -> None:
    environment: Any = more[-1] if more else None
    if not isinstance(environment, dict):
        environment = os.environ
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    if any(FOLDERS in value for value in given.values()):
        words = arguments if isinstance(arguments, (list, tuple)) else (arguments,)
        texts = [os.fsdecode(each) for each in words if isinstance(each, (str, bytes, os.PathLike))]
        state.doubt = doubt_of(texts, given) or state.doubt
    report(state.in_use())  # with the doubt: nothing may come after it


def _system(command: object) -> None:
    _start("sh", ["sh", "-c", command])


_EVENTS: dict[str, Any] = {
    "open": _open,
    "os.mkdir": _write,
    "os.rename": _rename,
    "os.link": _rename,
    "os.symlink": _rename,
    "import": _import,
    "ctypes.dlopen": _load,
    "os.putenv": _set,
    "os.unsetenv": _set,
    "subprocess.Popen": _start,
    "os.posix_spawn": _start,
    "os.exec": _start,
    "os.system": _system,
}
