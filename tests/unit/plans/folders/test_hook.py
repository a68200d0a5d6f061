"""The hook knows, without Trivet, what the tables of frameworks say."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import trivet.plans.folders
from trivet.plans.folders import KNOWN

HOOK = Path(trivet.plans.folders.__file__).parent / "hook" / "sitecustomize.py"


def test_every_framework_is_looked_out_for() -> None:
    (names,) = re.findall(r"^FRAMEWORKS = \((.*)\)$", HOOK.read_text(), re.MULTILINE)
    assert {each.strip(' "') for each in names.split(",")} == {
        module for framework in KNOWN for module in framework.modules
    }
    assert all(framework.modules for framework in KNOWN)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/usr/src/app/release-2/operators.py", True),  # where images put programs
        ("/usr/local/src/operators.so", True),
        ("/home/me/operators.so", True),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", False),
        ("/usr/local/cuda-13/lib64/libcudart.so", False),
        (sys.executable, False),
    ],
)
def test_what_a_program_brings_itself_is_told_from_what_is_installed(
    path: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIVET_EXEC_RUN", "/tmp/run")
    spec = importlib.util.spec_from_file_location("loaded", HOOK.parent / "trivet_exec_loaded.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert loaded.is_own(path) is own
