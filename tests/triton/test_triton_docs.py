"""The page about Triton keeps its word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.docs import ROOT, environment


def test_examples_of_the_page_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.docs", ROOT / "docs/how-to/triton.md", tmp_path],
        check=False,
        cwd=ROOT,
        env=environment(tmp_path),
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
