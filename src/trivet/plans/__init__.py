"""Plans: compiled models, kept under keys that name everything they depend on.

Each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # importing typing would double the cost of this package
if TYPE_CHECKING:
    from typing import Any

    from trivet.plans.backend import Backend, BackendFacts, Built, Executable, Finding
    from trivet.plans.errors import PlanFailed
    from trivet.plans.loader import CanaryMode, OnFailure, Source
    from trivet.plans.plan import Plan
    from trivet.plans.plans import Plans
    from trivet.plans.report import StartReport
    from trivet.plans.shapes import Shapes

_HOMES = {
    "Backend": "backend",
    "BackendFacts": "backend",
    "Built": "backend",
    "CanaryMode": "loader",
    "Executable": "backend",
    "Finding": "backend",
    "OnFailure": "loader",
    "Plan": "plan",
    "PlanFailed": "errors",
    "Plans": "plans",
    "Shapes": "shapes",
    "Source": "loader",
    "StartReport": "report",
}

__all__ = [
    "Backend",
    "BackendFacts",
    "Built",
    "CanaryMode",
    "Executable",
    "Finding",
    "OnFailure",
    "Plan",
    "PlanFailed",
    "Plans",
    "Shapes",
    "Source",
    "StartReport",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
