"""Getting a release's plans ready: the plan file, the gate before it goes out, and the warm-up of
a server that tells when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily

if TYPE_CHECKING:
    from trivet.warm.planfile import PlanFileError, Wanted, read_plan_file

__getattr__ = lazily(
    __name__,
    {
        "PlanFileError": "planfile",
        "Wanted": "planfile",
        "read_plan_file": "planfile",
    },
)

__all__ = ["PlanFileError", "Wanted", "read_plan_file"]
