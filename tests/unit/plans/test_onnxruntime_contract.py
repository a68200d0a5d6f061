"""The ONNX Runtime backend passes the contract of all backends."""

from __future__ import annotations

from typing import ClassVar

from tests.support.contracts import ConvolutionsContract, FreeAxisContract


class TestOnnxRuntimeWithAFreeAxis(FreeAxisContract):
    factory = "trivet.plans.backends:OnnxRuntime"
    framework = "onnxruntime"
    options: ClassVar = {"threads": 2}
    refused: ClassVar = {"level": "fastest"}


class TestOnnxRuntimeWithConvolutions(ConvolutionsContract):
    factory = "trivet.plans.backends:OnnxRuntime"
    framework = "onnxruntime"
    refused: ClassVar = {"options": {"session.optimized_model_filepath": "elsewhere.onnx"}}
