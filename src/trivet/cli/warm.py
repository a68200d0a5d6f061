"""``trivet warm``: get every variant ready before it is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trivet.cli.app import FAILED, command
from trivet.cli.opening import open_cache
from trivet.cli.options import (
    AsJson,
    BackendOptions,
    Backends,
    CacheDir,
    LayerDirs,
    Release,
    ShapeRules,
    Shared,
    parse_pairs,
)
from trivet.cli.output import Column, Output, Span, counted, in_bytes, in_seconds
from trivet.cli.planfile import from_options, read_plan_file
from trivet.cli.words import reason_in_words
from trivet.errors import TrivetError
from trivet.plans.backends.named import BackendName

if TYPE_CHECKING:
    from trivet.warm.planfile import Wanted
    from trivet.warm.readiness import ReadinessServer
    from trivet.warm.status import ModelStatus
    from trivet.warm.warmup import Warmup

Targets = Annotated[
    list[Path], typer.Argument(metavar="MODEL|PLAN.toml", help="Models, or plan files.")
]


class Warmed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one variant. ``seconds`` is the time until it was ready, or had failed."""

    model: str
    backend: str
    shapes: str
    required: bool
    result: str  # cache, compiled, failed, or uncompiled: it can be made, but is not worth keeping
    reason: str = ""
    error: str = ""
    key: str = ""
    seconds: float = 0.0
    bytes: int = 0


@command
def warm(
    targets: Targets,
    backend: Backends = None,
    shapes: ShapeRules = None,
    option: BackendOptions = None,
    release: Release = "",
    serve_ready: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            show_default=False,
            help="Answer http://HOST:PORT/ready until stopped: 503 until everything is ready, then "
            "200, or 500 if something required failed.",
        ),
    ] = None,
    cache_dir: CacheDir = None,
    shared: Shared = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Compile what is missing, verify what is there.

    Prepares every variant of the models before it is needed. Exits with 1 if a required variant
    could not be made.
    """
    from trivet.warm.warmup import Warmup

    out = Output(json=json)
    wanted = read_targets(targets, backend, shapes, option, release)
    with out.logging(), open_cache(cache_dir, shared, layers=layer) as cache:
        if cache.store is None:
            raise TrivetError(
                "nothing can be kept without a cache folder",
                hint="'trivet doctor' says what is the matter with it",
            )
        warmup = Warmup(cache, wanted, keep=False)
        server = _serve(serve_ready, warmup)
        if server is not None:
            out.note(f"{server.address}/ready says how far it is")
        with out.progress("warming") as step:
            warmup.run(lambda number, total, what: step(number, total, what or "warming"))
        done = [row for each in warmup.status().models for row in _warmed(each)]
        out.document({"variants": done}) if json else _print(out, done)
        if server is not None:
            sys.stdout.flush()
            _until_told()
            server.close()
    if any(each.result == "failed" and each.required for each in done):
        raise typer.Exit(FAILED)


def read_targets(
    targets: Sequence[Path],
    backend: BackendName | None,
    shapes: Sequence[str] | None,
    options: Sequence[str] | None,
    release: str,
) -> list[Wanted]:
    """Models and plan files of the command line. Options are for models only."""
    pairs = parse_pairs(options, "--option")
    files = [each for each in targets if each.suffix == ".toml"]
    if files and (backend or shapes or pairs or release):
        raise typer.BadParameter(f"{files[0]} says what the options would; leave them out")
    wanted: list[Wanted] = []
    for each in targets:
        if each in files:
            wanted += read_plan_file(each)
        else:
            wanted.append(from_options(each, backend, shapes, pairs, release))
    return wanted


def _warmed(model: ModelStatus) -> Iterator[Warmed]:
    """A row for each variant; one for a model that could not be read."""
    failed = Warmed(
        model=model.model,
        backend=model.backend,
        shapes="",
        required=model.required,
        result="failed",
        error=model.error,
    )
    if model.error:
        yield failed
    for each in model.variants:
        yield msgspec.structs.replace(
            failed,
            shapes=each.shapes,
            result=each.result,
            reason=each.reason,
            error=each.error,
            key=each.key,
            seconds=each.seconds,
            bytes=each.size,
        )


def _serve(address: str | None, warmup: Warmup) -> ReadinessServer | None:
    """Answer who asks whether it is ready, where that is wanted."""
    if address is None:
        return None
    from trivet.warm.readiness import ReadinessServer

    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) >= 1 << 16:
        raise typer.BadParameter(f"{address!r} is not HOST:PORT", param_hint="--serve-ready")
    return ReadinessServer(warmup, host.strip("[]") or "0.0.0.0", int(port))


def _until_told() -> None:
    """Until somebody asks this process to end."""
    import signal
    import threading

    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    told.wait()


_STYLES = {"cache": "green", "compiled": "yellow", "failed": "bold red", "uncompiled": "dim"}


def _print(out: Output, done: Sequence[Warmed]) -> None:
    out.table(
        [
            Column("model", fold=True),
            Column("backend"),
            Column("shapes", fold=True),
            Column("result"),
            Column("time", right=True),
            Column("size", right=True),
        ],
        [
            (
                Path(each.model).name,
                each.backend,
                each.shapes,
                Span("hit" if each.result == "cache" else each.result, _STYLES[each.result]),
                in_seconds(each.seconds),
                in_bytes(each.bytes) if each.bytes else "",
            )
            for each in done
        ],
    )
    for each in done:
        if each.result == "failed":
            optional = "" if each.required else " (not required)"
            out.line()
            out.line(
                (
                    Span(f"{_what(each)} failed{optional}: ", "red"),
                    each.error,
                )
            )
        elif each.error:
            out.line()
            out.line(f"{_what(each)} runs uncompiled: {each.error}")
        elif each.reason not in ("", "absent"):
            out.line()
            out.line(f"{_what(each)}: {reason_in_words(each.reason)}")
    counts = {result: sum(each.result == result for each in done) for result in _STYLES}
    out.line()
    out.line(
        f"{counted(len(done), 'variant')}: {counts['cache']} stored already, "
        f"{counts['compiled']} compiled, {counts['failed']} failed"
        + (f", {counts['uncompiled']} not worth keeping" if counts["uncompiled"] else "")
    )


def _what(each: Warmed) -> str:
    return f"{Path(each.model).name} {each.shapes}".rstrip()
