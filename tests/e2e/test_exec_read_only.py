"""``trivet exec`` on a cache that can be read and not written."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from tests.support.cli import COMMAND, environment

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


def without_override() -> None:
    """Root may write everywhere, until it gives that up."""
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


def run(cache: Path, script: str) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, "exec", "--folder", "MINE", "--salt", "v=1", "--", "sh", "-c", script]
    return subprocess.run(
        command,
        env=environment(cache),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=without_override,
        timeout=120,
    )


def test_a_read_only_cache_serves_and_the_program_ends_as_it_would(tmp_path: Path) -> None:
    cache = tmp_path / "c"
    assert run(cache, "echo compiled > $MINE/a").returncode == 0
    for each in sorted(cache.rglob("*"), reverse=True):
        each.chmod(each.stat().st_mode & ~0o222)
    cache.chmod(0o555)
    served = run(cache, "cat $MINE/a")
    assert (served.returncode, served.stdout) == (0, "compiled\n"), served.stderr
    for code in (3, 3, 3):  # also one that ends badly, again and again
        failed = run(cache, f"cat $MINE/a; exit {code}")
        assert (failed.returncode, failed.stdout) == (code, "compiled\n"), failed.stderr
        assert "Traceback" not in failed.stderr
