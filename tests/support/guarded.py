"""Programs under ``trivet exec``, and the effect that it reports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.cli import COMMAND, environment


class Guarded:
    """How a guarded program ended: what it printed, and the effects by framework."""

    def __init__(self, process: subprocess.Popen[str], patience: float) -> None:
        out, err = process.communicate(timeout=patience)
        assert process.returncode == 0, err
        self.out = out
        told = json.loads(err.splitlines()[-1])
        self.effects: dict[str, Any] = {each["framework"]: each for each in told["effects"]}


def start(
    cache: Path, program: Path, *arguments: object, options: tuple[object, ...] = (), **more: str
) -> subprocess.Popen[str]:
    """Start a Python program under the guard; ``more`` is added to its environment."""
    return start_command(cache, [sys.executable, program, *arguments], *options, **more)


def start_command(
    cache: Path, command: Sequence[object], *options: object, **more: str
) -> subprocess.Popen[str]:
    """Start any command under the guard."""
    return subprocess.Popen(
        list(map(str, [COMMAND, "exec", "--json", *options, "--", *command])),
        env=environment(cache, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(cache: Path, program: Path, *arguments: object, **more: str) -> Guarded:
    """Run one to its end."""
    return Guarded(start(cache, program, *arguments, **more), 280)
