"""The OpenVINO backend passes the contract of all backends, from ONNX and from its own format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import openvino
import pytest
from tests.support.onnx_models import conv_net, dynamic_batch, save

from trivet.testing import BackendContract


class TestOpenVinoOnnxWithAFreeAxis(BackendContract):
    factory = "trivet.plans.backends:OpenVino"
    framework = "openvino"
    options: ClassVar = {"threads": 2}
    refused: ClassVar = {"options": {"NO_SUCH_PROPERTY": 1}}

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        return save(dynamic_batch(64), tmp_path / "model" / "model.onnx")

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"x": np.random.default_rng(1).standard_normal((3, 64), np.float32)}

    @pytest.fixture
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"x": (3, 64)}


class TestOpenVinoIrWithConvolutions(BackendContract):
    factory = "trivet.plans.backends:OpenVino"
    framework = "openvino"
    refused: ClassVar = {"device": "NPU"}

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        source = openvino.Core().read_model(save(conv_net(), tmp_path / "source.onnx"))
        path = tmp_path / "model" / "model.xml"
        path.parent.mkdir()
        openvino.save_model(source, path, compress_to_fp16=False)
        (tmp_path / "source.onnx").unlink()
        return path

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"x": np.random.default_rng(1).standard_normal((1, 3, 32, 32), np.float32)}
