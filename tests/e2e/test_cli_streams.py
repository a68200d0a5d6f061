"""The command where standard output is missing, or takes nothing."""

from __future__ import annotations

import subprocess
import sys
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


def test_an_interrupt_before_the_command_is_imported_is_an_exit_code(tmp_path: Path) -> None:
    script = """
import sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "trivet.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from trivet.cli import main
sys.exit(main(["ls"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env=environment(tmp_path / "c"),
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (130, "")
