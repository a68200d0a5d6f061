"""In a program under ``trivet exec``: gets each framework the folder that belongs to this process.

The command that runs the program is asked, at a socket in ``TRIVET_EXEC_RUN``, when a framework is
about to be imported, and told what this process is: its Python, its environment as it is now, and
what implements operators in it. It answers with a private folder that fits. When something of that
changes later, it is asked again. Where nobody answers, the framework keeps the cache that it would
have had.

This module and its parts stand alone, and nothing that goes wrong in them may reach the program.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import sys

import trivet_exec_once as once
from trivet_exec_ask import ask, lead_jax
from trivet_exec_events import audit
from trivet_exec_loaded import RUN
from trivet_exec_report import report
from trivet_exec_started import watch_forks
from trivet_exec_state import state
from trivet_exec_watch import watch

__all__ = ["enter", "leave", "leave_alone", "report", "watch"]

_ARGUMENTS = "TRIVET_EXEC_ARGUMENTS"


def enter(module: str) -> None:
    """Before ``module`` is imported: have the folders of what it leads to."""
    with state.lock:
        if not state.modules:
            _hold()
            state.arguments = _arguments()
            once.begin(audit, state.begin)
            state.undo.callback(watch_forks(lambda *given: audit("subprocess.Popen", given)))
            atexit.register(report)
        state.modules.add(module)
        ask(module)


def leave(jax_before: str | None) -> None:
    """The guard is over while the process goes on: look at nothing any more."""
    with state.lock:
        once.end()
        atexit.unregister(report)
        if "jax" in state.given:
            lead_jax(jax_before)
        with contextlib.suppress(Exception):
            state.undo.close()
        state.given.clear()
        state.modules.clear()
        os.environ.pop(_ARGUMENTS, None)
        if state.holds is not None:
            os.close(state.holds)
            state.holds = None


def leave_alone() -> None:
    """What this thread does is the guard's own work, for the rest of its life."""
    state.thread.is_ours = True


def _hold() -> None:
    state.holds = os.open(os.path.join(RUN, "lock"), os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(state.holds, fcntl.LOCK_SH)


def _arguments() -> list[str]:
    """Those of the program; a worker, or a helper that is given none, has those of its parent."""
    process = sys.modules.get("multiprocessing.process")
    given = [each for each in sys.argv[1:] if isinstance(each, str)]
    if not given or (process is not None and process.parent_process() is not None):
        with contextlib.suppress(OSError, KeyError), open(os.environ[_ARGUMENTS]) as file:
            inherited: list[str] = json.load(file)
            return inherited
        return []
    # In a file: a variable has room for 128 KiB, and one that is longer starts no program.
    path = os.path.join(RUN, f"{state.name}.arguments")
    with open(path, "w") as file:
        json.dump(given, file)
    os.environ[_ARGUMENTS] = path
    return given
