"""Checks of one model: would it hit, and if not, which of the usual reasons is it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.cli.doctor.section import Section, error, info, warning
from trivet.cli.rows import Row
from trivet.cli.why import Verdict, judge
from trivet.cli.words import reason_in_words
from trivet.errors import TrivetError
from trivet.events import MissReason
from trivet.plans.backend import Finding
from trivet.plans.errors import FAILED_BEFORE, NOT_WORTH_KEEPING, PADDING

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.warm.planfile import Wanted


def check_model(cache: Cache, wanted: Wanted, rows: list[Row]) -> Section:
    """All variants of one model on one backend."""
    from trivet.plans.plans import Plans

    name = wanted.path.name
    plans = Plans(cache, wanted.backend)
    try:
        verdicts = [
            judge(plans, wanted, each, {}) for each in plans.find(wanted.path, wanted.shapes)
        ]
    except TrivetError as trouble:
        found = error("model", trouble.message, trouble.hint or "see 'trivet run' of the model")
        return Section(name=name, summary="can't be looked up", findings=[found])
    missing = [each for each in verdicts if not each.hit]
    findings = [_about(each, rows, name) for each in missing[:5]]
    return Section(
        name=name,
        summary=f"{len(verdicts) - len(missing)} of {len(verdicts)} variants would hit "
        f"on {wanted.backend.name}",
        findings=findings,
    )


def _about(verdict: Verdict, rows: list[Row], name: str) -> Finding:
    """The usual reason that explains the miss best."""
    what = f"{name} {verdict.shapes} would miss"
    if verdict.reason == NOT_WORTH_KEEPING:
        return info(
            "not-worth-keeping",
            f"{what}: {verdict.detail}",
            "no cache helps where compiling is that quick",
        )
    if verdict.reason == PADDING:
        return warning(
            "padding",
            f"{name} {verdict.shapes} is refused: {verdict.detail}",
            "use a mask or a pad value that the model ignores, or say what to cut",
        )
    if verdict.reason == FAILED_BEFORE:
        return warning(
            "recorded-failure",
            f"{what}: {verdict.detail}",
            f"'trivet drop {verdict.key[:12]}' lets it be tried again",
        )
    if verdict.reason != MissReason.ABSENT:
        return warning(
            verdict.reason,
            f"{what}: {verdict.detail or reason_in_words(verdict.reason)}",
            "it is made again at its next use",
        )
    return _never_stored(verdict, what, is_known=any(row.model == name for row in rows))


def _never_stored(verdict: Verdict, what: str, *, is_known: bool) -> Finding:
    """What the nearest plan differs in; ``is_known`` if there are plans of a file of this name."""
    near = verdict.nearest
    fields = [each["field"] for each in near.differences] if near is not None else []
    parts = {field.partition(".")[0] for field in fields}
    if "backend.name" in fields:
        return warning(
            "other-backend",
            f"{what}: no plan by {verdict.backend} is stored",
            "'trivet warm' with this backend compiles it before it is needed",
        )
    if "graph" in parts and is_known:
        part = "graph" if "graph.structure" in fields else "weights"
        return warning(
            "model-changed",
            f"{what}: plans of a file of this name are stored, but its {part} changed since",
            "right after a new export; 'trivet warm' compiles it before it is needed",
        )
    if parts == {"host"}:
        return warning(
            "other-hardware",
            f"{what}: the nearest plan was made for another CPU",
            "warm once on each kind of machine",
        )
    if parts == {"backend"}:
        return warning(
            "other-build",
            f"{what}: the nearest plan was made by another build of {verdict.backend}",
            "right after an upgrade; 'trivet warm' compiles it before it is needed",
        )
    if not fields or "graph" in parts:
        return warning(
            "never-compiled",
            f"{what}: no plan of this model is stored",
            "'trivet warm' compiles it before it is needed",
        )
    return warning(
        "other-options",
        f"{what}: the nearest plan differs in {', '.join(fields)}",
        "'trivet why' with the same options shows both values",
    )
