"""Many ask for one value at once, and something happens to the one that computes it.

A *member* is a process that asks, in one or many threads or tasks; what it asks is up to its
program, which calls `Member.ask`. `play` runs members and tells what they got. They meet in a
folder: ``calls`` has a line for each computation, ``waits`` one for each caller known to wait,
``gate`` is there when all have asked, ``go-on`` when the first computation may end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from tests.support.engine import eventually

SCOPES = ("threads", "tasks", "processes", "hosts")
FATES = ("ok", "raises", "cancelled", "killed", "forks")
ROOT = Path(__file__).parents[2]
PAUSE = 0.005


class Cell(msgspec.Struct, frozen=True):
    """One place of the matrix: who asks, and what happens to the leader."""

    scope: str
    fate: str

    @property
    def least_calls(self) -> int:
        """How many computations must be: an error reaches all callers of its process, and a leader
        that is gone has one successor."""
        alone = self.fate in ("ok", "forks") or (
            self.fate == "raises" and self.scope in ("threads", "tasks")
        )
        return 1 if alone else 2


class Outcome(msgspec.Struct, frozen=True):
    """What came of a cell.

    Attributes:
        calls: computations.
        hung: callers that had no answer in time.
        victims: callers that got an error which was somebody else's cancellation or death.
        told: callers that got the leader's own error.
        seconds: from when the leader was gone or done until all had their answers.
    """

    calls: int
    hung: int
    victims: int
    told: int
    seconds: float


def play(
    cell: Cell,
    program: Sequence[str],
    folder: Path,
    *,
    callers: int = 8,
    patience: float | None = None,
    deadline: float = 60.0,
) -> Outcome:
    """Run a cell in the empty ``folder``.

    Args:
        program: the command of a member, which gets the arguments of `Member`.
        callers: in a thread or task each; in processes and on two hosts one each.
        patience: seconds until all are taken to wait that have not said so; None for members that
            say it.
        deadline: seconds that they have to end, once the leader is gone or done.
    """
    many = cell.scope in ("threads", "tasks")
    # Where a whole process is killed, others in another process wait for it.
    members = (2 if cell.fate == "killed" else 1) if many else callers
    each = callers if many else 1
    running = [
        _start([*program, str(folder), cell.scope, cell.fate, str(n), str(each)], folder)
        for n in range(members)
    ]
    said: list[list[str]] = [[] for _ in running]
    listeners = [
        threading.Thread(target=_listen, args=(process, said[n]), daemon=True)
        for n, process in enumerate(running)
    ]
    try:
        for process in running:
            _expect_ready(process)
        for process, listener in zip(running, listeners, strict=True):
            listener.start()
            process.stdin.write(b"go\n")
            process.stdin.flush()
        started = _strike(cell, folder, members * each - 1, patience)
        ended = started
        while ended < started + deadline and any(each.is_alive() for each in listeners):
            time.sleep(PAUSE)
            ended = time.monotonic()
    finally:
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for process, listener in zip(running, listeners, strict=True):
            listener.join()
            process.stdin.close()
            process.stdout.close()
    expected = members * each + (cell.fate == "forks") - (each if cell.fate == "killed" else 0)
    return _judge(
        cell, Counter(line for each in said for line in each), expected, folder, ended - started
    )


def _strike(cell: Cell, folder: Path, others: int, patience: float | None) -> float:
    """Let happen what happens to the leader, when all others wait; returns when."""
    eventually(lambda: bool(lines(folder / "calls")), f"in {cell} somebody computes", 60.0)
    _wait(folder, others, patience)
    leader = int(lines(folder / "calls")[0])
    (folder / "gate").touch()
    if cell.fate == "forks":
        _wait(folder, others + 1, patience)
    if cell.fate == "killed":
        os.kill(leader, signal.SIGKILL)
    elif cell.fate == "cancelled" and cell.scope in ("processes", "hosts"):
        os.kill(leader, signal.SIGINT)
    if (cell.scope, cell.fate) != ("tasks", "cancelled"):  # there the member does it
        (folder / "go-on").touch()
    return time.monotonic()


def _judge(cell: Cell, got: Counter[str], expected: int, folder: Path, seconds: float) -> Outcome:
    told = got["LookupError"]
    own = 1 if cell.fate == "cancelled" else 0
    bad = sum(number for name, number in got.items() if name not in ("value", "LookupError"))
    return Outcome(
        calls=len(lines(folder / "calls")),
        hung=expected - got.total(),
        victims=max(0, bad - own),
        told=told,
        seconds=seconds,
    )


def _start(command: list[str], folder: Path) -> Any:
    with (folder / "errors").open("ab") as errors:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            cwd=ROOT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        )  # fmt: skip


def _expect_ready(process: Any) -> None:
    line = process.stdout.readline()
    if line != b"ready\n":
        raise RuntimeError(f"a member could not begin: {process.args}")


def _listen(process: Any, lines: list[str]) -> None:
    """Until all who may write have ended: the process and its forks."""
    lines.extend(line.decode().strip() for line in process.stdout)


def _wait(folder: Path, callers: int, patience: float | None) -> None:
    if patience is None:
        eventually(lambda: len(lines(folder / "waits")) >= callers, "the others wait", 60.0)
    else:
        time.sleep(patience)


def lines(path: Path) -> list[str]:
    """Of the file, if it is there."""
    with suppress(FileNotFoundError):
        return path.read_text().split()
    return []
