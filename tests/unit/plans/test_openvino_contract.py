"""The OpenVINO backend passes the contract of all backends, from ONNX and from its own format."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import openvino
import pytest
from tests.support.contracts import ConvolutionsContract, FreeAxisContract
from tests.support.onnx_models import conv_net, save


class TestOpenVinoOnnxWithAFreeAxis(FreeAxisContract):
    factory = "trivet.plans.backends:OpenVino"
    framework = "openvino"
    options: ClassVar = {"threads": 2}
    refused: ClassVar = {"options": {"NO_SUCH_PROPERTY": 1}}


class TestOpenVinoIrWithConvolutions(ConvolutionsContract):
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
