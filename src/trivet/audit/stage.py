"""Where a probe plays: a folder of its own, and child processes that see nothing else."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trivet.audit.child import ANSWER, Answer, Child

# What a child gets of the environment; everything else would be the user's caches and settings.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "CC", "CXX")
_PROGRAMS = "trivet.audit.programs"
_PLANS = "guarded:"  # programs that go through `Plans`
_TRIVET = (
    "import ctypes, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "from trivet.cli import main; sys.exit(main(sys.argv[1:]))"
)


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
            env={**self._environment(), **(environment or {}), ANSWER: str(answer)},
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


def _program(target: str, arguments: Mapping[str, Any]) -> list[str]:
    plain = msgspec.json.encode(arguments, enc_hook=str).decode()
    return [sys.executable, "-m", _PROGRAMS, target, plain]
