"""All probes, by framework."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from trivet.audit.finding import Probe
from trivet.errors import TrivetError

FRAMEWORKS = ("onnxruntime", "openvino", "jax", "torch")
"""In the order in which they are tried: the quick ones first."""


def probes(names: Sequence[str] = FRAMEWORKS) -> list[Probe]:
    """The probes of these frameworks, and those with these ids.

    Raises `TrivetError` for a name that is neither.
    """
    every: list[Probe] = []
    for each in FRAMEWORKS:
        every += importlib.import_module(f"trivet.audit.{each}").PROBES
    unknown = set(names) - {*FRAMEWORKS, *(each.id for each in every)}
    if unknown:
        raise TrivetError(
            f"there is no framework or probe {min(unknown)!r}",
            hint="'trivet audit --list' shows all",
        )
    return [each for each in every if each.framework in names or each.id in names]
