"""``trivet doctor``: why a cache "does nothing", and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet import __version__
from trivet.cli.app import FAILED, command
from trivet.cli.doctor.activity import check_activity
from trivet.cli.doctor.backends import check_backend
from trivet.cli.doctor.contents import check_contents
from trivet.cli.doctor.folder import check_folder
from trivet.cli.doctor.folders import check_folders
from trivet.cli.doctor.layers import check_layers
from trivet.cli.doctor.model import check_model
from trivet.cli.doctor.section import Section
from trivet.cli.doctor.shared import check_shared
from trivet.cli.opening import cache_folder
from trivet.cli.options import (
    AsJson,
    BackendOptions,
    Backends,
    CacheDir,
    LayerDirs,
    ShapeRules,
    Shared,
    parse_pairs,
)
from trivet.cli.output import Output, Span, Styled, counted
from trivet.cli.rows import read_activity, read_rows
from trivet.cli.warm import read_targets
from trivet.plans.backend import Severity
from trivet.plans.backends.named import BackendName, make_backend

if TYPE_CHECKING:
    from trivet.warm.planfile import Wanted

Target = Annotated[
    Path | None,
    typer.Argument(metavar="MODEL|PLAN.toml", show_default=False, help="Also check this model."),
]


@command
def doctor(
    target: Target = None,
    backend: Backends = None,
    shapes: ShapeRules = None,
    option: BackendOptions = None,
    cache_dir: CacheDir = None,
    shared: Shared = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Find out why a cache has no effect, and what to do.

    Checks the folder, its contents, whether anything hit, what hosts share, and the backends and
    their options; given a model, also whether it would hit. Exits with 1 if a finding is an error.
    """
    out = Output(json=json)
    wanted = []
    if target is not None:
        wanted = read_targets([target], backend, shapes, option, "")
    with out.progress("looking"):
        tier = check_shared(shared or ())
        sections = _examine(cache_folder(cache_dir), layer or (), wanted, backend, option, tier)
    if json:
        out.document(
            {
                "trivet": __version__,
                "sections": [
                    {"name": each.name, "summary": each.summary, "findings": each.findings}
                    for each in sections
                ],
            }
        )
    else:
        _print(out, sections)
    if any(each.worst is Severity.ERROR for each in sections):
        raise typer.Exit(FAILED)


def _examine(
    folder: Path,
    layers: Sequence[Path],
    wanted: list[Wanted],
    name: BackendName | None,
    option: list[str] | None,
    about_shared: list[Section],
) -> list[Section]:
    about_layers, usable = check_layers(layers, folder)
    about_folder, cache = check_folder(folder, usable)
    sections = [about_folder, *about_layers, *about_shared]
    rows = []
    if cache is not None:
        rows = read_rows(cache, None)
        sections += [check_contents(cache, rows), check_activity(read_activity(cache))]
    asked = {each.backend.name: each.backend for each in wanted}
    pairs = parse_pairs(option, "--option")
    backends = []
    for each in [name] if name else list(BackendName):
        own = name is not None
        made = asked.get(each) or make_backend(Path(), each, pairs if own else {})
        backends.append(check_backend(made, cache, rows, asked_for=own or each in asked))
    # Nobody has all of them; without any, all are named.
    missing = (Severity.INFO, "not-installed")
    there = [
        each
        for each in backends
        if all((found.severity, found.code) != missing for found in each.findings)
    ]
    sections += there or backends
    if cache is not None:
        if name is None:
            sections += check_folders(cache)
        sections += [check_model(cache, each, rows) for each in wanted]
        cache.close()
    return sections


_OK = Span("ok", "bold green")
_MARKS = {
    None: _OK,
    Severity.INFO: _OK,
    Severity.WARNING: Span("warning", "bold yellow"),
    Severity.ERROR: Span("error", "bold red"),
}
_STYLES = {Severity.INFO: "dim", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def _print(out: Output, sections: list[Section]) -> None:
    out.line(Span(f"Trivet {__version__}, Python {sys.version.split()[0]}", "dim"))
    out.line()
    rows: list[tuple[Styled, Styled]] = []
    for each in sections:
        rows.append((_MARKS[each.worst], (Span(each.name, "bold"), "  ", each.summary)))
        for finding in each.findings:
            code = Span(finding.code, _STYLES[finding.severity])
            rows.append(("", (code, "  ", finding.message)))
            if finding.hint:
                rows.append(("", (Span("do: ", "cyan"), finding.hint)))
    out.items(rows)
    found = [finding.severity for each in sections for finding in each.findings]
    errors, warnings = found.count(Severity.ERROR), found.count(Severity.WARNING)
    out.line()
    out.line(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")
