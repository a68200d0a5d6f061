"""A model through `Plans`, as a server loads it."""

from __future__ import annotations

from typing import Any

from trivet.audit.programs.inputs import ramp
from trivet.audit.programs.together import meet, tell_and_wait

_DISK_BYTES = 1 << 30  # what an emulator can map


def answer(model: str, cache: str, backend: str, together: str = "", count: int = 1) -> Any:
    """Load the plan of ``model`` and run it once; at the same time as ``count`` - 1 others."""
    from trivet import Cache
    from trivet.plans import Plans, backends

    with Cache.open(cache, strict=True, disk_bytes=_DISK_BYTES) as opened:
        plans = Plans(opened, getattr(backends, backend)())
        if together:
            meet(together, count)
        plan = plans.load(model)
        (given,) = plan.inputs
        found = plan.run({given.name: ramp(given.shape or ())})
        (y,) = found.values()
        return {
            "y": y.ravel().tolist(),
            "source": str(plan.source),
            "reason": plan.loaded.reason,
        }


def serve(model: str, cache: str, ready: str, go: str) -> Any:
    """A server of ONNX Runtime: it answers once, and once more when ``go`` is there."""
    from trivet import Cache
    from trivet.audit.programs.onnxruntime import UNPACKED
    from trivet.plans import Plans
    from trivet.plans.backends import OnnxRuntime

    with Cache.open(cache, strict=True, disk_bytes=_DISK_BYTES) as opened:
        plan = Plans(opened, OnnxRuntime(options={UNPACKED: "1"})).load(model)
        (given,) = plan.inputs
        x = {given.name: ramp(given.shape or ())}
        first = plan.run(x)
        tell_and_wait(ready, go)
        y = plan.run(x)["y"].ravel().tolist()
        return {"first": first["y"].ravel().tolist(), "y": y, "source": str(plan.source)}


def lint(options: dict[str, str]) -> Any:
    """What Trivet finds wrong with options of ONNX Runtime."""
    from trivet.plans.backends import OnnxRuntime

    found = OnnxRuntime(options=options).lint()
    return {"findings": [f"{each.code}: {each.message}" for each in found]}
