"""Guarding the frameworks of this very process, without a command around it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trivet.cache import Cache
from trivet.cache.cache import WAIT_SECONDS
from trivet.errors import BackendError
from trivet.plans.folders.checkpoint import VARIABLE, checkpoint
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.frameworks import KNOWN
from trivet.plans.folders.interpreter import Interpreter
from trivet.plans.folders.reports import HOOK, REPORTS_VARIABLE
from trivet.plans.folders.session import GuardedRun

_HOOK = "trivet_exec_hook"  # as it calls itself where it is run by a command


@contextlib.contextmanager
def guarded(
    cache: Cache,
    *frameworks: str,
    inputs: Sequence[str | os.PathLike[str]] = (),
    salts: Mapping[str, str] | None = None,
    wait: float = WAIT_SECONDS,
) -> Iterator[GuardedRun]:
    """Give frameworks of this process private cache folders, as ``trivet exec`` gives to a program.

    What an earlier run under the very same conditions compiled is restored, verified, and what this
    one adds is kept at the end, also after an exception, and whenever `GuardedRun.capture` is
    called. The folders are gone after that, and the environment is as before. A store that fails
    makes empty folders.

    Under ``trivet exec`` that command guards, and is asked to keep at the end.

    Args:
        cache: where folders are kept.
        frameworks: by name, such as ``"torch"``; ones that are not installed are left out.
        inputs: files, or folders of files, that compiled things depend on.
        salts: whatever else is to be kept apart.
        wait: seconds to wait for another run of this program that is filling the folders.

    Raises `BackendError` for a name that nobody knows, and where a framework has already read where
    its cache lies.
    """
    wanted = () if VARIABLE in os.environ else _known(frameworks)
    _require_unread(wanted)
    run = GuardedRun(
        cache,
        wanted,
        _this_interpreter(),
        os.environ,
        command=sys.orig_argv,
        inputs=[Path(each) for each in inputs],
        salts=salts,
        wait=wait,
    )
    before, process = dict(os.environ), os.getpid()
    try:
        if wanted:
            _load_hook(run.reports)
        os.environ.update(run.variables())
        yield run
    finally:
        if os.getpid() == process:  # a forked child neither keeps nor removes what is its parent's
            checkpoint()
            run.capture()
            _put_back(before, run)
            run.close()


def _known(names: Sequence[str]) -> tuple[CacheFolder, ...]:
    unknown = set(names) - {each.name for each in KNOWN}
    if unknown or not names:
        raise BackendError(
            f"guarded() takes names of frameworks, got {', '.join(sorted(unknown)) or 'none'}",
            hint=f"known are {', '.join(each.name for each in KNOWN)}",
        )
    return tuple(each for each in KNOWN if each.name in names)


def _require_unread(frameworks: Sequence[CacheFolder]) -> None:
    for each in frameworks:
        if each.read_by in sys.modules:
            raise BackendError(
                f"{each.read_by} is imported already, and may hold on to another cache folder",
                hint="enter guarded() before the first torch.compile and before anything that "
                f"imports {each.read_by}, or run the program under trivet exec",
            )


def _this_interpreter() -> Interpreter:
    return Interpreter(
        executable=sys.executable,
        version=sys.version,
        tag=str(sys.implementation.cache_tag),
        path=list(sys.path),
    )


def _load_hook(reports: Path) -> None:
    """What reports counters and operators of a program under ``trivet exec``, for this process."""
    spec = importlib.util.spec_from_file_location(_HOOK, HOOK / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[_HOOK] = importlib.util.module_from_spec(spec)
    os.environ[REPORTS_VARIABLE] = str(reports)
    try:
        spec.loader.exec_module(module)
    finally:
        del os.environ[REPORTS_VARIABLE]


def _put_back(before: Mapping[str, str], run: GuardedRun) -> None:
    """The environment as it was, also where frameworks have set variables that lead inside."""
    private = tuple(str(each.path) for each in run.folders)
    for name, value in list(os.environ.items()):
        if name in run.variables() or value.startswith(private or ("\0",)):
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]
