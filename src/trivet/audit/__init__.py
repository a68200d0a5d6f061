"""The audit: what the installed frameworks' own caches do where it matters, measured live.

A *probe* sets a scene in a temporary folder (other weights, a flipped bit, another processor), runs
the framework's own cache in it, and then the same program guarded by Trivet. Nothing is assumed:
what a framework has since mended is reported as not reproduced.

Frameworks are imported only by child processes, which run what is in `trivet.audit.programs`.
"""

from __future__ import annotations

from trivet.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trivet.audit.catalog import FRAMEWORKS, probes
    from trivet.audit.finding import Finding, Guarded, Own, Probe
    from trivet.audit.runner import audit

__getattr__ = lazily(
    __name__,
    {
        "FRAMEWORKS": "catalog",
        "Finding": "finding",
        "Guarded": "finding",
        "Own": "finding",
        "Probe": "finding",
        "audit": "runner",
        "probes": "catalog",
    },
)

__all__ = ["FRAMEWORKS", "Finding", "Guarded", "Own", "Probe", "audit", "probes"]
