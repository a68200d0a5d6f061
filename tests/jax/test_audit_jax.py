"""``trivet audit jax``: what JAX's own caches do, and that guarded programs don't."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.audits import expect


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_jaxs_own_caches_do_and_that_guarded_programs_do_not(tmp_path: Path) -> None:
    found = {
        "jax-cut-entry": {"not healed"},
        "jax-moved-folder": {"wasteful"},
        "jax-many-processes": {"wasteful"},
        "jax-serialized-executable": {"fails", "wrong", "unverified"},  # by where bits fall
    }
    expect(tmp_path, "jax", found, 580)
