"""The PyTorch backend passes the contract of all backends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.torch_programs import convolutions, dense

from trivet.plans.backend import Backend, Built
from trivet.plans.backends import Torch
from trivet.plans.graph import identify
from trivet.testing import BackendContract


class _Once(BackendContract):
    """Exports and compiles once for all tests that only look at the result."""

    factory = "trivet.plans.backends:Torch"
    framework = "torch"
    options: ClassVar = {"threads": 2}
    save: ClassVar[Callable[[Path], Path]]

    @pytest.fixture(scope="class")
    def made(self, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Built]:
        folder = tmp_path_factory.mktemp("made")
        model = type(self).save(folder / "model.pt2")
        (folder / "plan").mkdir()
        built = Torch(threads=2).compile(model, identify(model), {}, folder / "plan")
        return model, folder / "plan", built

    @pytest.fixture
    def model(self, made: tuple[Path, Path, Built], tmp_path: Path) -> Path:
        (tmp_path / "model").mkdir()
        return shutil.copy(made[0], tmp_path / "model" / "model.pt2")

    @pytest.fixture
    def built(
        self, backend: Backend, made: tuple[Path, Path, Built], model: Path, plan: Path
    ) -> Built:
        assert isinstance(backend, Torch)
        shutil.copytree(made[1], plan, dirs_exist_ok=True)
        executable = backend.load(plan, made[2].detail)
        backend.bind(executable, model, identify(model))
        return Built(executable=executable, detail=made[2].detail, seconds=made[2].seconds)


class TestTorchWithAFreeAxis(_Once):
    refused: ClassVar = {"options": {"no_such_setting": True}}
    save: ClassVar = staticmethod(dense)

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"x": np.random.default_rng(1).standard_normal((3, 16), np.float32)}

    @pytest.fixture
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"x": (3, 16)}


class TestTorchWithConvolutions(_Once):
    refused: ClassVar = {"options": {"freezing": True}}
    save: ClassVar = staticmethod(convolutions)

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"x": np.random.default_rng(1).standard_normal((1, 3, 32, 32), np.float32)}
