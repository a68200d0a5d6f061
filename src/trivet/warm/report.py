"""What a gate found out, as plain data: kept, shown, and held against what passed before."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from trivet.errors import TrivetError
from trivet.keys import FieldDifference, Key
from trivet.plans.examine import Check
from trivet.warm.coverage import Coverage

FORMAT = 1
CACHE, COMPILED, UNCOMPILED = "cache", "compiled", "uncompiled"
FAILED, UNVERIFIED, NOT_RUN = "failed", "unverified", "not run"


class VariantReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one variant.

    Attributes:
        result: ``cache``, ``compiled``, ``uncompiled`` (it runs, and is not worth keeping),
            ``failed``, ``unverified`` (its answers differ from run to run) or ``not run``.
        nondeterministic: whether its answers differ from run to run, wanted or not.
        reason: why it was not found. error, hint: why it failed, or is not kept.
        key, fields: digest and fields of the plan's key, as JSON has them.
        checks: what its answers were held against.
        phases: wall milliseconds by phase of `StartReport`.
        size: of its files, in bytes.
    """

    shapes: str
    result: str
    nondeterministic: bool = False
    reason: str = ""
    error: str = ""
    hint: str = ""
    key: str = ""
    fields: dict[str, Any] = {}
    checks: list[Check] = []
    phases: dict[str, float] = {}
    size: int = 0

    @property
    def passed(self) -> bool:
        """Whether a server can have it."""
        return self.result in (CACHE, COMPILED, UNCOMPILED)


class TargetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one model of the plan file.

    Attributes:
        error, hint: what went wrong with the model as a whole; empty where nothing did.
        seconds: wall time, with that of starting processes.
        memory: the most that the processes had resident, in bytes.
        variants: one for each combination of buckets.
        coverage: the shapes that this host's programs asked for, against these variants; None
            where the model could not be read.
    """

    name: str
    model: str
    backend: str
    required: bool
    error: str = ""
    hint: str = ""
    seconds: float = 0.0
    memory: int = 0
    variants: list[VariantReport] = []
    coverage: Coverage | None = None

    @property
    def passed(self) -> bool:
        """Whether all of its variants did, and there are any."""
        ran = bool(self.variants) and all(each.passed for each in self.variants)
        return ran and not self.error


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the gate. ``created`` is in seconds since the epoch."""

    format: int = FORMAT
    trivet: str
    created: float
    plan: str
    targets: list[TargetReport]

    @property
    def passed(self) -> bool:
        """Whether everything that is required did, and anything at all."""
        needed = all(each.passed for each in self.targets if each.required)
        return needed and any(each.passed for each in self.targets)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """How one variant differs from what it was when the gate passed before.

    ``kind`` is ``key``, ``new`` or ``gone``; ``differences`` are the fields of the key.
    """

    name: str
    shapes: str
    kind: str
    differences: list[FieldDifference] = []


def changes(now: GateReport, before: GateReport) -> list[Change]:
    """What changed, in the order of the plan file; what is gone comes last."""
    mine, theirs = _variants(now), _variants(before)
    found = []
    for (name, shapes), variant in mine.items():
        old = theirs.get((name, shapes))
        if old is None:
            found.append(Change(name=name, shapes=shapes, kind="new"))
        elif variant.key and old.key != variant.key:
            # Fields as JSON has them, on both sides, so that what is equal looks equal.
            differences = Key("gate/1", variant.fields).diff(Key("gate/1", old.fields))
            found.append(
                Change(name=name, shapes=shapes, kind="key", differences=list(differences))
            )
    gone = [each for each in theirs if each not in mine]
    return found + [Change(name=name, shapes=shapes, kind="gone") for name, shapes in gone]


def _variants(report: GateReport) -> dict[tuple[str, str], VariantReport]:
    return {(each.name, x.shapes): x for each in report.targets for x in each.variants}


def read_report(path: Path) -> GateReport | None:
    """What passed last time; None where nothing did yet.

    Raises `TrivetError` for a file that holds something else.
    """
    try:
        report = msgspec.json.decode(path.read_bytes(), type=GateReport)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise TrivetError(f"{path} is not the report of a gate: {error}") from error
    if report.format != FORMAT:
        raise TrivetError(
            f"{path} was written by another release of Trivet", hint="remove it, and run again"
        )
    return report


def write_report(report: GateReport, path: Path) -> None:
    """Replace ``path`` in one step. Raises OSError."""
    raw = msgspec.json.format(msgspec.json.encode(report), indent=1)
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(raw + b"\n")
            file.flush()
            os.fchmod(fd, 0o644)
            os.fsync(fd)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
