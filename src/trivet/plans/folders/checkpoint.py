"""Asking, from inside a guarded program, that what it compiled is kept now."""

from __future__ import annotations

import os
import sys

_VARIABLE = "TRIVET_EXEC_RUN"
_PATIENCE = 300.0  # seconds; gigabytes are copied and written through


def checkpoint() -> bool:
    """Keep what this program's frameworks have compiled so far, where ``trivet exec`` runs it.

    Blocks until it is kept. True when it was; False when it was not, and where nothing guards
    this program, so that a call may stay in a program that is run both ways. Never raises.
    """
    folder = os.environ.get(_VARIABLE)
    if not folder:
        return False
    from trivet.plans.folders.requests import ask

    report_here()
    try:
        return ask(folder, {"ask": "keep"}, _PATIENCE).get("kept") is True
    except (OSError, ValueError):
        return False


def report_here() -> None:
    """Have written down what this process compiled and loaded so far, if it is guarded."""
    hook = sys.modules.get("trivet_exec_hook")
    if hook is not None:
        hook.report()
