"""Checks of the activity log: hits, keys that multiply, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet import __version__
from trivet.cli.doctor.section import Section, info, warning
from trivet.cli.output import counted
from trivet.cli.stats import By, Line, add_up, summarise
from trivet.plans.backend import Finding

if TYPE_CHECKING:
    from trivet.plans.activity import PlanUse

_SHOWN = 5
_UNSTABLE = 3  # loads of one variant, each under another key and none a hit


def check_activity(uses: list[PlanUse]) -> Section:
    """Did anything hit, does every start make new keys, do shapes converge?"""
    everything, uses = uses, [each for each in uses if each.is_load]
    if not uses:
        return Section(
            name="activity", summary="no plan was loaded yet", findings=_outside(everything)
        )
    total = add_up("", uses, {})
    findings: list[Finding] = []
    variants = {(use.model, use.graph, use.backend, use.bucket) for use in uses}
    if total.hits == 0 and total.loads > len(variants):  # the first load of each is no surprise
        findings.append(
            warning(
                "no-hit",
                f"none of {total.loads} loads was a hit",
                "'trivet why MODEL' names the field of the key that differs",
            )
        )
    for line in summarise(uses, By.MODEL, {}):
        findings += _about_model(line)
    findings += _outside(everything) + _unstable(uses) + _version(uses)
    return Section(
        name="activity",
        summary=f"{counted(total.loads, 'load')}, {counted(total.hits, 'hit')}, "
        f"{total.compiled} compiled, {total.uncompiled} uncompiled",
        findings=findings,
    )


def _about_model(line: Line) -> list[Finding]:
    found = []
    if line.alarm:
        found.append(
            warning(
                "shapes-do-not-converge",
                f"{line.name} was loaded under {line.keys} keys: every new shape is compiled anew",
                "give buckets to the axes that vary, such as ids=Bx'seq'{16,32,64,128}, or leave "
                "them free",
            )
        )
    if line.uncompiled:
        found.append(
            warning(
                "runs-uncompiled",
                f"{line.uncompiled} of {line.loads} loads of {line.name} got no plan",
                "'trivet run' of the model shows why",
            )
        )
    return found


def _outside(uses: list[PlanUse]) -> list[Finding]:
    """Requests that no variant takes, one finding for each model and backend."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for use in uses:
        if not use.is_load:
            groups.setdefault((use.model, use.backend), {})[use.bucket] = use.error
    return [
        warning(
            "outside-the-rules",
            f"requests of {model} on {backend} lay outside the shape rules: "
            f"{', '.join(list(shapes)[:_SHOWN])}{', …' * (len(shapes) > _SHOWN)}",
            "add a bucket that takes them; until then they are refused or run uncompiled",
        )
        for (model, backend), shapes in groups.items()
    ]


def _unstable(uses: list[PlanUse]) -> list[Finding]:
    """Variants whose key was another one each time."""
    groups: dict[tuple[str, str, str, str], list[PlanUse]] = {}
    for use in uses:
        groups.setdefault((use.model, use.graph, use.backend, use.bucket), []).append(use)
    return [
        warning(
            "unstable-key",
            f"{model} {bucket} on {backend} was loaded {len(members)} times, each time under "
            "another key",
            "something in the key differs from start to start; 'trivet why' of the model names it",
        )
        for (model, _, backend, bucket), members in groups.items()
        if len(members) >= _UNSTABLE and len({use.key for use in members}) == len(members)
    ]


def _version(uses: list[PlanUse]) -> list[Finding]:
    last = uses[-1].trivet
    if last in ("", __version__):
        return []
    return [
        info(
            "another-version",
            f"the folder was last used by Trivet {last}, this is {__version__}",
            "entries of another format are made again; run one version per folder if both are used",
        )
    ]
