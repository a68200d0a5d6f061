"""The command group, and what happens to errors on their way out."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from trivet import __version__
from trivet.errors import TrivetError

FAILED = 1
NOT_FOUND = 3
INTERRUPTED = 130
PIPE_CLOSED = 141

# Modules with a command each or some, in the order of the help text.
COMMANDS = (
    "run",
    "exec",
    "warm",
    "gate",
    "fill",
    "why",
    "fingerprint",
    "browse",
    "stats",
    "usage",
    "keep",
    "expire",
    "bundle",
    "doctor",
    "audit",
)

app = typer.Typer(
    help="A cache for AI inference. It compiles a model once per machine, verifies the result at "
    "every load, and says why when it can't be used.",
    epilog="Exit codes: 0 done, 1 failed or found wrong, 2 wrong usage, 3 not found or would miss.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trivet {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options of ``trivet`` itself."""


def command(run: Callable[..., None], group: typer.Typer = app) -> Callable[..., None]:
    """Register a function as the command of its name, in ``group``.

    An error of this package or of the operating system becomes a message on stderr, with ``--json``
    a document on stdout as well, and exit code 1. With TRIVET_DEBUG=1 its traceback is shown, too.
    """

    @functools.wraps(run)
    def guarded(**arguments: Any) -> None:
        try:
            run(**arguments)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(PIPE_CLOSED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except (TrivetError, OSError) as error:
            if os.environ.get("TRIVET_DEBUG", "0") not in ("", "0"):
                import traceback

                traceback.print_exc()
            from trivet.cli.output import Output

            known = error if isinstance(error, TrivetError) else TrivetError(str(error))
            try:
                Output(json=arguments["json"]).error(known)
                sys.stdout.flush()
            except OSError:  # standard output is what failed, by a full disk
                _forget_stdout()
            raise typer.Exit(FAILED) from None

    group.command(name=run.__name__)(guarded)
    return run


def _forget_stdout() -> None:
    """The interpreter flushes stdout once more at exit, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def invoke(arguments: Sequence[str] | None) -> int:
    """Run one command line; returns the exit code."""
    named = next(iter(sys.argv[1:] if arguments is None else arguments), "")
    # `exec` stands before a program that somebody waits for.
    for each in ("exec",) if named == "exec" else COMMANDS:
        import_module(f"trivet.cli.{each}")

    # A process may be started without standard streams; there is nowhere to write then.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    try:
        app(arguments, prog_name="trivet")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    return 0
