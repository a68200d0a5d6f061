"""The IREE backend passes the contract of all backends."""

from __future__ import annotations

from typing import ClassVar

from tests.support.contracts import ConvolutionsContract, FreeAxisContract


class TestIreeWithAFreeAxis(FreeAxisContract):
    factory = "trivet.plans.backends:Iree"
    framework = "iree.runtime"
    refused: ClassVar = {"device": "cuda"}


class TestIreeWithConvolutionsOnTheCallingThread(ConvolutionsContract):
    factory = "trivet.plans.backends:Iree"
    framework = "iree.runtime"
    options: ClassVar = {"device": "local-sync", "cpu": "generic"}
    refused: ClassVar = {"flags": ["--iree-hal-dump-executable-files-to=/somewhere"]}
