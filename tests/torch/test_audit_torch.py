"""``trivet audit torch``: what Inductor's folder does, and that guarded programs don't."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.audits import expect


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_inductors_folder_does_and_that_guarded_programs_do_not(tmp_path: Path) -> None:
    found = {
        "torch-instruction-set": {"fails", "wrong"},  # by the processor
        "torch-custom-operator": {"wrong"},
        "torch-flipped-bit": {"wrong"},
        "torch-empty-library": {"not healed"},
        "torch-read-only": {"fails"},
    }
    expect(tmp_path, "torch", found, 1150)
