"""The page of field cases names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "field-cases.md"


def test_every_case_names_tests_that_exist() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cases = [row for row in rows if not row.startswith(("| ---", "| what happens"))]
    assert len(cases) > 40
    missing = []
    for case in cases:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", case)
        assert named, f"no test: {case}"
        for file, name in named:
            path = ROOT / "tests" / file
            if not path.exists() or f"def {name}(" not in path.read_text():
                missing.append(f"{file}::{name}")
    assert missing == []


def test_every_test_of_a_field_case_is_on_the_page() -> None:
    page = PAGE.read_text()
    files = [*ROOT.glob("tests/e2e/test_cases_*.py"), *ROOT.glob("tests/*/test_plans_*.py")]
    found = {
        name
        for file in files
        if file != Path(__file__)
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    assert len(found) > 40
    assert sorted(name for name in found if f"::{name}`" not in page) == []
