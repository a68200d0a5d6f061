"""Child processes of a probe: what they are told to do, and how they ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trivet.audit.finding import GuardFailed, NotRun

ANSWER = "TRIVET_AUDIT_ANSWER"  # names the file that a child writes
_TEXT_LIMIT = 160  # characters of an error; compilers print whole programs


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended.

    Attributes:
        value: what its function returned; empty when it did not.
        error: the exception, signal or time limit that it ended by, in a line; empty for none.
        crashed: whether a signal ended it.
        effects: under ``trivet exec``, the effect by framework.
        guarded: whether it ran under Trivet.
    """

    value: Mapping[str, Any] = {}
    error: str = ""
    crashed: bool = False
    effects: Mapping[str, Any] = {}
    guarded: bool = False

    def __getitem__(self, name: str) -> Any:
        """A part of the value.

        Raises when the child did not get that far: `GuardFailed` where it was guarded, which is
        Trivet's fault until shown otherwise, else `NotRun`.
        """
        if name not in self.value:
            kind = GuardFailed if self.guarded else NotRun
            raise kind(f"a step of the probe ended otherwise: {self.error or 'no ' + name}")
        return self.value[name]

    @property
    def numbers(self) -> list[float]:
        """What was computed."""
        return list(self["y"])


class Child:
    """A child that is running."""

    def __init__(
        self, process: subprocess.Popen[bytes], answer: Path, limit: float, *, guarded: bool
    ) -> None:
        self._process = process
        self._answer = answer
        self._limit = limit
        self._guarded = guarded

    @property
    def pid(self) -> int:
        """Of the process; also of its group."""
        return self._process.pid

    def wait_for(self, file: Path) -> None:
        """Wait until the child has made ``file``. Raises as `Answer` does when it ends without."""
        until = time.monotonic() + self._limit
        while not file.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                kind = GuardFailed if self._guarded else NotRun
                raise kind(f"a step of the probe did not get ready: {self.result().error}")
            time.sleep(0.01)

    def result(self) -> Answer:
        """Wait for its end; at the time limit it is killed with all that it started."""
        return msgspec.structs.replace(self._result(), guarded=self._guarded)

    def _result(self) -> Answer:
        try:
            _, said = self._process.communicate(timeout=self._limit)
        except subprocess.TimeoutExpired:
            return Answer(error=f"took longer than {self._limit:.0f} s and was killed")
        finally:
            self.kill()
        code = self._process.returncode
        effects, told = _effects(said), self._told()
        if code < 0 or code > 128:  # `trivet exec` ends like its program
            number = -code if code < 0 else code - 128
            return Answer(error=f"killed by {_name(number)}", crashed=True, effects=effects)
        if "raised" in told:
            return Answer(error=_short(told["raised"]), effects=effects)
        if code != 0 or not told:
            last = said.decode(errors="replace").strip().splitlines()[-1:] or [""]
            return Answer(error=_short(f"ended with {code}: {last[0]}"), effects=effects)
        return Answer(value=told, effects=effects)

    def kill(self) -> None:
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _told(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self._answer.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return {}


def serve(call: Mapping[str, Any], functions: Mapping[str, Any]) -> None:
    """In the child: write what a function returns, or raises, to where the parent looks."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    path = Path(os.environ.pop(ANSWER))

    def tell(value: Mapping[str, Any]) -> None:
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(value))
        part.replace(path)

    def on_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        tell({"raised": f"{kind.__name__}: {error}"})
        sys.__excepthook__(kind, error, trace)

    sys.excepthook = on_error
    tell(functions[call["function"]](**call["arguments"]))


def _effects(said: bytes) -> dict[str, Any]:
    """What ``trivet exec --json`` says in its last line."""
    for line in reversed(said.splitlines()):
        if line.startswith(b'{"effects":'):
            told = msgspec.json.decode(line)
            return {each["framework"]: each for each in told["effects"]}
    return {}


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_LIMIT else line[: _TEXT_LIMIT - 1] + "…"
