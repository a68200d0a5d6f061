"""``trivet gate``: may this release go out?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.app import FAILED, command
from trivet.cli.differences import described, rows_of
from trivet.cli.options import AsJson, CacheDir, LayerDirs, Shared
from trivet.cli.output import Column, Output, Span, Styled, counted, in_bytes, in_seconds
from trivet.cli.planfile import read_plan_file
from trivet.cli.words import reason_in_words

if TYPE_CHECKING:
    from trivet.warm.report import Change, GateReport, TargetReport, VariantReport

PlanFileArgument = Annotated[
    Path, typer.Argument(metavar="PLAN.toml", help="The plan file of the release.")
]


@command
def gate(
    plan: PlanFileArgument,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Compare with this report of the last pass, and update it if the gate passes.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds for models without a 'timeout' in the file."),
    ] = 1800.0,
    jobs: Annotated[int, typer.Option(min=1, help="How many models to test at the same time.")] = 1,
    cache_dir: CacheDir = None,
    shared: Shared = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Test every plan of a release with what is installed now.

    Stored plans are loaded from scratch, verified and run; missing ones are compiled, and have to
    be found by a second process. Answers are compared with those from when the plan was made, the
    uncompiled model, the plan of an earlier build, and a reference if the plan file names one.

    Exits with 1 if a required model did not pass, or none did.
    """
    from trivet.warm.gate import run_gate
    from trivet.warm.report import changes, read_report, write_report

    out = Output(json=json)
    wanted = read_plan_file(plan)
    if report is not None and not os.access(report.parent, os.W_OK):
        # Not after the hours that a test may take.
        raise typer.BadParameter(f"{report} can't be written", param_hint="--report")
    before = read_report(report) if report is not None else None
    with out.progress("testing") as step:
        done = run_gate(
            plan,
            wanted,
            cache_dir,
            shared=shared or (),
            layers=layer or (),
            timeout=timeout,
            jobs=jobs,
            progress=lambda number, what: step(number, len(wanted), what),
        )
    changed = changes(done, before) if before is not None else None
    if report is not None and done.passed:
        write_report(done, report)
    if json:
        out.document(_document(done, changed))
    else:
        _print(out, done, changed)
        if report is not None and not done.passed and before is not None:
            out.note(f"{report} still holds what passed last time")
    if not done.passed:
        raise typer.Exit(FAILED)


def _document(report: GateReport, changed: Sequence[Change] | None) -> dict[str, Any]:
    from trivet.warm.plain import plain

    targets = [
        {
            **plain(each),
            "passed": each.passed,
            "summary": _summary(each.variants),
            "variants": [{**plain(x), "passed": x.passed} for x in each.variants],
        }
        for each in report.targets
    ]
    told = {**plain(report), "passed": report.passed, "targets": targets}
    if changed is not None:
        told["changes"] = [
            {
                "name": each.name,
                "shapes": each.shapes,
                "kind": each.kind,
                "differences": [
                    {"field": x.name, "now": _plain(x.mine), "before": _plain(x.theirs)}
                    for x in each.differences
                ],
            }
            for each in changed
        ]
    return told


def _plain(value: Any) -> Any:
    from trivet.keys import ABSENT

    return None if value is ABSENT else value


# -- for people ------------------------------------------------------------------------------------

_STYLES = {
    "cache": "green",
    "compiled": "yellow",
    "uncompiled": "dim",
    "failed": "bold red",
    "unverified": "bold red",
    "not run": "red",
}
# Where a start goes, from the phases of `StartReport`.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "graph": ("identify", "key", "look up"),
    "import": ("import", "verify and import"),
    "weights": ("weights",),
    "compile": ("compile", "publish", "padding"),
    "load": ("load",),
    "first run": ("canary", "first run"),
}


def _summary(variants: Sequence[VariantReport]) -> dict[str, float]:
    """Milliseconds by part of a start, over all variants."""
    return {
        part: round(sum(each.phases.get(name, 0.0) for each in variants for name in names), 1)
        for part, names in _PARTS.items()
    }


def _print(out: Output, report: GateReport, changed: Sequence[Change] | None) -> None:
    out.table(
        [
            Column("model", fold=True),
            Column("backend"),
            Column("shapes", fold=True),
            Column("result"),
            Column("held against", fold=True, optional=True),
        ],
        [row for each in report.targets for row in _rows(each)],
    )
    out.line()
    _print_time(out, report.targets)
    for target in report.targets:
        for line in _troubles(target):
            out.line()
            out.line(line)
    if changed is not None:
        out.line()
        _print_changes(out, changed)
    out.line()
    out.line(_verdict(report))


def _rows(target: TargetReport) -> Iterator[Sequence[Styled]]:
    name = target.name if target.required else f"{target.name} (not required)"
    if not target.variants:
        yield name, target.backend, "", Span("failed", _STYLES["failed"]), ""
    for each in target.variants:
        result = "hit" if each.result == "cache" else each.result
        same = ", ".join(x.against for x in each.checks if x.result == "same")
        if each.nondeterministic and not same:
            same = "nothing: it differs from run to run"
        yield name, target.backend, each.shapes, Span(result, _STYLES[each.result]), same


def _print_time(out: Output, targets: Sequence[TargetReport]) -> None:
    out.table(
        [
            Column("model", fold=True),
            *(Column(part, right=True) for part in _PARTS),
            Column("all", right=True),
            Column("memory", right=True),
        ],
        [
            (
                each.name,
                *(in_seconds(ms / 1e3) if ms else "" for ms in _summary(each.variants).values()),
                in_seconds(each.seconds),
                in_bytes(each.memory) if each.memory else "",
            )
            for each in targets
        ],
    )


def _troubles(target: TargetReport) -> Iterator[Styled]:
    optional = "" if target.required else " (not required)"
    failed = [each for each in target.variants if each.result in ("failed", "unverified")]
    if target.error and not failed:
        yield Span(f"{target.name} failed{optional}: ", "red"), target.error, _hint(target.hint)
    for each in failed:
        what = f"{target.name} {each.shapes}".rstrip()
        yield Span(f"{what} {each.result}{optional}: ", "red"), each.error, _hint(each.hint)
    coverage = target.coverage
    if coverage is not None and not coverage.complete:
        beyond = ", ".join([*coverage.missing, *coverage.outside])
        yield Span(f"{target.name}: ", "yellow"), f"asked for on this host, not covered: {beyond}"
    for each in target.variants:
        what = f"{target.name} {each.shapes}".rstrip()
        if each.result == "uncompiled":
            yield f"{what} runs uncompiled: {each.error}"
        elif each.result == "cache" or each.reason in ("", "absent"):
            continue
        elif each.result == "compiled":
            yield f"{what} was made again: {reason_in_words(each.reason)}"


def _hint(hint: str) -> str:
    return f" ({hint})" if hint else ""


def _print_changes(out: Output, changed: Sequence[Change]) -> None:
    if not changed:
        out.line("every key is that of the last time")
        return
    rows: list[Sequence[Styled]] = []
    for each in changed:
        what = f"{each.name} {each.shapes}".rstrip()
        if each.kind != "key":
            rows.append((what, each.kind, "", ""))
        for field, now, before, _ in rows_of(described(each.differences)):
            rows.append((what, field, now, before))
            what = ""
    out.table([Column(x, fold=True) for x in ("changed", "field", "now", "before")], rows)


def _verdict(report: GateReport) -> Styled:
    targets = report.targets
    failed = [each for each in targets if not each.passed]
    needed = [each for each in failed if each.required]
    variants = sum(len(each.variants) for each in targets)
    told = f"{counted(len(targets), 'model')}, {counted(variants, 'variant')}: "
    if needed:
        return told, Span(f"{counted(len(needed), 'required model')} failed", "bold red")
    if not report.passed:
        return told, Span("nothing passed", "bold red")
    optional = f", {len(failed)} that {'is' if len(failed) == 1 else 'are'} not required failed"
    return told, Span("passed", "bold green"), optional if failed else ""
