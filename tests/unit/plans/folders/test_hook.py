"""The hook knows, without Trivet, what the tables of frameworks say."""

from __future__ import annotations

import re
from pathlib import Path

import trivet.plans.folders
from trivet.plans.folders import KNOWN

HOOK = Path(trivet.plans.folders.__file__).parent / "hook" / "sitecustomize.py"


def test_every_framework_is_looked_out_for() -> None:
    (names,) = re.findall(r"^FRAMEWORKS = \((.*)\)$", HOOK.read_text(), re.MULTILINE)
    assert {each.strip(' "') for each in names.split(",")} == {
        module for framework in KNOWN for module in framework.modules
    }
    assert all(framework.modules for framework in KNOWN)
