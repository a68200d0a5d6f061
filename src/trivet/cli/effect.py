"""What guarding a program was good for, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trivet.cli.output import in_bytes, in_seconds

if TYPE_CHECKING:
    from trivet.plans.folders import Effect


def effects_in_words(effects: Sequence[Effect]) -> str:
    """One line for all frameworks that were used; empty where none was."""
    return "; ".join(filter(None, map(_in_words, effects)))


def _in_words(effect: Effect) -> str:
    """One framework's part of the line; nothing where it was not used."""
    counters = effect.counters
    if not effect.is_any:
        return ""
    parts = [f"{effect.framework}: "]
    if effect.restored == "hit":
        parts.append(f"restored {_files(effect.files)} ({in_bytes(effect.size)})")
        if counters is not None and not counters.hits:
            parts.append(
                f", but {effect.framework} used nothing of it: it compiled other things, or could "
                "not load what it had kept"
                if counters.misses
                else ", but the program compiled nothing"
            )
    else:
        parts.append(f"nothing restored ({effect.reason or effect.restored})")
    if counters is not None and counters.used:
        parts.append(f", {counters.hits} hits, {counters.misses} misses")
        if counters.saved_seconds >= 0.05:
            parts.append(f", {in_seconds(counters.saved_seconds)} spared")
    elif counters is None:
        parts.append(", no counters reported")
    if effect.added:
        parts.append(f", kept {_files(effect.added, 'more ' if effect.files else '')}")
    if effect.not_kept:
        parts.append(f", not kept: {effect.not_kept}")
    return "".join(parts)


def _files(number: int, more: str = "") -> str:
    return f"{number} {more}file{'' if number == 1 else 's'}"
