"""Marks of loads under way, seen by others at every moment."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from trivet.cache.journal import LoadJournal

DIGEST = bytes(range(32))


@pytest.mark.parametrize("function", ["open", "rename", "unlink", "close", "flock"])
def test_a_mark_is_never_seen_unlocked_while_its_process_lives(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process looks before and after each step of making and removing a mark."""
    mine, other = LoadJournal(tmp_path), LoadJournal(tmp_path)
    module: Any = fcntl if function == "flock" else os
    real = getattr(module, function)
    looks: list[bool] = []

    def look() -> None:
        monkeypatch.setattr(module, function, real)
        looks.append(other.take_crash(DIGEST))
        if not looks[-1]:
            monkeypatch.setattr(module, function, stepping)

    def stepping(*arguments: Any, **named: Any) -> Any:
        look()
        found = real(*arguments, **named)
        look()
        return found

    monkeypatch.setattr(module, function, stepping)
    with mine.mark(DIGEST):
        monkeypatch.setattr(module, function, real)
        assert not other.take_crash(DIGEST)
        assert len(list(tmp_path.iterdir())) == 1, "others leave the mark where it is"
        monkeypatch.setattr(module, function, stepping)
    monkeypatch.setattr(module, function, real)
    assert looks
    assert not any(looks)
    assert list(tmp_path.iterdir()) == []
