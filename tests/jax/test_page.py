"""The page about IREE and JAX: its examples run, and the reference has what is in their keys."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.docs import ROOT, environment, expect_examples_run

from trivet.plans.backends import Iree, Jax
from trivet.plans.host import read_host


def test_examples_of_the_page_run(tmp_path: Path) -> None:
    reader = environment(tmp_path)
    reader["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    expect_examples_run("docs/how-to/iree-and-jax.md", tmp_path, reader)


def test_every_key_field_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/key-fields.md").read_text()
    host = read_host({})
    names = {*Iree().key_fields(host), *Jax().key_fields(host)}
    assert [each for each in sorted(names) if f"`{each}`" not in text] == []
