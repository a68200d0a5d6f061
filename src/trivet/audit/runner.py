"""Runs probes one after the other, each in a temporary folder that is removed afterwards."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from trivet.audit.finding import Finding, Guarded, GuardFailed, NotRun, Own, Probe, Result
from trivet.audit.stage import Stage
from trivet.plans.facts import jax, onnxruntime, openvino, torch
from trivet.plans.installed import Package, locate

_PACKAGES: dict[str, Package] = {
    "onnxruntime": onnxruntime.PACKAGE,
    "openvino": openvino.PACKAGE,
    "jax": jax.FRONT,
    "torch": torch.PACKAGE,
}


def is_installed(framework: str) -> bool:
    """Whether a program could import it; nothing is imported."""
    return locate(_PACKAGES[framework].module) is not None


def audit(
    probes: Sequence[Probe],
    *,
    step: Callable[[Probe], object] = lambda _: None,
) -> Iterator[Finding]:
    """Try ``probes``; what each found, as soon as it is known. ``step`` is called before each."""
    with tempfile.TemporaryDirectory(prefix="trivet-audit-") as name:
        for probe in probes:
            step(probe)
            start = time.monotonic()
            result = _try(probe, Path(name))
            yield Finding(
                id=probe.id,
                framework=probe.framework,
                version=_version(probe.framework),
                title=probe.title,
                page=probe.page,
                own=result.own,
                own_evidence=result.own_evidence,
                guarded=result.guarded,
                guarded_evidence=result.guarded_evidence,
                seconds=round(time.monotonic() - start, 3),
            )


def _try(probe: Probe, folder: Path) -> Result:
    if not is_installed(probe.framework):
        return _not_run(f"{probe.framework} is not installed")
    root = folder / probe.id
    root.mkdir()
    shared = folder / probe.framework
    shared.mkdir(exist_ok=True)
    stage = Stage(root, shared)
    try:
        return probe.run(stage)
    except NotRun as error:
        return _not_run(error.message)
    except GuardFailed as error:
        failed = _not_run("the guarded side did not get that far")
        return msgspec.structs.replace(
            failed, guarded=Guarded.NO_BETTER, guarded_evidence=error.message
        )
    finally:
        stage.close()


def _not_run(why: str) -> Result:
    return Result(own=Own.NOT_RUN, own_evidence=why, guarded=Guarded.NOT_RUN, guarded_evidence=why)


def _version(framework: str) -> str:
    for name in _PACKAGES[framework].distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""
