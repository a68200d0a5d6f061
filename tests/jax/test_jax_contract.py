"""The JAX backend passes the contract of all backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.jax_programs import dense, nested

from trivet.testing import BackendContract


class TestJaxWithWeightsInside(BackendContract):
    factory = "trivet.plans.backends:Jax"
    framework = "jax"
    refused: ClassVar = {"options": {"xla_dump_to": "/somewhere"}}

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        return dense(tmp_path / "model" / "model.jaxexport", 64, batch=3)

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"arg0": np.random.default_rng(1).standard_normal((3, 64), np.float32)}


class TestJaxWithWeightsAmongTheArguments(BackendContract):
    factory = "trivet.plans.backends:Jax"
    framework = "jax"
    options: ClassVar = {"options": {"xla_cpu_max_isa": "AVX2"}}
    refused: ClassVar = {"options": {"no such option": 1}}

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        return nested(tmp_path / "model" / "model.jaxexport")

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        random = np.random.default_rng(1)
        shapes = {
            "arg0.b": (8,),
            "arg0.layers.0.w": (4, 8),
            "arg1": (2, 4),
            "arg2": (3,),
            "scale": (),
        }
        return {
            name: np.asarray(random.standard_normal(shape, np.float32))
            for name, shape in shapes.items()
        }
