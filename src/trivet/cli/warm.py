"""``trivet warm``: get every variant ready before it is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trivet.cli.app import FAILED, command
from trivet.cli.options import (
    AsJson,
    BackendName,
    BackendOptions,
    Backends,
    CacheDir,
    LayerDirs,
    Release,
    ShapeRules,
    Threads,
    open_cache,
    parse_pairs,
)
from trivet.cli.output import Column, Output, Span, counted, in_bytes, in_seconds
from trivet.cli.planfile import Wanted, from_options, read_plan_file
from trivet.cli.words import reason_in_words
from trivet.errors import BackendError, ModelError, ShapeError, TrivetError

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.plans.plans import Plans
    from trivet.plans.shapes import Variant

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
    threads: Threads = None,
    release: Release = "",
    cache_dir: CacheDir = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Compile what is missing, verify what is there.

    Gets every variant of some models ready before it is needed.

    Exits with 1 when a variant that is required could not be made.
    """
    out = Output(json=json)
    wanted = read_targets(targets, backend, shapes, threads, option, release)
    with out.logging(), open_cache(cache_dir, layer) as cache:
        if cache.store is None:
            raise TrivetError(
                "nothing can be kept without a cache folder",
                hint="'trivet doctor' says what is the matter with it",
            )
        done = list(_warm_all(cache, wanted, out))
    out.document({"variants": done}) if json else _print(out, done)
    if any(each.result == "failed" and each.required for each in done):
        raise typer.Exit(FAILED)


def read_targets(
    targets: Sequence[Path],
    backend: BackendName | None,
    shapes: Sequence[str] | None,
    threads: int | None,
    options: Sequence[str] | None,
    release: str,
) -> list[Wanted]:
    """Models and plan files of the command line. Options are for models only."""
    pairs = parse_pairs(options, "--option")
    files = [each for each in targets if each.suffix == ".toml"]
    if files and (backend or shapes or threads or pairs or release):
        raise typer.BadParameter(f"{files[0]} says what the options would; leave them out")
    wanted: list[Wanted] = []
    for each in targets:
        if each in files:
            wanted += read_plan_file(each)
        else:
            wanted.append(from_options(each, backend, shapes, threads, pairs, release))
    return wanted


def _warm_all(cache: Cache, wanted: Sequence[Wanted], out: Output) -> Iterator[Warmed]:
    from trivet.plans.plans import Plans

    with out.progress("warming") as step:
        for number, each in enumerate(wanted):
            plans = Plans(
                cache, each.backend, release=each.release, on_failure="refuse", key_limit=1 << 30
            )
            try:
                variants = plans.open(each.path, each.shapes).variants()
            except (ModelError, ShapeError, BackendError) as error:
                yield _failed(each, "", error, 0.0)
                continue
            for index, variant in enumerate(variants):
                what = f"{each.path.name} {index + 1} of {len(variants)}"
                step(number + index / len(variants), len(wanted), what)
                yield _warm_one(plans, each, variant)
            step(number + 1, len(wanted), each.path.name)


def _warm_one(plans: Plans, wanted: Wanted, variant: Variant) -> Warmed:
    start = time.perf_counter()
    try:
        # A plan of its own for each variant: one that holds them all would fill the memory.
        loaded = plans.open(wanted.path, wanted.shapes).prepare(variant)[0]
    except TrivetError as error:
        return _failed(wanted, str(variant), error, time.perf_counter() - start)
    size = loaded.artifact.descriptor.size if loaded.artifact is not None else 0
    return Warmed(
        model=str(wanted.path),
        backend=wanted.backend.name,
        shapes=str(variant),
        required=wanted.required,
        result=loaded.source,
        reason=loaded.reason,
        error=loaded.error,
        key=loaded.key.digest.hex(),
        seconds=round(time.perf_counter() - start, 6),
        bytes=size,
    )


def _failed(wanted: Wanted, shapes: str, error: TrivetError, seconds: float) -> Warmed:
    return Warmed(
        model=str(wanted.path),
        backend=wanted.backend.name,
        shapes=shapes,
        required=wanted.required,
        result="failed",
        error=error.message,
        seconds=round(seconds, 6),
    )


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
