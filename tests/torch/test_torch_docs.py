"""The pages about PyTorch keep their word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.docs import ROOT, environment


@pytest.mark.parametrize("page", ["docs/how-to/pytorch.md", "docs/tutorial/warm-server.md"])
def test_examples_of_the_page_run(page: str, tmp_path: Path) -> None:
    given = environment(tmp_path)
    del given["PYTHONWARNINGS"]  # importing Inductor warns of PyTorch's own deprecations
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.docs", ROOT / page, tmp_path],
        check=False,
        cwd=ROOT,
        env=given,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
