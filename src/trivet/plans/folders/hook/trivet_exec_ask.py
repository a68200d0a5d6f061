"""Asks the command that runs the program for folders; a part of `trivet_exec_hook`.

Again when those in use do not fit any more. Where nobody answers then, it goes on with empty ones,
of which nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time

from trivet_exec_loaded import RUN
from trivet_exec_operators import unknown
from trivet_exec_report import own_files, report
from trivet_exec_state import FOLDERS, fresh_name, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PATIENCE = 3600.0  # seconds; whoever fills the folder may be waited for
_CLOCK = 20_000_000  # nanoseconds; file systems stamp by a clock that lags behind


def ask(
    module: str,
    environment: dict[str, str] | None = None,
    loads: str = "",
    *,
    exact: bool = False,
) -> None:
    """Have the folders of what ``module`` leads to. Raises `OSError` and `ValueError`.

    Args:
        module: that was, or is about to be, imported.
        environment: that there is from now on, if it is another one.
        loads: the file that is about to be loaded.
        exact: what this process brings is known; else it is guessed by earlier runs.
    """
    own = {*own_files(looks=exact), *filter(None, [loads])}
    since = time.time_ns() - _CLOCK
    state.thread.is_ours = True
    try:
        answer = _answer_to(
            {
                "ask": "folders",
                "process": state.name,
                "module": module,
                "python": {
                    "executable": sys.executable,
                    "version": sys.version,
                    "tag": sys.implementation.cache_tag,
                    "path": [each for each in sys.path if isinstance(each, str)],
                    "prefix": sys.prefix,
                    "base": sys.base_prefix,
                },
                "environment": dict(os.environ) if environment is None else environment,
                "own": sorted(own),
                "exact": exact,
                "arguments": state.arguments,
            }
        )
        for each in answer.get("folders", ()):
            _use({**each, "since": since})
    finally:
        state.thread.is_ours = False
    if state.is_blind:
        go_without()
    report(looks=exact)


def fit() -> None:
    """Have folders that were filled with just what is loaded now, before anything is looked up."""
    if not state.given:
        return
    with contextlib.suppress(Exception), state.lock:
        own = own_files()
        if unknown():
            go_without()
        elif any(
            _of(each, own) != {*each["own"]} or not all(_knows(each, path) for path in own)
            for each in state.given.values()
        ):
            _ask_again(exact=True)
    report(state.in_use())


def fit_library(path: str) -> None:
    """Have folders that know of the file, where those in use were filled without it, or with what
    it was before it was built anew."""
    with state.lock:
        if not all(_knows(each, path) for each in state.given.values()):
            _ask_again(loads=path, exact=True)


def fit_variable(name: str, value: str | None) -> None:
    """Have folders for a variable that is about to be set, or where it is None removed."""
    with state.lock:
        if any(_matters(each, name, value) for each in state.given.values()):
            environment = {**os.environ, name: value or ""}
            if value is None:
                del environment[name]
            _ask_again(environment)


def go_without() -> None:
    """No other folders are to be had: empty ones, of which nothing is kept."""
    for each in [each for each in state.given.values() if "alone" not in each]:
        _go_without(each)


def lead_jax(folder: str | None) -> None:
    """JAX looked at the variable when it was imported."""
    jax: Any = sys.modules.get("jax")
    if hasattr(jax, "config"):
        from jax._src import compilation_cache

        jax.config.update("jax_compilation_cache_dir", folder)
        compilation_cache.reset_cache()


# -- asking ----------------------------------------------------------------------------------------


def _answer_to(request: dict[str, Any]) -> dict[str, Any]:
    # Through the folder's descriptor: a socket's path may have 107 bytes.
    folder = os.open(RUN, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(f"/proc/self/fd/{folder}/socket")
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as told:
                answer: dict[str, Any] = json.loads(told.readline() or b"{}")
                return answer
    finally:
        os.close(folder)


def _ask_again(
    environment: dict[str, str] | None = None, loads: str = "", *, exact: bool = False
) -> None:
    """What is in use does not fit any more."""
    before = list(state.given.values())
    with contextlib.suppress(Exception):
        for module in sorted(state.modules):
            ask(module, environment, loads, exact=exact)
    for given in before:
        if state.given.get(given["framework"]) is given:
            _go_without(given)


def _go_without(given: dict[str, Any]) -> None:
    name = f"{given['framework']}.{fresh_name()}"
    variables = {
        variable: path.replace(FOLDERS + given["name"], FOLDERS + name, 1)
        for variable, path in given["variables"].items()
        if os.environ.get(variable) == path  # else the program has a place of its own
    }
    with contextlib.suppress(OSError):
        for path in variables.values():
            os.makedirs(path, exist_ok=True)
    own = sorted(_of(given, own_files()))
    since = time.time_ns() - _CLOCK
    more = {"name": name, "variables": variables, "settings": {}, "own": own, "since": since}
    _use({**given, **more, "alone": True, "restored": "empty"})
    report()


def _use(given: dict[str, Any]) -> None:
    framework = given["framework"]
    before = state.given.get(framework)
    if before is not None and before["name"] != given["name"]:
        state.left[before["name"]] = before["loaded"]
    given["loaded"] = []
    state.given[framework] = given
    os.environ.update(given["variables"])
    for name, value in given["settings"].items():
        os.environ.setdefault(name, value)
    if framework == "jax" and before is not None and given["variables"]:
        lead_jax(next(iter(given["variables"].values())))


# -- whether what is given fits --------------------------------------------------------------------


def _of(given: dict[str, Any], own: set[str]) -> set[str]:
    """Those of the files that are not in the folder's key with the packages they are in."""
    return {path for path in own if not path.startswith(tuple(given["packages"]))}


def _knows(given: dict[str, Any], path: str) -> bool:
    """Whether the folder was filled with the file as it is now."""
    if not _of(given, {path}):
        return True
    try:
        changed = os.stat(path).st_ctime_ns
    except OSError:
        changed = 0
    return path in given["own"] and changed <= given["since"]


def _matters(given: dict[str, Any], name: str, value: str | None) -> bool:
    """Whether the framework reads the variable, and its folder was made for another value."""
    rules = given["rules"]
    if not (name.startswith(tuple(rules["prefixes"])) or name in rules["names"]):
        return False
    for neutral in rules["neutral"]:
        if name == neutral or (neutral.endswith("*") and name.startswith(neutral[:-1])):
            return False
    if value is not None and value == given["settings"].get(name):
        return False
    if not value and name in rules["empty_is_unset"]:
        value = None
    return bool(given["environment"].get(name) != value)
