"""How many executables of a backend are in memory at once."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec


class Living:
    """A backend that counts what it has handed out and what is still held.

    Attributes:
        most: executables held at the same time, plans and uncompiled models together.
        log: ``"load"``, ``"fallback"`` and ``"compile"``, as they came.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._alive: weakref.WeakSet[_Held] = weakref.WeakSet()
        self.most = 0
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def load(self, *arguments: Any) -> Any:
        with self._noted("load"):
            return self._hold(self._backend.load(*arguments))

    def fallback(self, *arguments: Any) -> Any:
        with self._noted("fallback"):
            return self._hold(self._backend.fallback(*arguments))

    def compile(self, *arguments: Any) -> Any:
        with self._noted("compile"):
            built = self._backend.compile(*arguments)
            return msgspec.structs.replace(built, executable=self._hold(built.executable))

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        self.log.append(what)
        self.most = max(self.most, len(self._alive) + 1)
        yield

    def _hold(self, executable: Any) -> Any:
        held = _Held(executable)
        self._alive.add(held)
        return held


class _Held:
    def __init__(self, executable: Any) -> None:
        self._executable = executable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)
