"""``trivet exec``: a command whose frameworks' own compile caches are guarded."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trivet.cli.app import app
from trivet.cli.options import CacheDir, LayerDirs, open_cache, parse_pairs
from trivet.cli.output import in_bytes, in_seconds, plain
from trivet.errors import TrivetError

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.cli.supervise import Program
    from trivet.plans.folders import Effect, GuardedRun

_LOOK = 0.25  # seconds between looks whether the program is ready
# What was compiled may be what killed it; asked to end, a program did nothing wrong.
_FAULTS = {signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT}
_ASKED_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL}
CANNOT_RUN, NOT_THERE = 126, 127  # as shells say it


@app.command(
    name="exec",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)
def exec_(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND ...", show_default=False)],
    input_: Annotated[
        list[Path] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            exists=True,
            show_default=False,
            help="A file, or a folder of files, that what is compiled depends on; by content.",
        ),
    ] = None,
    salt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", show_default=False, help="Whatever else is to be kept apart."
        ),
    ] = None,
    folder: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VARIABLE",
            show_default=False,
            help="Guard the folder that this environment variable names as well; say with --input "
            "or --salt what it depends on.",
        ),
    ] = None,
    ready: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FILE",
            show_default=False,
            help="Keep what was compiled as soon as this answers, or exists.",
        ),
    ] = None,
    keep_on: Annotated[
        str | None,
        typer.Option(
            metavar="SIGNAL", show_default=False, help="Keep what was compiled on this signal."
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds to wait for another run that compiles the same."),
    ] = 600.0,
    cache_dir: CacheDir = None,
    layer: LayerDirs = None,
    json: Annotated[bool, typer.Option("--json", help="Say it as one JSON line.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing.")] = False,
) -> None:
    """Run a command with its frameworks' compile caches guarded.

    PyTorch, Triton, JAX and vLLM keep compiled code in folders. Each gets a private one, filled
    from what an earlier run under the very same versions, processor, environment and inputs left,
    and verified. Exit code, signals, input and output are those of the command. Afterwards, one
    line on stderr says what it was good for.
    """
    keep_signal = _signal(keep_on)
    salts = parse_pairs(salt, "--salt")
    if folder and not (salts or input_):
        raise typer.BadParameter(
            "what do the things in it depend on? Name files by --input, versions by --salt",
            param_hint="--folder",
        )
    with open_cache(cache_dir, layer) as cache:
        try:
            run = _guard(cache, command, folder or (), input_ or (), salts, wait)
        except (TrivetError, OSError) as error:
            run = None
            _say(f"trivet: not guarded: {error}", quiet)
        readiness = None if ready is None else _Readiness(ready)
        program = _start(command, run)
        if run is None:
            program.wait()
        else:
            _attend(program, run, readiness, keep_signal)
            _tell(run.effects(), json, quiet)
            run.close()
    program.end_like_it()


def _guard(
    cache: Cache,
    command: Sequence[str],
    folders: Sequence[str],
    inputs: Sequence[Path],
    salts: Mapping[str, str],
    wait: float,
) -> GuardedRun | None:
    """The guard of a command; None where there is no Python whose frameworks could be guarded."""
    from trivet.plans.folders import KNOWN, GuardedRun, declared, interpreter_of

    interpreter = interpreter_of(command, os.environ)
    if interpreter is None:
        return None
    frameworks = (*KNOWN, *map(declared, sorted(folders)))
    return GuardedRun(
        cache,
        frameworks,
        interpreter,
        os.environ,
        command=command,
        inputs=inputs,
        salts=salts,
        wait=wait,
    )


def _start(command: Sequence[str], run: GuardedRun | None) -> Program:
    """The program; one that can't be started ends this command as a shell would."""
    from trivet.cli.supervise import Program

    try:
        return Program(command, run.environment if run else os.environ)
    except OSError as error:
        if run is not None:
            run.close()
        _say(f"trivet: {command[0]}: {error.strerror}", quiet=False)
        missing = isinstance(error, FileNotFoundError)
        raise typer.Exit(NOT_THERE if missing else CANNOT_RUN) from None


def _attend(
    program: Program, run: GuardedRun, ready: _Readiness | None, keep_signal: int | None
) -> None:
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(run, ready, over), daemon=True)
    watcher.start()

    def on_signal(number: int) -> bool:
        if number != keep_signal:
            return False
        run.capture()
        return True

    status = program.wait(on_signal)
    over.set()
    watcher.join()
    code = os.waitstatus_to_exitcode(status)
    if -code not in _FAULTS:
        run.capture()
    run.ended(well=code == 0 or -code in _ASKED_TO_END)


def _watch(run: GuardedRun, ready: _Readiness | None, over: threading.Event) -> None:
    """Capture when the program asks for it, and once when it is ready."""
    if ready is not None:
        # Apart, since whoever is asked may take any time, also after the program's end.
        threading.Thread(target=ready.look, args=(over,), daemon=True).start()
    while not over.is_set():
        run.checkpoints.serve(run.capture, _LOOK)
        if ready is not None and ready.seen.is_set():
            run.capture()
            run.is_ready()
            ready = None


class _Readiness:
    """What tells that a program is ready; a file left by an earlier one does not."""

    def __init__(self, ready: str) -> None:
        self._ready = ready
        self._before = self._stamp()
        self.seen = threading.Event()
        # What is asked is this machine: never by way of a proxy.
        self._ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def look(self, over: threading.Event) -> None:
        """Until it is ready or ``over``."""
        while not over.is_set():
            if self._is_ready():
                self.seen.set()
                return
            over.wait(_LOOK)

    def _is_ready(self) -> bool:
        if "://" not in self._ready:
            return self._stamp() not in (None, self._before)
        try:
            with self._ask.open(self._ready, timeout=5.0) as answer:
                return bool(200 <= (answer.status or 0) < 300)
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            facts = os.stat(self._ready)
        except (OSError, ValueError):
            return None
        return (facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns)


def _signal(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise typer.BadParameter(f"there is no signal {name}", param_hint="--keep-on") from None


def _tell(effects: Sequence[Effect], json: bool, quiet: bool) -> None:
    if json:
        _say(msgspec.json.encode({"effects": plain(effects)}).decode(), quiet=False)
        return
    told = "; ".join(filter(None, map(_in_words, effects)))
    if told:
        _say(f"trivet: {told}", quiet)


def _in_words(effect: Effect) -> str:
    """One framework's part of the line; nothing where it was not used."""
    counters = effect.counters
    if not effect.files and not effect.added and not (counters and counters.used):
        return ""
    parts = [f"{effect.framework}: "]
    if effect.restored == "hit":
        parts.append(f"restored {effect.files} files ({in_bytes(effect.size)})")
        if counters is not None and not counters.hits:
            parts.append(
                ", but nothing of it was used: the program compiled other things"
                if counters.misses
                else ", but the program compiled nothing"
            )
    else:
        parts.append(f"nothing restored ({effect.reason or effect.restored})")
    if counters is not None and counters.used:
        parts.append(f", {counters.hits} hits, {counters.misses} misses")
        if counters.saved_seconds >= 0.05:
            parts.append(f", {in_seconds(counters.saved_seconds)} spared")
    elif counters is None:
        parts.append(", no counters reported")
    if effect.added:
        parts.append(f", kept {effect.added} {'more ' if effect.files else ''}files")
    return "".join(parts)


def _say(text: str, quiet: bool) -> None:
    if quiet or sys.stderr is None:
        return
    # Whether anybody can be told is no part of how the program ended.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
