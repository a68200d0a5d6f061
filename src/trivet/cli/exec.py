"""``trivet exec``: a command whose frameworks' own compile caches are guarded."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet.cli.app import FAILED, NOT_FOUND, app
from trivet.cli.options import CacheDir, LayerDirs, Shared, cache_folder, open_cache, parse_pairs
from trivet.cli.ready import Readiness

if TYPE_CHECKING:
    from trivet.cli.supervise import Program
    from trivet.plans.folders import GuardedRun
    from trivet.plans.folders.lead import Lead, Make

_LOOK = 0.25  # seconds between looks whether the program is ready
# What was compiled may be what killed it; asked to end, a program did nothing wrong.
_FAULTS = {signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT}
_ASKED_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL}
CANNOT_RUN, NOT_THERE = 126, 127  # as shells say it


Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--input",
        metavar="FILE",
        exists=True,
        show_default=False,
        help="A file, or a folder of files, that what is compiled depends on; by content.",
    ),
]
Salts = Annotated[
    list[str] | None,
    typer.Option(
        "--salt",
        metavar="NAME=VALUE",
        show_default=False,
        help="Whatever else is to be kept apart.",
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--folder",
        metavar="VARIABLE",
        show_default=False,
        help="Guard the folder that this environment variable names as well; say with --input "
        "or --salt what it depends on.",
    ),
]
Ready = Annotated[
    str | None,
    typer.Option(
        "--ready",
        metavar="URL|FILE",
        show_default=False,
        help="Keep what was compiled as soon as this answers, or exists.",
    ),
]
KeepOn = Annotated[
    str | None,
    typer.Option(
        "--keep-on",
        metavar="SIGNAL",
        show_default=False,
        help="Keep what was compiled on this signal.",
    ),
]
Wait = Annotated[
    float,
    typer.Option("--wait", min=0.0, help="Seconds to wait for another run that compiles the same."),
]
Explain = Annotated[
    bool,
    typer.Option("--explain", help="Run nothing; say what it would find, and what differs."),
]


@app.command(
    name="exec",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)
def exec_(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND ...", show_default=False)],
    input_: Inputs = None,
    salt: Salts = None,
    folder: Variables = None,
    ready: Ready = None,
    keep_on: KeepOn = None,
    wait: Wait = 600.0,
    explain: Explain = False,
    cache_dir: CacheDir = None,
    shared: Shared = None,
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
    names = tuple(sorted(folder or ()))
    if explain:
        _explain(cache_dir, shared, layer, command, names, input_ or (), salts, json)
        return

    def make(place: Path, started: int) -> GuardedRun:
        from trivet.plans.folders import KNOWN, GuardedRun, declared

        return GuardedRun(
            open_cache(cache_dir, shared, layers=layer),
            (*KNOWN, *map(declared, names)),
            place,
            os.environ,
            command=command,
            inputs=input_ or (),
            salts=salts,
            wait=wait,
            started=started,
            close_cache=True,
        )

    lead = _lead(cache_dir, make, quiet)
    variables: dict[str, str] = {}
    if lead is not None and input_:
        lead.begin()  # before the program could change them
    if lead is not None and names:
        variables = _declared(lead, command)
    readiness = None if ready is None else Readiness(ready)
    program = _start(command, lead, {**os.environ, **variables}, declared=bool(variables))
    if lead is None:
        program.wait()
    else:
        _attend(program, lead, readiness, keep_signal)
        _tell(lead, json, quiet)
    program.end_like_it()


def _explain(
    cache_dir: Path | None,
    shared: Sequence[str] | None,
    layers: Sequence[Path] | None,
    command: Sequence[str],
    folders: Sequence[str],
    inputs: Sequence[Path],
    salts: Mapping[str, str],
    json: bool,
) -> None:
    from trivet.cli.explain import explain_command
    from trivet.cli.options import open_existing
    from trivet.cli.output import Output
    from trivet.errors import TrivetError

    out = Output(json=json)
    try:
        with open_existing(cache_dir, shared, layers=layers) as cache:
            hit = explain_command(out, cache, command, folders, inputs, salts)
    except (TrivetError, OSError) as error:
        out.error(error if isinstance(error, TrivetError) else TrivetError(str(error)))
        raise typer.Exit(FAILED) from None
    if not hit:
        raise typer.Exit(NOT_FOUND)


def _lead(cache_dir: Path | None, make: Make, quiet: bool) -> Lead | None:
    """None where not even a folder can be made for the run."""
    from trivet.plans.folders.lead import Lead
    from trivet.plans.folders.runfolder import parents

    error: OSError | None = None
    root = cache_folder(cache_dir)
    for parent in parents(root):
        try:
            return Lead(parent, make, root)
        except OSError as failed:
            error = failed
    _say(f"trivet: not guarded: {error}", quiet)
    return None


def _declared(lead: Lead, command: Sequence[str]) -> dict[str, str]:
    """Variables for the folders that are filled before the program starts, whatever it is."""
    run = lead.begin()
    if run is None:
        return {}
    from trivet.plans.folders import interpreter_of

    interpreter = interpreter_of(command, os.environ)
    return {} if interpreter is None else run.declared(interpreter)


def _start(
    command: Sequence[str], lead: Lead | None, environment: Mapping[str, str], *, declared: bool
) -> Program:
    """The program; one that can't be started ends this command as a shell would."""
    from trivet.cli.supervise import Program

    if lead is not None:
        environment = lead.environment(environment, declared=declared)
    try:
        return Program(command, environment)
    except OSError as error:
        if lead is not None:
            lead.close()
        _say(f"trivet: {command[0]}: {error.strerror}", quiet=False)
        missing = isinstance(error, FileNotFoundError)
        raise typer.Exit(NOT_THERE if missing else CANNOT_RUN) from None


def _attend(program: Program, lead: Lead, ready: Readiness | None, keep_signal: int | None) -> None:
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(lead, ready, over), daemon=True)
    watcher.start()

    def on_signal(number: int) -> bool:
        if number != keep_signal:
            return False
        if lead.run is not None:
            lead.run.capture()
        return True

    status = program.wait(on_signal)
    over.set()
    lead.wake()
    watcher.join()
    code = os.waitstatus_to_exitcode(status)
    if lead.run is None:
        return
    if -code not in _FAULTS:
        lead.run.capture()
    lead.run.ended(well=code == 0 or -code in _ASKED_TO_END)


def _watch(lead: Lead, ready: Readiness | None, over: threading.Event) -> None:
    """Answer the program's processes, and capture once when it is ready."""
    if ready is not None:
        # Apart, since whoever is asked may take any time, also after the program's end.
        threading.Thread(target=ready.look, args=(over,), daemon=True).start()
    lead.sweep()
    while not over.is_set():
        lead.serve(_LOOK)
        if ready is not None and ready.seen.is_set():
            if lead.run is not None:
                lead.run.capture()
                lead.run.is_ready()
            ready = None


def _tell(lead: Lead, json: bool, quiet: bool) -> None:
    effects = [] if lead.run is None else lead.run.effects()
    left = lead.close()
    if json:
        import msgspec

        from trivet.warm.plain import plain

        document = {"effects": plain(effects), "not_guarded": lead.failed, "left": left}
        _say(msgspec.json.encode(document).decode(), quiet=False)
        return
    if not (effects or left or lead.failed):
        return
    from trivet.cli.effect import effects_in_words

    failed = lead.failed and f"not guarded: {lead.failed}"
    told = "; ".join(filter(None, (failed, effects_in_words(effects), left)))
    if told:
        _say(f"trivet: {told}", quiet)


def _signal(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise typer.BadParameter(f"there is no signal {name}", param_hint="--keep-on") from None


def _say(text: str, quiet: bool) -> None:
    if quiet or sys.stderr is None:
        return
    # Whether anybody can be told is no part of how the program ended.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
