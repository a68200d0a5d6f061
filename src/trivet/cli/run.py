"""``trivet run``: load a plan as a server would, run it, and say where the time went."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trivet.cli import planfile
from trivet.cli.app import command
from trivet.cli.opening import open_cache
from trivet.cli.options import (
    AsJson,
    BackendOptions,
    Backends,
    CacheDir,
    LayerDirs,
    ModelFile,
    Release,
    ShapeRules,
    Shared,
    parse_pairs,
)
from trivet.cli.output import Column, Output, Span, Styled
from trivet.cli.process import age_seconds
from trivet.cli.words import bucket_in_words, reason_in_words
from trivet.errors import ShapeError, TrivetError
from trivet.plans.model import backend_in_words, shape_in_words

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays, TensorInfo
    from trivet.plans.plan import Plan
    from trivet.plans.shapes import Variant
    from trivet.warm.planfile import Wanted


class RunReport(msgspec.Struct, kw_only=True):
    """What ``trivet run --json`` prints. Times are in milliseconds, shapes are lists of sizes."""

    model: str
    backend: str
    version: str
    source: str  # cache, compiled or uncompiled
    reason: str  # why it was not a hit; empty for one
    error: str  # why there is no plan; empty when there is one
    key: str
    shapes: str
    phases: dict[str, dict[str, float]]
    wall_ms: float
    cpu_ms: float
    outputs: dict[str, dict[str, Any]]
    output: str | None


@command
def run(
    model: ModelFile,
    backend: Backends = None,
    shapes: ShapeRules = None,
    option: BackendOptions = None,
    release: Release = "",
    input_: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            show_default=False,
            help="An input of the model; others are made up. May be repeated.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz", show_default=False, help="Write the outputs to this file."
        ),
    ] = None,
    cache_dir: CacheDir = None,
    shared: Shared = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Load a model's plan, run it, and show where the time went.

    Compiles the plan if no usable one is stored. If it can't be made, the model runs uncompiled,
    and the output says why.
    """
    started = age_seconds()
    from trivet.plans.plans import Plans

    out = Output(json=json)
    given = parse_pairs(input_, "--input")
    pairs = parse_pairs(option, "--option")
    wanted = planfile.from_options(model, backend, shapes, pairs, release)
    with (
        out.logging(),
        open_cache(cache_dir, shared, layers=layer) as cache,
        out.progress(f"running {model.name}"),
    ):
        plans = Plans(cache, wanted.backend, release=release)
        plan = plans.open(model, wanted.shapes)
        arrays = _read_inputs(plan, given)
        results = plan.run(arrays)
    if output is not None:
        _write_npz(output, results)
    report = _report(plan, model, wanted, results, started)
    report.output = str(output) if output is not None else None
    out.document(report) if json else _print(out, report)


def _read_inputs(plan: Plan, files: Mapping[str, str]) -> dict[str, Array]:
    """The arrays of ``files``, and made-up ones for the other inputs.

    Sizes that the model leaves open are taken from the given arrays where these have an axis of
    the same name, else from the smallest variant, else 1.
    """
    known = {each.name: each for each in plan.inputs}
    for name in files:
        if name not in known:
            raise ShapeError(
                f"the model has no input {name!r}", hint=f"its inputs are {', '.join(known)}"
            )
    arrays = {name: _read_array(Path(file)) for name, file in files.items()}
    sizes = {
        symbol: size
        for name, array in arrays.items()
        for symbol, size in zip(known[name].shape or (), array.shape, strict=False)
        if isinstance(symbol, str)
    }
    smallest = plan.variants()[0]
    for name, info in known.items():
        if name not in arrays:
            arrays[name] = _made_up(info, smallest, sizes)
    return arrays


def _made_up(info: TensorInfo, variant: Variant, sizes: Mapping[str, int]) -> Array:
    from trivet.plans.canary import canary_inputs

    own, compiled = info.shape, variant.shapes.get(info.name, info.shape)
    shape = None
    if own is not None and compiled is not None:
        shape = tuple(
            sizes.get(symbol, size) if isinstance(symbol, str) else size
            for symbol, size in zip(own, compiled, strict=True)
        )
    made = canary_inputs([info], {} if shape is None else {info.name: shape})
    if made is None:
        raise ShapeError(
            f"can't make up the input {info.name!r} of type {info.dtype}",
            hint=f"--input {info.name}=FILE.npy",
        )
    return made[info.name]


def _read_array(path: Path) -> Array:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise TrivetError(f"{path} can't be read as an array: {error}") from error
    if not isinstance(loaded, np.ndarray):
        raise TrivetError(f"{path} holds several arrays", hint="save one with numpy.save")
    return loaded


def _write_npz(path: Path, arrays: Arrays) -> None:
    """Like `numpy.savez`, which can't write an array called ``file``."""
    from numpy.lib import format as npy

    try:
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, array, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise TrivetError(f"{path} can't be written: {error}") from error


def _report(
    plan: Plan,
    model: Path,
    wanted: Wanted,
    results: Arrays,
    started: tuple[float, float],
) -> RunReport:
    loaded = plan.loaded
    wall, cpu = started
    phases = {"process start": {"wall_ms": wall * 1e3, "cpu_ms": cpu * 1e3}}
    for each in plan.report.phases:
        sums = phases.setdefault(each.name, {"wall_ms": 0.0, "cpu_ms": 0.0})
        sums["wall_ms"] += each.wall_ms
        sums["cpu_ms"] += each.cpu_ms
    return RunReport(
        model=str(model),
        backend=wanted.backend.name,
        version=wanted.backend.facts().version,
        source=loaded.source,
        reason=loaded.reason,
        error=loaded.error,
        key=loaded.key.digest.hex(),
        shapes=bucket_in_words(loaded.key.get("shapes")),
        phases={name: {unit: round(ms, 3) for unit, ms in x.items()} for name, x in phases.items()},
        wall_ms=round(sum(each["wall_ms"] for each in phases.values()), 3),
        cpu_ms=round(sum(each["cpu_ms"] for each in phases.values()), 3),
        outputs={
            name: {"dtype": str(array.dtype), "shape": list(array.shape)}
            for name, array in results.items()
        },
        output=None,
    )


def _print(out: Output, report: RunReport) -> None:
    source: Styled = {
        "cache": (Span("hit", "bold green"), ", verified"),
        "compiled": (Span("compiled", "bold yellow"), _because(report.reason)),
        "uncompiled": (Span("not compiled", "bold red"), _because(report.reason)),
    }[report.source]
    facts: list[tuple[str, Styled]] = [
        ("model", report.model),
        ("backend", backend_in_words(report.backend, report.version)),
        ("plan", source),
    ]
    if report.error:
        facts.append(("error", report.error))
    facts += [("shapes", report.shapes), ("key", report.key[:12])]
    out.fields(facts)
    out.line()
    out.table(
        [Column("phase"), Column("wall ms", right=True), Column("CPU ms", right=True)],
        [
            *(
                (name, f"{x['wall_ms']:.1f}", f"{x['cpu_ms']:.1f}")
                for name, x in report.phases.items()
            ),
            (
                Span("until the first result", "bold"),
                Span(f"{report.wall_ms:.1f}", "bold"),
                Span(f"{report.cpu_ms:.1f}", "bold"),
            ),
        ],
    )
    out.line()
    out.table(
        [Column("output"), Column("type"), Column("shape")],
        [(name, x["dtype"], shape_in_words(x["shape"])) for name, x in report.outputs.items()],
    )
    if report.output:
        out.line(f"outputs written to {report.output}")


def _because(reason: str) -> str:
    return f": {reason_in_words(reason)}" if reason else ""
