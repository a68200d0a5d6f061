"""Checks of the shared tier: can it be reached, and does it push what other hosts change?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trivet.cli.doctor.section import Section, error, warning
from trivet.cli.opening import open_shared
from trivet.errors import StoreError
from trivet.plans.backend import Finding

_NOBODY = bytes(32)  # a digest that no entry has


def check_shared(urls: Sequence[str]) -> list[Section]:
    """A section for each url. Raises `StoreUnavailable` for what is none, and `MissingExtra`."""
    return [_check(each) for each in urls]


def _check(url: str) -> Section:
    shared = open_shared([url])
    try:
        summary, findings = "reached", list[Finding]()
        for store in (shared.objects, shared.values):
            if store is not None:
                store.read(_NOBODY)
        if shared.values is not None:
            from trivet.stores.shared.push import check_pushes

            try:
                check_pushes(shared.values)
                summary += ", changes are pushed"
            except StoreError as trouble:
                findings = [_not_pushed(trouble)]
    except StoreError as trouble:
        summary = "can't be used"
        findings = [
            error(
                "shared-unreachable",
                f"{trouble.message}, so programs work without it",
                trouble.hint or "check the URL, the network and the credentials",
            )
        ]
    finally:
        shared.close()
    hidden = re.sub(r"//[^/@]*@", "//…@", url)  # a name and a password
    return Section(name="shared", summary=f"{hidden}: {summary}", findings=findings)


def _not_pushed(trouble: StoreError) -> Finding:
    return warning(
        "not-pushed",
        f"what other hosts change is noticed within seconds, not at once: {trouble.message}",
        trouble.hint or "allow the user CLIENT TRACKING, client|tracking in its rights",
    )
