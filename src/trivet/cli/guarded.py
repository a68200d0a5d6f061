"""Running a command with its frameworks' compile caches guarded: what ``trivet exec`` does.

No parser is imported here, since somebody waits for the command; see `trivet.cli.quick`.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from trivet.cli.opening import cache_folder, open_cache
from trivet.cli.ready import Readiness
from trivet.cli.supervise import Program, become
from trivet.errors import StoreUnavailable

if TYPE_CHECKING:
    from trivet.cli.keeper import Keeper
    from trivet.plans.folders import Effect, GuardedRun
    from trivet.plans.folders.lead import Lead, Make

WAIT = 600.0  # seconds
_TOLD = 1.0  # seconds in which somebody has to read what is said
CANNOT_RUN, NOT_THERE = 126, 127  # as shells say it
_PYTHON = re.compile(rb"python[\d.]*[a-z]?$|^#!.*python")


class ExecOptions(NamedTuple):
    """The command and options of ``trivet exec``; ``folders`` are environment variables."""

    command: tuple[str, ...]
    inputs: tuple[Path, ...] = ()
    salts: Mapping[str, str] = {}
    folders: tuple[str, ...] = ()
    ready: str | None = None
    keep_on: int | None = None
    wait: float = WAIT
    cache_dir: Path | None = None
    shared: tuple[str, ...] = ()
    layers: tuple[Path, ...] = ()
    json: bool = False
    quiet: bool = False


def run(options: ExecOptions) -> NoReturn:
    """Run the command, and end as it does."""

    def make(place: Path, started: int) -> GuardedRun:
        from trivet.plans.folders import KNOWN, GuardedRun, declared

        return GuardedRun(
            open_cache(options.cache_dir, options.shared, layers=options.layers),
            (*KNOWN, *map(declared, options.folders)),
            place,
            os.environ,
            command=options.command,
            inputs=options.inputs,
            salts=options.salts,
            wait=options.wait,
            started=started,
            close_cache=True,
        )

    lead = _lead(options, make)
    keeper = None if lead is None else _keeper(lead, options)
    # Before the program could change inputs.
    begins = keeper is not None and (options.folders or options.inputs)
    variables = keeper.begin() if keeper is not None and begins else {}
    environment = {**os.environ, **variables}
    if lead is not None and keeper is not None:
        environment = lead.environment(environment, declared=bool(variables))
    program = _start(options.command, keeper, environment)

    def on_signal(number: int) -> bool:
        if keeper is None or number != options.keep_on:
            return False
        keeper.keep()
        return True

    status = program.wait(on_signal)
    if keeper is not None:
        told, failed = keeper.end(status, program.somebody_wants_an_end)
        told = told or (failed and _in_words(options.json, [], failed, ""))
        _say(told, options.quiet and not options.json)
    program.end_like_it()


def _lead(options: ExecOptions, make: Make) -> Lead | None:
    """None where not even a folder can be made for the run."""
    from trivet.plans.folders.lead import Lead
    from trivet.plans.folders.runfolder import parents

    error: OSError | None = None
    root: Path | None = None
    with contextlib.suppress(StoreUnavailable):  # said when the cache is to be opened
        root = cache_folder(options.cache_dir)
    for parent in parents(root):
        try:
            return Lead(parent, make, root)
        except OSError as failed:
            error = failed
    _say(f"trivet: not guarded: {error}", options.quiet)
    return None


def _keeper(lead: Lead, options: ExecOptions) -> Keeper | None:
    from trivet.cli.keeper import Guard, Keeper

    def prepare() -> None:
        if _may_be_python(options.command[0]):
            import trivet.plans.folders.session  # noqa: F401  while the program starts

    def declare() -> Mapping[str, str]:
        run = lead.begin()
        if run is None or not options.folders:
            return {}
        from trivet.plans.folders import interpreter_of

        interpreter = interpreter_of(options.command, os.environ)
        return {} if interpreter is None else run.declared(interpreter)

    def tell() -> str:
        effects = [] if lead.run is None else lead.run.effects()
        return _in_words(options.json, effects, lead.failed, lead.close())

    ready = None if options.ready is None else Readiness(options.ready)
    try:
        return Keeper(Guard(lead, ready, prepare, declare, tell))
    except OSError as error:
        lead.abandon()
        _say(f"trivet: not guarded: {error}", options.quiet)
        return None


def _may_be_python(program: str) -> bool:
    """Whether it is likely that a framework will be imported, judged by name and first line."""
    import shutil

    head = os.fsencode(program)
    found = shutil.which(program)
    if found is not None and not _PYTHON.search(head):
        with contextlib.suppress(OSError), open(found, "rb") as file:
            head = file.read(128)
    return bool(_PYTHON.search(head))


def _start(
    command: Sequence[str], keeper: Keeper | None, environment: Mapping[str, str]
) -> Program:
    """The program; one that can't be started ends this command as a shell would."""
    try:
        try:
            return Program(command, environment)
        except OSError as failed:
            if keeper is not None:
                keeper.end(None, lambda: False)
            if failed.filename is not None:
                raise
            _say(f"trivet: not guarded: {failed}", quiet=False)
            become(command, os.environ)  # which needs no second process
    except OSError as error:
        _say(f"trivet: {command[0]}: {error.strerror}", quiet=False)
        missing = isinstance(error, FileNotFoundError)
        raise SystemExit(NOT_THERE if missing else CANNOT_RUN) from None


def _in_words(json: bool, effects: Sequence[Effect], failed: str, left: str) -> str:
    """What came of it; empty where there is nothing to say."""
    if json:
        import msgspec

        from trivet.warm.plain import plain

        document = {"effects": plain(effects), "not_guarded": failed, "left": left}
        return msgspec.json.encode(document).decode()
    if not (effects or left or failed):
        return ""
    from trivet.cli.effect import effects_in_words

    failed = failed and f"not guarded: {failed}"
    told = "; ".join(filter(None, (failed, effects_in_words(effects), left)))
    return told and f"trivet: {told}"


def _say(text: str, quiet: bool) -> None:
    if quiet or not text or sys.stderr is None:
        return
    # Whether anybody can be told is no part of how the program ended, nor when.
    with contextlib.suppress(OSError, ValueError):
        if not select.select([], [sys.stderr], [], _TOLD)[1]:
            return
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
