"""A toy compiler with a cache folder, under ``trivet exec``."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.cli import COMMAND, environment

COMPILE = """
import os, sys
from pathlib import Path
folder = Path(os.environ["TOY_CACHE"])
for name in sys.argv[1:]:
    kept = folder / "compiled" / name
    if kept.exists():
        print("hit", name, kept.read_text())
    else:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(f"code of {name}")
        print("miss", name)
"""
# A pipe is opened when both ends are: as a job's processes meet before their first step.
MEETS = (
    "import os, sys\nsys.argv.append('part' + os.environ['PART'])"
    + COMPILE
    + "\nopen(os.environ['MEET'], 'r' if os.environ['PART'] == '1' else 'w').close()"
)
LIBRARIES = {
    name: str(importlib.util.find_spec(module).origin)  # type: ignore[union-attr]
    for name, module in (("blake3", "blake3.blake3"), ("lmdb", "lmdb.cpython"))
}
GUARD = ("--folder", "TOY_CACHE", "--salt", "toy=1")


def start(
    cache: Path, command: list[object], *options: object, **more: Any
) -> subprocess.Popen[str]:
    """Start a command under the guard; ``more`` is as for `Popen`, with ``more`` variables."""
    return subprocess.Popen(
        [COMMAND, "exec", *map(str, options), "--", *map(str, command)],
        env=environment(cache, **more.pop("more", {})),
        stdin=more.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def run(cache: Path, command: list[object], *options: object) -> subprocess.CompletedProcess[str]:
    """Run one to its end."""
    process = start(cache, command, *options)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def toy(cache: Path, *names: str, options: tuple[object, ...] = GUARD) -> tuple[list[str], str]:
    """What the toy compiler said of each name, and the line of the guard."""
    done = run(cache, [sys.executable, "-c", COMPILE, *names], *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def python(code: str) -> list[object]:
    """The command that runs ``code``."""
    return [sys.executable, "-c", code]
