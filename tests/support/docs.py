"""Runs the examples of a documentation page, as a reader would.

    python -m tests.support.docs PAGE FOLDER
    python -m tests.support.docs PAGE FOLDER --fill     writes what was printed into the page

One process a page, in an empty folder with an empty cache. What is done with a fenced block is
decided by its first line:

    ```python                    run; all blocks of a page share one namespace
    ```console                   lines that begin with "$ " are run by a shell and must exit with 0;
                                 the lines below are output, and must come in this order
    ```LANGUAGE title="NAME"     written to the file NAME, not run
    anything else                left alone

Comments on a line of their own steer it, unseen by the reader:

    <!-- setup: NAME.onnx -->    puts a small ResNet there
    <!-- exit: N -->             the last command of the next console block exits with N

Expected output may leave lines out with "…". Numbers with their units, digests and runs of white
space are equal to any others, because figures differ from run to run and from machine to machine.
``--fill`` replaces what is shown below a command, unless it leaves lines out; to have output shown
for the first time, put a line below the command.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
FILL = "--fill" in sys.argv
_FENCE = re.compile(r"^( *)(`{3,})(\w*) *(?:title=\"([^\"]+)\")? *$")
_COMMENT = re.compile(r"^<!-- (setup|exit): (\S+) -->$")
_VARIES = re.compile(
    r"\b[0-9a-f]{8,64}\b|\d+(?:[.,:-]\d+)*(?: ?(?:ms|s|min|h|B|kB|MB|GB)\b)?|\bnow\b"
)


class Block(NamedTuple):
    """One thing to do. ``line`` is that of the first line of ``text``, counted from 1."""

    kind: str
    text: str
    line: int
    title: str = ""
    exit_code: int = 0


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    lines = page.splitlines()
    exit_code, number = 0, 0
    while number < len(lines):
        comment = _COMMENT.match(lines[number])
        fence = _FENCE.match(lines[number])
        number += 1
        if comment and comment[1] == "setup":
            yield Block("setup", comment[2], number)
        elif comment:
            exit_code = int(comment[2])
        elif fence:
            indent, ticks, kind, title = fence.groups()
            start = number
            while lines[number].strip() != ticks:
                number += 1
            body = [each.removeprefix(indent) for each in lines[start:number]]
            text = "\n".join(body) + "\n"
            yield Block(kind, text, start + 1, title or "", exit_code)
            exit_code, number = 0, number + 1


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with the output shown below it."""
    command = ""
    shown: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:], []
        elif line.strip():
            shown.append(line)
    if command:
        yield command, shown


def normal(line: str) -> str:
    """A line of output without what differs from run to run."""
    return " ".join(_VARIES.sub("#", line).split())


def missing_line(shown: list[str], output: str) -> str | None:
    """The first expected line that does not come in ``output``, in order; None if all do."""
    rest = iter([normal(each) for each in output.splitlines()])
    for line in shown:
        if line.strip() != "…" and not any(normal(line) == each for each in rest):
            return line
    return None


def run_page(page: Path) -> str:
    """Run all blocks in the working folder; returns the page with the output of this run.

    Raises AssertionError or what an example raises.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    text = page.read_text()
    filled = text
    for block in blocks(text):
        if block.kind == "setup":
            from examples.models import resnet50

            resnet50(block.text, blocks=(1, 1, 1, 1), width=16)
        elif block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text)
        elif block.kind == "python":
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, str(page), "exec"), namespace)
        elif block.kind == "console":
            filled = filled.replace(block.text, _run_console(block, page), 1)
    return filled


def _run_console(block: Block, page: Path) -> str:
    steps = list(commands(block.text))
    lines = []
    for index, (command, shown) in enumerate(steps):
        done = subprocess.run(
            ["bash", "-c", command.partition("   #")[0]],
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        wanted = block.exit_code if index == len(steps) - 1 else 0
        where = f"{page.name}:{block.line}: $ {command}"
        assert done.returncode == wanted, f"{where}\nexit code {done.returncode}\n{done.stdout}"
        gap = None if FILL else missing_line(shown, done.stdout)
        assert gap is None, f"{where}\ndid not print\n  {gap}\nbut\n{done.stdout}"
        keep = not shown or any(line.strip() == "…" for line in shown)
        lines += [f"$ {command}", *(shown if keep else done.stdout.strip("\n").splitlines())]
    return "\n".join(lines) + "\n"


def environment(folder: Path) -> dict[str, str]:
    """A reader's environment: commands on the path, the home and every cache inside ``folder``."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TRIVET_", "XDG_", "PYTEST_"))
    }
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONWARNINGS": "error",
    }


def expect_examples_run(page: str, folder: Path, reader: Mapping[str, str] | None = None) -> None:
    """The examples of ``page`` run in ``folder``, in a process with the environment ``reader``."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.docs", str(ROOT / page), str(folder)],
        check=False,
        cwd=ROOT,
        env=reader or environment(folder),
        text=True,
        capture_output=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    sys.path.insert(0, sys.argv[2])  # as for a script that lies there
    printed = run_page(Path(sys.argv[1]))
    if FILL:
        Path(sys.argv[1]).write_text(printed)
