"""Checks of the backends: installed, options that do nothing, builds and hardware."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trivet.cli.doctor.section import Section, error, info, warning
from trivet.cli.output import counted
from trivet.cli.rows import Row
from trivet.errors import MissingExtra, TrivetError
from trivet.plans.backend import Finding

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.plans.backend import Backend, BackendFacts
    from trivet.plans.host import HostFacts


def check_backend(
    backend: Backend, cache: Cache | None, rows: list[Row], *, asked_for: bool
) -> Section:
    """One backend, and the stored plans that it made."""
    from trivet.plans.host import read_host
    from trivet.plans.memo import CacheMemo

    host = read_host(os.environ)
    try:
        facts = backend.facts(CacheMemo(cache) if cache is not None else None)
        findings = [*backend.lint(), *_volatile(backend, host)]
    except MissingExtra as missing:
        kind = error if asked_for else info
        found = kind("not-installed", missing.message, missing.hint or "")
        return Section(name=backend.name, summary="not installed", findings=[found])
    except TrivetError as trouble:
        found = error("unusable-backend", trouble.message, trouble.hint or "reinstall it")
        return Section(name=backend.name, summary="can't be used", findings=[found])
    plans = [row for row in rows if row.space.startswith("plan/") and row.backend == backend.name]
    findings += _other_build(backend, facts, plans)
    if cache is not None:
        findings += _other_hardware(cache, backend, host)
    return Section(
        name=backend.name,
        summary=f"{facts.version}; {counted(len(plans), 'plan')} stored",
        findings=findings,
    )


def _volatile(backend: Backend, host: HostFacts) -> list[Finding]:
    from trivet.plans.volatile import volatile_factors

    found = volatile_factors(backend.key_fields(host))
    if host.instruction_set_unknown:
        found.append(
            warning(
                "instruction-set-unknown",
                f"{host.instruction_set_unknown}; plans that depend on it are not kept",
                "nothing can be done on this system but to use plans that are portable",
            )
        )
    return found


def _other_build(backend: Backend, facts: BackendFacts, plans: Sequence[Row]) -> list[Finding]:
    versions = {row.version for row in plans}
    if not plans or facts.version in versions:
        return []
    return [
        warning(
            "other-build",
            f"all {len(plans)} stored plans were made by {', '.join(sorted(versions))}; "
            f"installed is {facts.version}",
            "right after an upgrade: warm before traffic with 'trivet warm'; "
            f"'trivet drop --tag backend={backend.name}-VERSION' forgets the old ones",
        )
    ]


def _other_hardware(cache: Cache, backend: Backend, host: HostFacts) -> list[Finding]:
    """Plans that no machine like this one made."""
    from trivet.plans.host import missing_features
    from trivet.plans.key import PORTABLE, SPACE, part

    stored = [
        (part(each.key, "host", "machine"), part(each.key, "host", "instruction_set"))
        for each in cache.entries(SPACE)
        if part(each.key, "backend", "name") == backend.name
    ]
    sets = [
        (str(machine), features if isinstance(features, str) else tuple(map(str, features)))
        for machine, features in stored
        if isinstance(features, str | tuple)
    ]
    here = tuple(sorted(host.instruction_set))
    fits = [
        (machine, features)
        for machine, features in sets
        if machine == host.machine and (features == PORTABLE or tuple(features) == here)
    ]
    if not sets or fits:
        return []
    machine, features = sets[0]
    if machine != host.machine:
        difference = f"for {machine}, this machine is {host.machine}"
    else:
        lacking = missing_features(tuple(features), here)
        more = missing_features(here, tuple(features))
        difference = f"on a CPU with {_some(lacking)} that this one lacks"
        if not lacking:
            difference = f"on a CPU without {_some(more)}, which this one has"
    return [
        warning(
            "other-hardware",
            f"all {len(sets)} stored plans of {backend.name} were made {difference}",
            "a plan made for one instruction set is never used on another; warm once on each "
            "kind of machine",
        )
    ]


def _some(features: Sequence[str]) -> str:
    shown = ", ".join(features[:4])
    return f"{shown} and {len(features) - 4} more" if len(features) > 4 else shown
