"""A memo's single flight: threads, tasks and processes x fine, raising, cancelled, killed, forked.

Each cell: as many computations as there must be, nobody hangs, nobody suffers for another.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.flights import FATES, SCOPES, Cell, play

MEMBER = [sys.executable, "-m", "tests.support.flight_of_memo"]


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("scope", [each for each in SCOPES if each != "hosts"])
def test_one_computes_nobody_hangs_and_nobody_suffers(
    tmp_path: Path, scope: str, fate: str
) -> None:
    cell = Cell(scope, fate)
    callers = 4 if scope == "processes" else 16
    outcome = play(cell, MEMBER, tmp_path, callers=callers)
    assert (outcome.calls, outcome.hung, outcome.victims) == (cell.least_calls, 0, 0), (
        tmp_path / "errors"
    ).read_text()
    told = 0 if fate != "raises" else 1 if scope == "processes" else callers
    assert outcome.told == told, "an error is shared within a process, and no further"
