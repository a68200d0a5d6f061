"""Errors of plans."""

from __future__ import annotations

from trivet.errors import ComputeFailed, TrivetError


class PlanFailed(ComputeFailed):
    """Compiling failed, now or before, and the caller chose to be refused."""


class ModelChanged(TrivetError):
    """The model's files changed while they were being compiled."""


class NotWorthKeeping(TrivetError):
    """Reading the plan back from a cold disk would take longer than compiling it again."""


NOT_WORTH_KEEPING = NotWorthKeeping.__qualname__


def recorded_reason(error_class: str) -> str:
    """Why there is no plan where an error of this class is on record."""
    return "not worth keeping" if error_class == NOT_WORTH_KEEPING else "failed before"
