"""Making plans: what is worth keeping, and what is recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.support.cases import Wrapped
from tests.support.onnx_models import mlp, save

from trivet.cache import Cache
from trivet.errors import BackendError, InvalidKey
from trivet.plans import Plans, Source
from trivet.plans.backends import OnnxRuntime


class Quick(Wrapped):
    """ONNX Runtime, but its compiles take as long as it is told."""

    def __init__(self, seconds: float) -> None:
        super().__init__(OnnxRuntime())
        self._seconds = seconds
        self.compiles = 0

    def compile(self, *arguments: Any) -> Any:
        self.compiles += 1
        return msgspec.structs.replace(self._backend.compile(*arguments), seconds=self._seconds)


def test_a_plan_that_takes_longer_to_read_than_to_compile_is_not_kept(tmp_path: Path) -> None:
    model = save(mlp(64), tmp_path / "m.onnx")
    x = np.ones((4, 64), np.float32)
    quick: Any = Quick(1e-9)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        first = Plans(cache, quick).load(model)
        assert (first.source, first.loaded.reason) == (Source.UNCOMPILED, "absent")
        assert first.loaded.error.startswith("NotWorthKeeping: compiling takes")
        again = Plans(cache, quick, on_failure="refuse").load(model)
        assert (again.source, quick.compiles) == (Source.UNCOMPILED, 1)
        assert again.loaded.reason == "not worth keeping"
        assert np.allclose(first.run({"x": x})["y"], again.run({"x": x})["y"])
        (entry,) = cache.entries("plan/1")
        assert entry.descriptor.failure is not None
        staging = cache.store.root / "staging"  # type: ignore[union-attr]
        assert not any(each.is_file() for each in staging.rglob("*"))


def test_the_cost_of_a_plan_is_what_compiling_took(tmp_path: Path) -> None:
    model = save(mlp(64), tmp_path / "m.onnx")
    slow: Any = Quick(12.5)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        assert Plans(cache, slow).load(model).source is Source.COMPILED
        (entry,) = cache.entries("plan/1")
        assert entry.descriptor.cost == 12.5


class Moved(Wrapped):
    """ONNX Runtime in a process another thread of which sets a variable meanwhile."""

    def __init__(self, *, refuses: bool = False) -> None:
        super().__init__(OnnxRuntime())
        self._refuses = refuses

    def compile(self, *arguments: Any) -> Any:
        os.environ["MLAS_SETTING"] = "1"
        if self._refuses:
            raise BackendError("not with this setting")
        return self._backend.compile(*arguments)


@pytest.mark.parametrize("refuses", [False, True])
def test_what_was_made_with_other_settings_than_the_key_says_is_not_kept(
    refuses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save(mlp(64), tmp_path / "m.onnx")
    monkeypatch.delenv("MLAS_SETTING", raising=False)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        moved: Any = Moved(refuses=refuses)
        plan = Plans(cache, moved).load(model)
        assert plan.source is (Source.UNCOMPILED if refuses else Source.COMPILED)
        assert plan.run({"x": np.ones((4, 64), np.float32)})
        assert [*cache.entries("plan/1")] == []
        monkeypatch.delenv("MLAS_SETTING")
        assert Plans(cache, OnnxRuntime()).load(model).source is Source.COMPILED


def test_a_release_that_is_not_unicode_is_refused_before_anything_is_compiled() -> None:
    with pytest.raises(InvalidKey, match="not Unicode"):
        Plans(Cache(), OnnxRuntime(), release="r\udcff")


def test_a_path_that_onnx_runtime_can_not_take_is_an_error_that_blames_no_model(
    tmp_path: Path,
) -> None:
    model = save(mlp(64), tmp_path / "m.onnx")
    odd = tmp_path / "m\udcff.onnx"
    odd.write_bytes(model.read_bytes())
    with Cache.open(tmp_path / "c", strict=True) as cache:
        with pytest.raises(BackendError, match="does not read files like"):
            Plans(cache, OnnxRuntime()).load(odd)
        assert Plans(cache, OnnxRuntime()).load(model).source is Source.COMPILED
