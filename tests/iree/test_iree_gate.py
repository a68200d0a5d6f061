"""The gate on IREE, whose compiler is a child of the gate's child."""

from __future__ import annotations

from pathlib import Path

from tests.support import onnx_models
from tests.support.cli import trivet


def test_a_model_passes_cold_and_warm(tmp_path: Path) -> None:
    onnx_models.save(onnx_models.mlp(), tmp_path / "net.onnx")
    file = tmp_path / "plan.toml"
    file.write_text("[[model]]\npath = 'net.onnx'\nbackend = 'iree'\n")
    for expected in ("compiled", "cache"):
        done = trivet(tmp_path / "c", "gate", file, "--json")
        assert done.code == 0, done.out
        (variant,) = done.json()["targets"][0]["variants"]
        assert variant["result"] == expected
        assert [each["against"] for each in variant["checks"]] == ["canary"], "runs no other way"


def test_a_compiler_that_takes_too_long_is_ended_with_it(tmp_path: Path) -> None:
    onnx_models.save(onnx_models.mlp(), tmp_path / "net.onnx")
    file = tmp_path / "plan.toml"
    file.write_text("[[model]]\npath = 'net.onnx'\nbackend = 'iree'\ntimeout = 0.5\n")
    done = trivet(tmp_path / "c", "gate", file, "--json")
    assert done.code == 1
    assert done.json()["targets"][0]["error"] == "took longer than 0.5 s"
