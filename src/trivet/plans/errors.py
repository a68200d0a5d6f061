"""Errors of plans."""

from __future__ import annotations

from trivet.errors import ComputeFailed, TrivetError


class PlanFailed(ComputeFailed):
    """Compiling failed, now or before, and the caller chose to be refused."""


class ModelChanged(TrivetError):
    """The model's files changed while they were being compiled."""


class NotWorthKeeping(TrivetError):
    """Reading the plan back from a cold disk would take longer than compiling it again."""


FAILED_BEFORE, NOT_WORTH_KEEPING = "failed before", "not worth keeping"
PADDING = "padding"  # there is a plan, and requests must not be padded to it


def recorded_reason(error_class: str) -> str:
    """Why there is no plan where an error of this class is on record: one of the two above."""
    return NOT_WORTH_KEEPING if error_class == NotWorthKeeping.__qualname__ else FAILED_BEFORE
