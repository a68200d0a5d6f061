"""What a group of checks reports."""

from __future__ import annotations

import msgspec

from trivet.plans.backend import Finding, Severity


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one group of checks.

    ``summary`` says what was looked at and what is so, whether or not there are findings.
    """

    name: str
    summary: str
    findings: list[Finding] = []

    @property
    def worst(self) -> Severity | None:
        """The gravest severity among the findings."""
        order = list(Severity)
        return max((each.severity for each in self.findings), key=order.index, default=None)


def info(code: str, message: str, hint: str = "") -> Finding:
    """Worth knowing; nothing to be done."""
    return Finding(severity=Severity.INFO, code=code, message=message, hint=hint)


def warning(code: str, message: str, hint: str) -> Finding:
    """The cache works, but not as it could."""
    return Finding(severity=Severity.WARNING, code=code, message=message, hint=hint)


def error(code: str, message: str, hint: str) -> Finding:
    """The cache can't do its work."""
    return Finding(severity=Severity.ERROR, code=code, message=message, hint=hint)
