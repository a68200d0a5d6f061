"""A memo's single flight over two hosts that share nothing but a Valkey."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.flights import FATES, Cell, play


@pytest.mark.parametrize("fate", FATES)
def test_hosts_compute_once_nobody_hangs_and_nobody_suffers(
    tmp_path: Path, valkey: str, fate: str
) -> None:
    cell = Cell("hosts", fate)
    member = [sys.executable, "-m", "tests.support.flight_of_memo", valkey, "2"]
    outcome = play(cell, member, tmp_path, callers=4)
    assert (outcome.calls, outcome.hung, outcome.victims) == (cell.least_calls, 0, 0), (
        tmp_path / "errors"
    ).read_text()
    assert outcome.told == (fate == "raises")
