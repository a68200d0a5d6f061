"""Verdicts from what was seen."""

from __future__ import annotations

from typing import Any

import pytest

from trivet.audit import judge
from trivet.audit.child import Answer
from trivet.audit.finding import Guarded, NotRun, Own

OLD, NEW = [1.0, 2.0], [3.0, -4.0]


def answer(y: list[float], **more: Any) -> Answer:
    return Answer(value={"y": y, **more})


def test_old_numbers_after_a_change_are_wrong_and_named_as_old() -> None:
    verdict, text = judge.served(answer(OLD, hit=True), NEW, stale=OLD)
    assert verdict is Own.WRONG
    assert "old numbers, off by 6" in text


@pytest.mark.parametrize("y", [[float("nan"), -4.0], [float("inf"), -4.0], [3.0]])
def test_what_is_no_number_or_of_another_size_is_wrong(y: list[float]) -> None:
    assert judge.served(answer(y, hit=True), NEW)[0] is Own.WRONG


def test_right_numbers_are_not_reproduced_and_an_error_is_a_failure() -> None:
    assert judge.served(answer([3.01, -4.0], hit=True), NEW)[0] is Own.NOT_REPRODUCED
    assert judge.served(Answer(error="boom"), NEW) == (Own.FAILS, "boom")


def test_a_change_that_can_not_be_seen_proves_nothing() -> None:
    judge.require_difference(OLD, NEW)
    with pytest.raises(NotRun):
        judge.require_difference(OLD, [1.001, 2.0])


def test_a_guarded_start_has_to_be_right_and_from_where_it_should_be() -> None:
    made, hit = answer(NEW, source="compiled", reason="corrupt"), answer(NEW, source="cache")
    verdict, text = judge.guarded([made, hit], NEW, ["compiled", "cache"])
    assert verdict is Guarded.RIGHT
    assert text == "compiled (corrupt), then cache; right numbers"
    assert judge.guarded([made, made], NEW, ["compiled", "cache"])[0] is Guarded.NO_BETTER
    assert judge.guarded([hit], OLD, ["cache"])[0] is Guarded.WRONG
    assert judge.guarded([Answer(error="boom")], NEW, ["cache"])[0] is Guarded.NO_BETTER


def test_of_many_guarded_processes_one_compiles() -> None:
    made, hit = answer(NEW, source="compiled"), answer(NEW, source="cache")
    assert judge.storm([made, hit, hit], NEW)[0] is Guarded.RIGHT
    assert judge.storm([made, made, hit], NEW)[0] is Guarded.NO_BETTER
    assert judge.storm([made, hit, answer(OLD, source="cache")], NEW)[0] is Guarded.WRONG
    assert judge.storm([made, Answer(error="boom")], NEW)[0] is Guarded.NO_BETTER


def test_a_step_that_ended_otherwise_says_how() -> None:
    with pytest.raises(NotRun, match="killed by SIGSEGV"):
        Answer(error="killed by SIGSEGV", crashed=True)["y"]
