"""What guarding was good for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trivet.plans.folders.guard import KeptFolder, Restored
from trivet.plans.folders.reports import Counters, Report, counters_of


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What guarding one framework did in a run.

    Attributes:
        framework: its name.
        restored: see `Restored`. reason: why it was not a hit.
        files, size: restored, and their bytes.
        added: files that this run added and that were kept.
        left_out: files that are not, being half written or telling of a failure.
        not_kept: why what was added is not kept; empty where it is.
        counters: the framework's own, None where no process reported.
    """

    framework: str
    restored: Restored
    reason: str
    files: int
    size: int
    added: int
    left_out: int
    not_kept: str
    counters: Counters | None

    @property
    def is_any(self) -> bool:
        """Whether the folder was good for anything, or should have been."""
        used = self.counters is not None and self.counters.used
        return bool(self.files or self.added or self.left_out or self.not_kept or used)


def effects_of(
    folders: Sequence[KeptFolder],
    reports: list[Report],
    not_kept: Mapping[str, str],
) -> list[Effect]:
    """Those of a run's folders, without what a process left as it was, since it turned out to need
    another one. ``not_kept`` is by the names of folders."""
    last = {each.framework.name: each for each in folders}
    found = []
    for each in folders:
        name = each.framework.name
        filled = {
            other.path.name: bool(other.files or other.added)
            for other in folders
            if other.framework.name == name
        }
        effect = Effect(
            framework=name,
            restored=each.restored,
            reason=each.reason,
            files=each.files,
            size=each.size,
            added=each.added,
            left_out=each.left_out,
            not_kept=not_kept.get(each.path.name, ""),
            counters=counters_of(reports, name, each.path.name, filled),
        )
        if effect.is_any or each is last[name]:
            found.append(effect)
    return found
