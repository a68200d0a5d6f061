"""All probes, by framework."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from trivet.audit.finding import Probe
from trivet.errors import TrivetError

FRAMEWORKS = ("onnxruntime", "openvino", "jax", "torch")
"""In the order in which they are tried: the quick ones first."""


def probes(frameworks: Sequence[str] = FRAMEWORKS, only: Sequence[str] = ()) -> list[Probe]:
    """The probes of these frameworks, or of them only those with these ids.

    Raises `TrivetError` for an id that none of them has.
    """
    found: list[Probe] = []
    for each in FRAMEWORKS:
        if each in frameworks:
            found += importlib.import_module(f"trivet.audit.{each}").PROBES
    unknown = set(only) - {each.id for each in found}
    if unknown:
        raise TrivetError(
            f"there is no probe {min(unknown)!r}", hint="'trivet audit --list' shows all"
        )
    return [each for each in found if not only or each.id in only]
