"""From what was seen to verdicts, the same way for every probe."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trivet.audit.child import Answer
from trivet.audit.finding import Guarded, NotRun, Own

_TOLERANCE = 0.02  # of the largest number; compilers round in different ways, bfloat16 coarsely


def error(found: Sequence[float], right: Sequence[float]) -> float:
    """The largest difference; infinite where something is no number, or of another size."""
    if len(found) != len(right) or not all(map(math.isfinite, found)):
        return math.inf
    return max(map(lambda a, b: abs(a - b), found, right), default=0.0)


def is_right(found: Sequence[float], right: Sequence[float]) -> bool:
    """Whether these are the right numbers, but for rounding."""
    return error(found, right) <= _TOLERANCE * max(map(abs, right))


def require_difference(old: Sequence[float], new: Sequence[float]) -> None:
    """Raise `NotRun` when a change can't be seen in the numbers, so that a probe proves nothing."""
    if is_right(old, new):
        raise NotRun("the change of the scene does not change the right numbers")


def off(found: Sequence[float], right: Sequence[float]) -> str:
    """How far off, in words, such as ``off by 1.3 of 2.1``."""
    return f"off by {error(found, right):.2g}, numbers up to {max(map(abs, right)):.2g}"


def served(
    found: Answer, right: Sequence[float], *, stale: Sequence[float] | None = None
) -> tuple[Own, str]:
    """Judge an answer that the framework's cache gave after the scene had changed.

    ``stale`` are the numbers from before the change.
    """
    if found.error:
        return Own.FAILS, found.error
    hit = "served from its cache" if found.value.get("hit") else "computed again"
    if is_right(found.numbers, right):
        return Own.NOT_REPRODUCED, f"{hit}, right numbers"
    if stale is not None and is_right(found.numbers, stale):
        return Own.WRONG, f"{hit} without an error: the old numbers, {off(found.numbers, right)}"
    return Own.WRONG, f"{hit} without an error, {off(found.numbers, right)}"


def guarded(
    answers: Sequence[Answer], right: Sequence[float], sources: Sequence[str]
) -> tuple[Guarded, str]:
    """Judge guarded starts, one after the other: right numbers, each from where it should be."""
    told = []
    verdict = Guarded.RIGHT
    for answer, source in zip(answers, sources, strict=True):
        if answer.error:
            return Guarded.NO_BETTER, answer.error
        reason = answer.value.get("reason")
        told.append(
            answer["source"] + (f" ({reason})" if reason not in ("", None, "absent") else "")
        )
        if not is_right(answer.numbers, right):
            return Guarded.WRONG, f"{told[-1]}, {off(answer.numbers, right)}"
        if answer["source"] != source:
            verdict = Guarded.NO_BETTER
    return verdict, f"{', then '.join(told)}; right numbers"


def flips(seen: Sequence[tuple[Own, str]]) -> tuple[Own, str]:
    """The worst of what `served` said after each of some flipped bits."""
    wrong = [text for verdict, text in seen if verdict is Own.WRONG]
    worst = wrong[0] if wrong else seen[0][1]
    return Own.WRONG if wrong else seen[0][0], f"{len(wrong)} of {len(seen)} flipped bits: {worst}"


def storm(answers: Sequence[Answer], right: Sequence[float]) -> tuple[Guarded, str]:
    """Judge guarded processes that started at the same time: one of them is to compile."""
    failed = [each.error for each in answers if each.error]
    if failed:
        return Guarded.NO_BETTER, failed[0]
    compiled = sum(each["source"] == "compiled" for each in answers)
    wrong = sum(not is_right(each.numbers, right) for each in answers)
    seen = f"{len(answers)} processes compiled {counted(compiled)}; {len(answers) - wrong} right"
    if wrong:
        return Guarded.WRONG, seen
    return (Guarded.RIGHT if compiled == 1 else Guarded.NO_BETTER), seen


def counted(times: int) -> str:
    """``once``, ``3 times``."""
    return "once" if times == 1 else f"{times} times"
