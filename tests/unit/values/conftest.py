"""What tests of memos share."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., types.ModuleType]:
    """Makes a module of the program from its source."""

    def load(source: str, name: str = "program") -> types.ModuleType:
        module = types.ModuleType(name)
        module.__file__ = str(tmp_path / f"{name}.py")
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(source, module.__file__, "exec"), vars(module))
        return module

    return load


@pytest.fixture
def threads_that_take_turns() -> Iterator[None]:
    """The interpreter goes from thread to thread as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
