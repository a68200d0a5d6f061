"""Guarding the frameworks of this very process, without a command around it.

The process asks itself, as the programs under ``trivet exec`` ask that command, and so do those
that it starts: pools of compilers, workers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from trivet import log
from trivet.cache import Cache
from trivet.cache.coordinator import WAIT_SECONDS
from trivet.errors import BackendError
from trivet.plans.folders.checkpoint import checkpoint
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.frameworks import KNOWN
from trivet.plans.folders.requests import Requests
from trivet.plans.folders.runfolder import HOOK, VARIABLE, RunFolder, parents
from trivet.plans.folders.session import GuardedRun

_LOOK = 60.0  # seconds between looks; `Requests.wake` ends one
_AT_THE_END = 5.0  # seconds for what is still being answered
_STARTER = "trivet_exec_start"
_CLOCK = 20_000_000  # nanoseconds; what the start of a process may be off by
_PREFIX = "trivet_exec_"  # of all modules of the hook
_STAYS = "trivet_exec_once"  # of these, when the guard is over


def _process_start() -> int:
    """When this process began, in nanoseconds since the epoch."""
    # Field 22; the second one, the command in parentheses, may contain anything.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + since - _CLOCK


# What was loaded before the guard was entered counts as well. A forked child has it of its parent.
_BEGAN = _process_start()


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

    Under ``trivet exec`` that command guards, and is asked to keep at the end. Inside another
    ``guarded`` of this process that one guards, and what was compiled is kept at the end of either.

    Args:
        cache: where folders are kept.
        frameworks: by name, such as ``"torch"``; ones that are not installed are left out.
        inputs: files, or folders of files, that compiled things depend on.
        salts: whatever else is to be kept apart.
        wait: seconds to wait for another run of this program that is filling the folders.

    Raises `BackendError` for a name that nobody knows, where a framework has already read where
    its cache lies, and inside a ``guarded`` of another cache, or of fewer frameworks, inputs or
    salts; `OSError` where no folder can be made for the run.
    """
    global _guard
    asked = _Asked(cache, frozenset(frameworks), {Path(each) for each in inputs}, salts or {})
    around = _guard
    if around is not None and around.process == os.getpid():
        with _nested(around, asked) as run:
            yield run
        return
    under_exec = VARIABLE in os.environ
    wanted = () if under_exec else _known(frameworks)
    _require_unread(wanted)
    before, process = dict(os.environ), os.getpid()
    place = _run_folder(cache)
    try:
        run = GuardedRun(
            cache,
            wanted,
            place.path,
            before,
            command=sys.orig_argv,
            inputs=[Path(each) for each in inputs],
            salts=salts,
            wait=wait,
            started=_BEGAN,
        )
    except BaseException:
        place.close(check=False)
        raise
    if not under_exec:
        _guard = _Guard(process, asked, run)
    own = contextlib.nullcontext() if under_exec else _asked_of(run, place, wanted, before)
    try:
        with own:
            try:
                yield run
            finally:
                if os.getpid() == process:
                    checkpoint() if under_exec else run.capture()
    finally:
        _guard = None
        if os.getpid() == process:  # a forked child neither keeps nor removes what is its parent's
            _put_back(before, place.path, wanted)
            run.close()
            place.close(check=False)


@contextlib.contextmanager
def _asked_of(
    run: GuardedRun,
    place: RunFolder,
    frameworks: Sequence[CacheFolder],
    before: Mapping[str, str],
) -> Iterator[None]:
    """Have this process, and those that it starts, ask for folders, and answer them."""
    process, over = os.getpid(), threading.Event()
    requests = Requests(place.path)
    os.environ.update(place.environment(os.environ, declared=False))
    starter = _load_starter()
    hook = starter._hook()

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        hook.leave_alone()  # the thread that asks holds what a report needs
        return run.answer(asked)

    def serve() -> None:
        try:
            while not over.is_set():
                requests.serve(answer, _LOOK)
        except Exception as error:  # noqa: BLE001  whoever asks must not wait for an answer
            log.warning("the guard answers no more: %s", error)
            requests.close(0.0)

    server = threading.Thread(target=serve, name="trivet-guarded", daemon=True)
    server.start()
    try:
        for name, function in starter.WATCHED.items():
            if name in sys.modules:
                hook.watch(function, sys.modules[name])
        for framework in frameworks:
            for module in framework.modules or ("",):
                hook.enter(module)
        yield
    finally:
        if os.getpid() == process:
            over.set()
            requests.wake()
            server.join()
            requests.close(_AT_THE_END)
            hook.leave(before.get("JAX_COMPILATION_CACHE_DIR"))
            sys.meta_path[:] = [each for each in sys.meta_path if type(each).__module__ != _STARTER]
            for name in [
                each for each in sys.modules if each.startswith(_PREFIX) and each != _STAYS
            ]:
                sys.modules.pop(name, None)


class _Asked(NamedTuple):
    """What a ``guarded`` was given."""

    cache: Cache
    frameworks: frozenset[str]
    inputs: set[Path]
    salts: Mapping[str, str]


class _Guard(NamedTuple):
    """The ``guarded`` that this process, or one that it was forked from, is in."""

    process: int
    asked: _Asked
    run: GuardedRun


_guard: _Guard | None = None


@contextlib.contextmanager
def _nested(around: _Guard, asked: _Asked) -> Iterator[GuardedRun]:
    _require_covered(around.asked, asked)
    try:
        yield around.run
    finally:
        if os.getpid() == around.process:
            around.run.capture()


def _require_covered(around: _Asked, asked: _Asked) -> None:
    _known([*asked.frameworks])
    roots = {getattr(each.cache.store, "root", None) for each in (around, asked)}
    given = {
        "cache": around.cache is asked.cache or (len(roots) == 1 and None not in roots),
        "frameworks": asked.frameworks <= around.frameworks,
        "inputs": asked.inputs <= around.inputs,
        "salts": asked.salts.items() <= around.salts.items(),
    }
    differ = [name for name, same in given.items() if not same]
    if differ:
        raise BackendError(
            f"guarded() inside another one that was not given its {' and '.join(differ)}",
            hint="a process has one guard: give the outer guarded() all that the inner one needs",
        )


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


def _run_folder(cache: Cache) -> RunFolder:
    failed: OSError | None = None
    root = getattr(cache.store, "root", None)  # of one on this host's disk
    for parent in parents(root):
        try:
            made = RunFolder(parent)
        except OSError as error:
            failed = error
        else:
            made.sweep(root)
            return made
    assert failed is not None
    raise failed


def _load_starter() -> ModuleType:
    """What watches imports in a program under ``trivet exec``, for this process."""
    spec = importlib.util.spec_from_file_location(_STARTER, HOOK / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[_STARTER] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _put_back(before: Mapping[str, str], place: Path, frameworks: Sequence[CacheFolder]) -> None:
    """The environment as it was, also where frameworks have set variables that lead inside."""
    for name, value in [each for known in frameworks for each in known.settings.items()]:
        if name not in before and os.environ.get(name) == value:
            os.environ.pop(name)
    for name, value in list(os.environ.items()):
        if str(place) in value:
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]
    if os.environ.get("PYTHONPATH", "").startswith(str(HOOK)):
        os.environ.pop("PYTHONPATH")
        if "PYTHONPATH" in before:
            os.environ["PYTHONPATH"] = before["PYTHONPATH"]
