"""Errors of plans."""

from __future__ import annotations

from trivet.errors import ComputeFailed, TrivetError


class PlanFailed(ComputeFailed):
    """Compiling failed, now or before, and the caller chose to be refused."""


class ModelChanged(TrivetError):
    """The model's files changed while they were being compiled."""
