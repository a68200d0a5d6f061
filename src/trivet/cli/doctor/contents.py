"""Checks of what lies in the folder: entries, quarantine, marks of crashes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trivet.cli.doctor.section import Section, info, warning
from trivet.cli.output import counted, in_bytes
from trivet.cli.rows import Row
from trivet.cli.words import reason_in_words
from trivet.plans.backend import Finding
from trivet.plans.errors import NOT_WORTH_KEEPING

if TYPE_CHECKING:
    from trivet.cache import Cache

_SHOWN = 5


def check_contents(cache: Cache, rows: list[Row]) -> Section:
    """Is anything stored, and is any of it set aside, unusable or a recorded failure?"""
    assert cache.store is not None
    root = cache.store.root
    plans = [row for row in rows if row.space.startswith("plan/")]
    quarantined = _quarantine(root)
    findings = [*_empty(root, rows), *_unusable(plans), *_failures(plans)]
    findings += [*_set_aside(quarantined), *_crashes(root)]
    size = in_bytes(sum(row.size for row in plans))
    return Section(
        name="contents",
        summary=f"{counted(len(plans), 'plan')}, {size}; {len(quarantined)} in quarantine",
        findings=findings,
    )


def _empty(root: Path, rows: list[Row]) -> list[Finding]:
    if any(row.space.startswith(("plan/", "folder/")) for row in rows):
        return []
    return [
        warning(
            "empty",
            f"{root} holds no plan",
            "if a program did run, it used another folder, or nothing it compiled could be kept: "
            "its log says so ('trivet run MODEL' shows it)",
        )
    ]


def _unusable(plans: list[Row]) -> list[Finding]:
    states = Counter(
        row.state
        for row in plans
        if row.state not in ("ok", "failed", NOT_WORTH_KEEPING) and not row.layer
    )
    return [
        info(state, f"{count} plans would not be used: {reason_in_words(state)}", "'trivet gc'")
        for state, count in states.items()
    ]


def _failures(plans: list[Row]) -> list[Finding]:
    return [
        warning(
            "recorded-failure",
            f"compiling {row.model or row.graph[:8]} {row.shapes} with {row.backend} failed: "
            f"{row.error}",
            "it runs uncompiled until the record expires or the model, backend or an option "
            f"changes; 'trivet drop {row.digest[:12]}' lets it be tried again",
        )
        for row in plans
        if row.state == "failed"
    ][:_SHOWN]


class _Report(msgspec.Struct):
    digest: str = ""
    reason: str = ""
    time: str = ""


def _quarantine(root: Path) -> list[_Report]:
    """What lies in quarantine, the newest first."""
    found = []
    for path in (root / "quarantine").glob("*/report.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=_Report))
        except (OSError, msgspec.MsgspecError):
            found.append(_Report(digest=path.parent.name, reason="its report can't be read"))
    return sorted(found, key=lambda report: report.time, reverse=True)


def _set_aside(reports: list[_Report]) -> list[Finding]:
    found = [
        warning(
            "quarantined",
            f"{each.digest[:12]} was set aside at {each.time[:16]}: {each.reason}",
            "it is made again when it is next needed; if this keeps happening, check the disk and "
            "who else writes into the folder",
        )
        for each in reports[:_SHOWN]
    ]
    if len(reports) > _SHOWN:
        found.append(info("quarantined", f"{len(reports) - _SHOWN} more were set aside before"))
    return found


def _crashes(root: Path) -> list[Finding]:
    from trivet.cache.journal import LoadJournal

    return [
        warning(
            "crashed",
            f"a process died while it was loading {digest.hex()[:12]}",
            "it is set aside at its next use; if it happens again with the plan that is then made, "
            "the fault lies with the backend or the machine's memory",
        )
        for digest in LoadJournal(root / "journal").crashed()
    ][:_SHOWN]
