"""The TensorRT backend passes the contract of all backends, on a stand-in for TensorRT.

No GPU is there: what TensorRT itself does with a model is not tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.contracts import ConvolutionsContract
from tests.support.fake_tensorrt.install import installed
from tests.support.onnx_models import mlp, save

from trivet.testing import BackendContract


@pytest.fixture(autouse=True)
def _tensorrt(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    with installed(tmp_path_factory.mktemp("machine"), monkeypatch):
        yield


class TestTensorRtWithMatrices(BackendContract):
    factory = "tests.support.fake_tensorrt.install:make"
    framework = "tensorrt"
    options: ClassVar = {"flags": {"FP16": True}}
    refused: ClassVar = {"flags": {"REFIT": True}}

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        return save(mlp(batch=3, width=64), tmp_path / "model" / "model.onnx")

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"x": np.random.default_rng(1).standard_normal((3, 64), np.float32)}


class TestTensorRtWithConvolutions(ConvolutionsContract):
    factory = "tests.support.fake_tensorrt.install:make"
    framework = "tensorrt"
    refused: ClassVar = {"workspace": 0}
