"""Two hosts held against each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.cli import Shell


@pytest.fixture
def written(shell: Shell, tmp_path: Path) -> Path:
    """What this host prints, in a file."""
    path = tmp_path / "there.json"
    path.write_text(shell("fingerprint").out)
    return path


def test_a_host_does_not_differ_from_itself(shell: Shell, written: Path) -> None:
    told = shell("why", "--against", written)
    assert told.code == 0
    assert "no difference" in told.out
    assert shell("why", "--against", written, "--json").json() == {"same": True, "differences": []}


def test_what_differs_is_named_by_field(
    shell: Shell, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = json.loads(written.read_text())
    there["host"]["instruction_set"].append("avx512f")
    there["backends"]["openvino"]["facts"]["version"] = "openvino 2025.4.0"
    written.write_text(json.dumps(there))
    monkeypatch.setenv("ORT_SOMETHING", "1")
    told = shell("why", "--against", written, "--json")
    assert told.code == 3
    found = {each["field"]: (each["here"], each["there"]) for each in told.json()["differences"]}
    assert found["host.instruction_set"][1] == "also avx512f"
    assert found["backends.openvino.facts.version"][1] == "openvino 2025.4.0"
    assert found["backends.onnxruntime.fields.environment.ORT_SOMETHING"] == ("1", "(not set)")
    assert len(found) == 3
    assert "avx512f" in shell("why", "--against", written).out


@pytest.mark.parametrize("content", ["", "[1, 2]", "not json"])
def test_a_file_of_another_kind_is_wrong_usage(content: str, shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    assert shell("why", "--against", path).code == 2
    assert shell("why").code == 2
    assert shell("why", tmp_path / "m.onnx", "--against", path).code == 2
