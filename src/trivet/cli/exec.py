"""``trivet exec``: a command whose frameworks' own compile caches are guarded."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from trivet.cli.app import FAILED, NOT_FOUND, app
from trivet.cli.guarded import WAIT, ExecOptions, run
from trivet.cli.options import CacheDir, LayerDirs, Shared, parse_pairs

Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--input",
        metavar="FILE",
        exists=True,
        show_default=False,
        help="A file or folder that compiled code depends on, by content; may be repeated.",
    ),
]
Salts = Annotated[
    list[str] | None,
    typer.Option(
        "--salt",
        metavar="NAME=VALUE",
        show_default=False,
        help="Anything else that belongs in the key; may be repeated.",
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--folder",
        metavar="VARIABLE",
        show_default=False,
        help="Also guard the folder named by this environment variable; declare with --input or "
        "--salt what it depends on.",
    ),
]
Ready = Annotated[
    str | None,
    typer.Option(
        "--ready",
        metavar="URL|FILE",
        show_default=False,
        help="Keep what was compiled as soon as this URL answers or this file is written.",
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
    typer.Option("--wait", min=0.0, help="Seconds to wait for a run that compiles the same."),
]
Explain = Annotated[
    bool,
    typer.Option("--explain", help="Run nothing; show what it would find, and what differs."),
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
    wait: Wait = WAIT,
    explain: Explain = False,
    cache_dir: CacheDir = None,
    shared: Shared = None,
    layer: LayerDirs = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the report as one JSON line.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Run a command with its frameworks' compile caches guarded.

    PyTorch, Triton, JAX and vLLM keep compiled code in folders. Each gets a private one, filled
    with the verified output of an earlier run with the same versions, processor, environment and
    inputs. Exit code, signals, input and output are those of the command. Afterwards, one line on
    stderr reports hits and misses.
    """
    keep_signal = _signal(keep_on)
    salts = parse_pairs(salt, "--salt")
    if folder and not (salts or input_):
        raise typer.BadParameter(
            "what do the things in it depend on? Name files by --input, versions by --salt",
            param_hint="--folder",
        )
    options = ExecOptions(
        command=tuple(command),
        inputs=tuple(input_ or ()),
        salts=salts,
        folders=tuple(sorted(folder or ())),
        ready=ready,
        keep_on=keep_signal,
        wait=wait,
        cache_dir=cache_dir,
        shared=tuple(shared or ()),
        layers=tuple(layer or ()),
        json=json,
        quiet=quiet,
    )
    if explain:
        _explain(options)
        return
    run(options)


def _explain(options: ExecOptions) -> None:
    from trivet.cli.explain import explain_command
    from trivet.cli.opening import open_existing
    from trivet.cli.output import Output
    from trivet.errors import TrivetError

    out = Output(json=options.json)
    try:
        with open_existing(options.cache_dir, options.shared, layers=options.layers) as cache:
            hit = explain_command(out, cache, options)
    except (TrivetError, OSError) as error:
        out.error(error if isinstance(error, TrivetError) else TrivetError(str(error)))
        raise typer.Exit(FAILED) from None
    if not hit:
        raise typer.Exit(NOT_FOUND)


def _signal(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise typer.BadParameter(f"there is no signal {name}", param_hint="--keep-on") from None
