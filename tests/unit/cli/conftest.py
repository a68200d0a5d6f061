from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import onnx_models
from tests.support.cli import Shell


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIVET_CACHE_DIR", raising=False)
    monkeypatch.delenv("TRIVET_DEBUG", raising=False)
    monkeypatch.delenv("TRIVET_LAYERS", raising=False)
    monkeypatch.delenv("TRIVET_TRUST", raising=False)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path / "cache", capsys)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model with a free batch axis: ``x`` (N, 16) to ``y``."""
    return onnx_models.save(onnx_models.dynamic_batch(), tmp_path / "net.onnx")
