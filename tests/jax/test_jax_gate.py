"""The gate on JAX: compiled, found by a second process, held against the program."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import trivet
from tests.support.jax_programs import dense


def test_a_program_passes_cold_and_warm(tmp_path: Path) -> None:
    dense(tmp_path / "dense.jaxexport")
    file = tmp_path / "plan.toml"
    file.write_text("[[model]]\npath = 'dense.jaxexport'\n")
    for expected in ("compiled", "cache"):
        done = trivet(tmp_path / "c", "gate", file, "--json")
        assert done.code == 0, done.out
        (variant,) = done.json()["targets"][0]["variants"]
        assert variant["result"] == expected
        same = {each["against"] for each in variant["checks"] if each["result"] == "same"}
        assert same == {"canary", "uncompiled"}
