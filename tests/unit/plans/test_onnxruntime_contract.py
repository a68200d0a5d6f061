"""The ONNX Runtime backend passes the contract of all backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.onnx_models import conv_net, dynamic_batch, save

from trivet.testing import BackendContract


class TestOnnxRuntimeWithAFreeAxis(BackendContract):
    factory = "trivet.plans.backends:OnnxRuntime"
    framework = "onnxruntime"
    options: ClassVar = {"threads": 2}
    refused: ClassVar = {"level": "fastest"}

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        return save(dynamic_batch(64), tmp_path / "model" / "model.onnx")

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"x": np.random.default_rng(1).standard_normal((3, 64), np.float32)}

    @pytest.fixture
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"x": (3, 64)}


class TestOnnxRuntimeWithConvolutions(BackendContract):
    factory = "trivet.plans.backends:OnnxRuntime"
    framework = "onnxruntime"
    refused: ClassVar = {"options": {"session.optimized_model_filepath": "elsewhere.onnx"}}

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        return save(conv_net(), tmp_path / "model" / "model.onnx")

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"x": np.random.default_rng(1).standard_normal((1, 3, 32, 32), np.float32)}
