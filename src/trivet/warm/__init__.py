"""Getting a release's plans ready: the plan file, the gate before it goes out, and the warm-up of
a server that tells when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily

if TYPE_CHECKING:
    from trivet.warm.filling import fill
    from trivet.warm.gate import run_gate
    from trivet.warm.planfile import PlanFileError, Wanted, read_plan_file
    from trivet.warm.readiness import ReadinessServer, readiness_app
    from trivet.warm.report import GateReport
    from trivet.warm.status import Status
    from trivet.warm.warmup import Warmup

__getattr__ = lazily(
    __name__,
    {
        "GateReport": "report",
        "PlanFileError": "planfile",
        "ReadinessServer": "readiness",
        "Status": "status",
        "Wanted": "planfile",
        "Warmup": "warmup",
        "fill": "filling",
        "read_plan_file": "planfile",
        "readiness_app": "readiness",
        "run_gate": "gate",
    },
)

__all__ = [
    "GateReport",
    "PlanFileError",
    "ReadinessServer",
    "Status",
    "Wanted",
    "Warmup",
    "fill",
    "read_plan_file",
    "readiness_app",
    "run_gate",
]
