"""Plans: compiled models, kept under keys that name everything they depend on.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from trivet.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trivet.plans.backend import Backend, BackendFacts, Built, Executable, Finding
    from trivet.plans.errors import ModelChanged, PlanFailed
    from trivet.plans.outcome import CanaryMode, OnFailure, Source
    from trivet.plans.plan import Plan
    from trivet.plans.plans import Plans
    from trivet.plans.report import StartReport
    from trivet.plans.shapes import Shapes

__getattr__ = lazily(
    __name__,
    {
        "Backend": "backend",
        "BackendFacts": "backend",
        "Built": "backend",
        "CanaryMode": "outcome",
        "Executable": "backend",
        "Finding": "backend",
        "ModelChanged": "errors",
        "OnFailure": "outcome",
        "Plan": "plan",
        "PlanFailed": "errors",
        "Plans": "plans",
        "Shapes": "shapes",
        "Source": "outcome",
        "StartReport": "report",
    },
)

__all__ = [
    "Backend",
    "BackendFacts",
    "Built",
    "CanaryMode",
    "Executable",
    "Finding",
    "ModelChanged",
    "OnFailure",
    "Plan",
    "PlanFailed",
    "Plans",
    "Shapes",
    "Source",
    "StartReport",
]
