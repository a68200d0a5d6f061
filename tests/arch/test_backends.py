"""A backend that comes with Trivet is known wherever it has to be."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

from trivet.plans import backends
from trivet.plans.backends.named import BackendName

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("name", BackendName)
def test_a_backend_is_known_everywhere(name: BackendName) -> None:
    kinds = (getattr(backends, each) for each in backends.__all__)
    (kind,) = (each for each in kinds if getattr(each, "name", None) == name)
    facts = importlib.import_module(f"trivet.plans.facts.{name}")
    assert kind.package is facts.PACKAGE
    assert facts.PACKAGE.extra in PROJECT["project"]["optional-dependencies"]
    assert f"`{name}`" in (ROOT / "docs/reference/cli.md").read_text()
    (guard,) = (
        each["forbidden_modules"]
        for each in PROJECT["tool"]["importlinter"]["contracts"]
        if each["name"] == "frameworks only inside backends"
    )
    assert name in guard
