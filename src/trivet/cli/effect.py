"""What guarding a program was good for, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trivet.cli.output import counted, in_bytes, in_seconds

if TYPE_CHECKING:
    from trivet.plans.folders import Effect
    from trivet.plans.folders.reports import Counters

_REASONS = {
    "absent": "no folder is kept under this key",
    "wait-timeout": "another run was compiling it",
}


def effects_in_words(effects: Sequence[Effect]) -> str:
    """One line for all frameworks that were used; empty where none was."""
    return "; ".join(filter(None, map(_in_words, effects)))


def _in_words(effect: Effect) -> str:
    """One framework's part of the line; nothing where it was not used."""
    counters = effect.counters
    if not effect.is_any:
        return ""
    if effect.restored == "hit":
        parts = [f"restored {counted(effect.files, 'file')} ({in_bytes(effect.size)})"]
        if counters is not None and not counters.hits:
            parts.append(_in_vain(effect.framework, counters))
    else:
        reason = effect.reason or effect.restored
        parts = [f"nothing restored ({_REASONS.get(reason, reason)})"]
    if counters is None:
        parts.append("no counters reported")
    elif counters.used:
        parts += _counted(counters)
    if effect.added:
        parts.append(f"kept {counted(effect.added, 'more file' if effect.files else 'file')}")
    if effect.left_out:
        verbs = "was half written or tells" if effect.left_out == 1 else "were half written or tell"
        parts.append(f"left out {effect.left_out} that {verbs} of a failure")
    if effect.not_kept:
        parts.append(f"not kept: {effect.not_kept}")
    return f"{effect.framework}: {', '.join(parts)}"


def _in_vain(framework: str, counters: Counters) -> str:
    """Why nothing of what was restored was used."""
    if counters.misses:
        return (
            f"but {framework} used nothing of it: it compiled other things, or could not load what "
            "it had kept"
        )
    if counters.bypasses or counters.compile_seconds:
        # Libraries below the graphs may have been used, which nobody counts.
        return f"but no graphs: {framework}'s cache does not hold those of this program"
    return "but the program compiled nothing"


def _counted(counters: Counters) -> list[str]:
    misses = f"{counters.misses} miss" if counters.misses == 1 else f"{counters.misses} misses"
    parts = [counted(counters.hits, "hit"), misses]
    if counters.bypasses:
        parts.append(f"{counters.bypasses} not cacheable")
    if counters.saved_seconds >= 0.05:
        parts.append(f"{in_seconds(counters.saved_seconds)} spared")
    return parts
