"""Where a probe plays: a folder of its own, and child processes that see nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trivet.audit.finding import GuardFailed, NotRun

# What a child gets of the environment; everything else would be the user's caches and settings.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "CC", "CXX")
_ANSWER = "TRIVET_AUDIT_ANSWER"
_PROGRAMS = "trivet.audit.programs"
_PLANS = "guarded:"  # programs that go through `Plans`
_TRIVET = (
    "import ctypes, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "from trivet.cli import main; sys.exit(main(sys.argv[1:]))"
)
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


class Stage:
    """What a probe works with.

    Args:
        root: a folder of its own, which `close` removes.
        shared: a folder that the probes of one audit share, for what takes long to prepare.
        limit: seconds that one child may take.
    """

    def __init__(self, root: Path, shared: Path, limit: float = 300.0) -> None:
        self.root = root
        self._shared = shared
        self._limit = limit
        self._children: list[Child] = []
        self._answers = 0
        (shared / "tmp").mkdir(exist_ok=True)
        for each in ("home", "answers"):
            (root / each).mkdir(exist_ok=True)

    def folder(self, name: str) -> Path:
        """An empty folder."""
        path = self.root / name
        path.mkdir(parents=True)
        return path

    def prepared(self, name: str, fill: Callable[[Path], object]) -> Path:
        """A copy of the folder that ``fill`` once filled, for all probes of this audit."""
        original = self._shared / name
        if not original.exists():
            original.mkdir()
            fill(original)
        return Path(shutil.copytree(original, self.root / name, symlinks=True))

    def start(
        self,
        target: str,
        *,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        **arguments: Any,
    ) -> Child:
        """Start ``module:function`` of `trivet.audit.programs` in a new process."""
        guarded = target.startswith(_PLANS)
        return self._start([*prefix, *_program(target, arguments)], environment, guarded)

    def run(self, target: str, **arguments: Any) -> Answer:
        """`start`, and wait for the end."""
        return self.start(target, **arguments).result()

    def start_guarded(
        self,
        cache: Path,
        target: str,
        *,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        **arguments: Any,
    ) -> Child:
        """Start it under ``trivet exec``, with the cache in ``cache``."""
        trivet = [*prefix, sys.executable, "-c", _TRIVET]
        command = [*trivet, "exec", "--json", "--cache-dir", str(cache), "--"]
        return self._start([*command, *_program(target, arguments)], environment, True)

    def run_guarded(self, cache: Path, target: str, **arguments: Any) -> Answer:
        """`start_guarded`, and wait for the end."""
        return self.start_guarded(cache, target, **arguments).result()

    def close(self) -> None:
        """End what still runs and remove everything."""
        for child in self._children:
            child.kill()
        for folder, names, _ in os.walk(self.root):
            for each in names:
                with contextlib.suppress(OSError):
                    os.chmod(os.path.join(folder, each), 0o700)
        shutil.rmtree(self.root, ignore_errors=True)

    def _start(
        self, command: Sequence[str], environment: Mapping[str, str] | None, guarded: bool
    ) -> Child:
        self._answers += 1
        answer = self.root / "answers" / f"{self._answers}.json"
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.root,
            env={**self._environment(), **(environment or {}), _ANSWER: str(answer)},
            start_new_session=True,
        )
        child = Child(process, answer, self._limit, guarded=guarded)
        self._children.append(child)
        return child

    def _environment(self) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return {
            **passed,
            "PYTHONPATH": os.pathsep.join(os.path.abspath(each) for each in sys.path),
            "HOME": str(self.root / "home"),
            "XDG_CACHE_HOME": str(self.root / "home" / "cache"),
            "TMPDIR": str(self._shared / "tmp"),
        }


def serve(call: Mapping[str, Any], functions: Mapping[str, Any]) -> None:
    """In the child: write what a function returns, or raises, to where the parent looks."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    path = Path(os.environ.pop(_ANSWER))

    def tell(value: Mapping[str, Any]) -> None:
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(value))
        part.replace(path)

    def on_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        tell({"raised": f"{kind.__name__}: {error}"})
        sys.__excepthook__(kind, error, trace)

    sys.excepthook = on_error
    tell(functions[call["function"]](**call["arguments"]))


def _program(target: str, arguments: Mapping[str, Any]) -> list[str]:
    plain = msgspec.json.encode(arguments, enc_hook=str).decode()
    return [sys.executable, "-m", _PROGRAMS, target, plain]


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
