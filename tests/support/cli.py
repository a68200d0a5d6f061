"""The command ``trivet``: in a process of its own, and inside the test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trivet.cli import main

COMMAND = str(Path(sys.executable).parent / "trivet")


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)


def environment(cache: Path, **more: str) -> dict[str, str]:
    """An environment without anything that a key or the command would pick up."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TRIVET_", "ORT_", "OMP_", "OV_", "ONNX"))
    }
    return {**kept, "TRIVET_CACHE_DIR": str(cache), **more}


def trivet(cache: Path, *arguments: object, **more: str) -> Done:
    """Run the real command; ``more`` is added to its environment."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        env=environment(cache, **more),
        timeout=120,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Shell:
    """Runs commands inside the test's process, on one cache folder."""

    def __init__(self, cache: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.cache = cache
        self._captured = captured

    def __call__(self, name: str, *arguments: object) -> Done:
        self._captured.readouterr()
        code = main([name, *map(str, arguments), "--cache-dir", str(self.cache)])
        return Done(code, *self._captured.readouterr())
