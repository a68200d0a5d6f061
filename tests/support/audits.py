"""Audits of one framework, and what they are expected to find."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.cli import COMMAND, environment


def expect(folder: Path, framework: str, found: Mapping[str, set[str]], patience: float) -> None:
    """Audit ``framework``: its own cache is to do one of the things ``found`` for each probe, and
    every guarded run is to be right.

    A release that mends something fails here: its page needs a word about that.
    """
    done = subprocess.run(
        [COMMAND, "audit", framework, "--json"],
        check=False,
        capture_output=True,
        text=True,
        env=environment(folder),
        timeout=patience,
    )
    told = json.loads(done.stdout)
    findings = {each["id"]: each for each in told["findings"]}
    assert set(findings) == set(found)
    for name, each in findings.items():
        assert each["own"] in found[name], json.dumps(each)
        assert each["guarded"] == "right", json.dumps(each)
    assert told["summary"]["guarded_wrong"] == 0
    assert done.returncode == 0, done.stderr
