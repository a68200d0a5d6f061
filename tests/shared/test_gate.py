"""``trivet gate`` where hosts share what they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.support.cli import Done, trivet
from tests.support.onnx_models import mlp, save

from trivet.cache import Cache


def gate(folder: Path, host: str, *shared: str) -> Done:
    options = [each for url in shared for each in ("--shared", url)]
    return trivet(folder / host, "gate", folder / "plan.toml", "--json", *options)


def variant(done: Done) -> Any:
    return done.json()["targets"][0]["variants"][0]


def test_what_one_host_made_another_one_tests(tmp_path: Path, valkey: str, s3: str) -> None:
    save(mlp(), tmp_path / "net.onnx")
    (tmp_path / "plan.toml").write_text("[[model]]\npath = 'net.onnx'\n")
    for host, result in (("a", "compiled"), ("b", "cache")):
        done = gate(tmp_path, host, s3, valkey)
        assert (done.code, variant(done)["result"]) == (0, result), done.err
        assert {"canary", "uncompiled"} <= {each["against"] for each in variant(done)["checks"]}
    warmed = trivet(tmp_path / "c", "warm", tmp_path / "plan.toml", "--shared", s3, "--json")
    assert [each["result"] for each in warmed.json()["variants"]] == ["cache"]


def test_a_wrong_plan_is_forgotten_for_all(tmp_path: Path, s3: str) -> None:
    save(mlp(), tmp_path / "net.onnx")
    reference = "reference = {outputs = 'wrong.npz'}\n"
    (tmp_path / "plan.toml").write_text(f"[[model]]\npath = 'net.onnx'\n{reference}")
    assert trivet(tmp_path / "a", "run", tmp_path / "net.onnx", "--shared", s3).code == 0
    np.savez(tmp_path / "wrong.npz", y=np.full((4, 16), 9.0, np.float32))
    assert gate(tmp_path, "b", s3).code == 1
    with Cache.open(tmp_path / "c", shared=s3, strict=True) as cache:
        assert not list(cache.entries("plan/1"))
    told = trivet(tmp_path / "c", "run", tmp_path / "net.onnx", "--shared", s3, "--json")
    assert told.json()["source"] == "compiled"


def test_what_can_not_be_reached_is_no_pass(tmp_path: Path) -> None:
    save(mlp(), tmp_path / "net.onnx")
    (tmp_path / "plan.toml").write_text("[[model]]\npath = 'net.onnx'\n")
    for url, says in (("valkey://127.0.0.1:1/0", ""), ("gopher://hole", "gopher")):
        done = gate(tmp_path, "a", url)
        assert done.code == 1
        error = done.json()["targets"][0]["error"] or variant(done)["error"]
        assert error
        assert says in error
