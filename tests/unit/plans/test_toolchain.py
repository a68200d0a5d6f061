"""Compilers: by content, and asked again when they are others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trivet import Cache
from trivet.plans import toolchain
from trivet.plans.memo import CacheMemo


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions from now on."""
    questions: list[str] = []
    real = toolchain._ask

    def ask(path: str, argument: str) -> str:
        questions.append(argument)
        return real(path, argument)

    monkeypatch.setattr(toolchain, "_ask", ask)
    return questions


def test_what_a_real_compiler_said_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("gcc") or shutil.which("cc")
    assert real is not None
    questions = asked(monkeypatch)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        first = toolchain.compiler_fields(real, CacheMemo(cache))
        count = len(questions)
        assert toolchain.compiler_fields(real, CacheMemo(cache)) == first
    assert count > 1
    assert len(questions) == count
    assert toolchain.compiler_fields(real) == first


def test_a_script_that_leads_to_a_compiler_is_asked_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lead to another one tomorrow."""
    script = tmp_path / "g++"
    said = tmp_path / "version"
    script.write_text(f"#!/bin/sh\ncat {said}\n")
    script.chmod(0o755)
    found = []
    with Cache.open(tmp_path / "c", strict=True) as cache:
        for version in ("12", "13"):
            said.write_text(version)
            found.append(toolchain.compiler_fields(str(script), CacheMemo(cache))["version"])
    assert found == ["12", "13"]
