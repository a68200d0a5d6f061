"""Writes down what this process has loaded; a part of `trivet_exec_hook`.

In one file for each process, before anything gets into a private folder from here. So whatever is
in a folder, and however a process ended, what it was made with is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

from trivet_exec_loaded import RUN, Loads, is_own, mapped
from trivet_exec_operators import found_files, operator_files, unknown
from trivet_exec_state import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_FRESH = 0.2  # seconds that a report may lag behind what was loaded past the loader


def report(used: Iterable[str] = (), *, looks: bool = True) -> None:
    """Write down what is known now, if it is more than before.

    Args:
        used: folders that something is about to get into.
        looks: see `own_files`.
    """
    with state.lock:
        if state.is_broken or not state.given or state.thread.is_ours:
            return
        state.thread.is_ours = True
        path = os.path.join(RUN, "reports", f"{state.name}.json")
        try:
            # Before: what comes meanwhile is more.
            now = (_loads_so_far(), len(sys.modules), time.monotonic())
            text = json.dumps(_known(used, own_files(looks=looks)))
            if text != state.written:
                with open(path + ".part", "w") as file:
                    file.write(text)
                os.replace(path + ".part", path)
                state.written = text
            state.written_at = now
        except BaseException as error:
            # A name needs no room and no descriptor. An interpreter at its end may lack anything;
            # then nothing can be loaded any more either.
            state.is_broken = True
            if not _is_ending():
                _mark(path)
                if not isinstance(error, Exception):
                    raise  # of the program's own signal handlers
        finally:
            state.thread.is_ours = False


def report_use(folder: str) -> None:
    """Something is about to get into ``folder``: `report`, unless that was told before.

    Called for each file that is written, of which there may be hundreds, so it must cost little.
    """
    if folder in state.used and state.written_at is not None:
        loads, modules, then = state.written_at
        if (
            time.monotonic() - then <= _FRESH
            and len(sys.modules) == modules
            and 0 <= loads == _loads_so_far()
        ):
            return
    report([folder], looks=False)


def own_files(*, looks: bool = True) -> set[str]:
    """Those that a folder has to be filled with exactly: what defines operators, whoever brought
    it, since it may do so for operators of others; and what the program brings of the rest.

    Args:
        looks: for operators; else those that were found before. It takes long, and is done before
            and after whatever is compiled with them.
    """
    return {*filter(is_own, mapped()), *(operator_files() if looks else found_files())}


def _loads_so_far() -> int:
    """How often the loader loaded something; -1 where it can't be asked."""
    if state.loads is None:
        try:
            state.loads = Loads()
        except (ImportError, AttributeError, OSError):
            return -1
    return state.loads.count()


def _mark(path: str) -> None:
    try:
        os.replace(path, path + ".broken")
    except OSError:
        with contextlib.suppress(OSError):  # of a child that never wrote one
            os.mkdir(path + ".broken")


def _is_ending() -> bool:
    return sys.is_finalizing() or not sys.modules


def _known(used: Iterable[str], own: set[str]) -> dict[str, Any]:
    installed = sorted({*mapped()} - own)
    for name in used:
        state.used.setdefault(name, set()).update(own)
        state.left.setdefault(name, installed)
    for each in state.given.values():
        each["loaded"] = installed
    folders = {**state.left, **dict.fromkeys(state.in_use(), installed)}
    return {
        "folders": {
            name: sorted({*loaded, *state.used.get(name, ())}) for name, loaded in folders.items()
        },
        "now": sorted(state.in_use()),
        "own": sorted(own),
        "doubt": state.doubt or unknown(),
        "torch": state.counters.torch(),
        "vllm": state.counters.vllm(),
        "jax": state.counters.jax,
    }
