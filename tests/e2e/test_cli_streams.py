"""The command where standard output is missing, or takes nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.cli import COMMAND, environment

from trivet import Cache


@pytest.mark.parametrize(
    ("redirection", "code"),
    [(">&-", 0), (">&- 2>&-", 0), (">/dev/full", 1), ("--json >/dev/full", 1)],
)
def test_an_output_that_takes_nothing_is_an_exit_code_and_no_traceback(
    redirection: str, code: int, tmp_path: Path
) -> None:
    Cache.open(tmp_path / "c").close()
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" ls {redirection}', COMMAND],
        check=False,
        capture_output=True,
        text=True,
        env=environment(tmp_path / "c"),
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ("No space left" in done.stderr) is (code == 1)
