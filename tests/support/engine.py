"""What the tests of the engine share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trivet.keys import Key

SOURCE = Path(__file__).parents[2] / "src"


def key(n: object = 0, **fields: object) -> Key:
    """Some key."""
    return Key("test/1", {"n": n, **fields})  # type: ignore[dict-item]


def eventually(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Wait until ``condition`` holds; fails after ``seconds``."""
    end = time.monotonic() + seconds
    pause = 0.0005
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {seconds} s: {what}")
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A second Python process that runs ``code`` with ``arguments`` in ``sys.argv[1:]``."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,  # a child that reads it waits until it is killed or finished
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(process: subprocess.Popen[str], seconds: float = 60.0) -> str:
    """What the process printed; fails when it failed."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
    return out
