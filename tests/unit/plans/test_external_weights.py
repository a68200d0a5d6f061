"""Plans that hold no weights: shared by models that differ in nothing else, never mixed up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
import pytest
from tests.support.cases import mlp_answer, mlp_input
from tests.support.onnx_models import mlp, save

from trivet.cache import Cache, Hit
from trivet.keys import FieldValue
from trivet.plans.backend import BackendFacts, Built, Executable, FailureKind, Finding
from trivet.plans.canary import expected_of
from trivet.plans.errors import ModelChanged
from trivet.plans.host import HostFacts
from trivet.plans.model import Dimension, GraphId, TensorInfo
from trivet.plans.outcome import Source
from trivet.plans.plans import Plans

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

X = mlp_input()


class Layers:
    """What `mlp` computes, with the weights that it is given."""

    inputs = (TensorInfo("x", "float32", (4, 16)),)
    outputs = (TensorInfo("y", "float32", (4, 16)),)
    native = None

    def __init__(self, model: onnx.ModelProto | None = None) -> None:
        self.model = model
        self.runs = 0

    def run(self, inputs: Arrays) -> dict[str, Array]:
        assert self.model is not None
        self.runs += 1
        return {"y": mlp_answer(self.model, inputs["x"])}


class Outside:
    """A backend whose plan is an empty file."""

    name = "outside"
    weights: Literal["external"] = "external"
    replaced = False

    def facts(self, memo: object = None) -> BackendFacts:
        return BackendFacts(version="1", libraries={})

    def key_fields(self, host: HostFacts) -> Mapping[str, FieldValue]:
        return {}

    def accepts(self, model: Path) -> bool:
        return model.suffix == ".onnx"

    def warm_import(self) -> None:
        pass

    def compile(
        self,
        model: Path,
        graph: GraphId,
        shapes: Mapping[str, tuple[Dimension, ...]],
        staging: Path,
        canary: Arrays | None = None,
    ) -> Built:
        (staging / "plan").touch()
        executable = self.load(staging, {})
        self.bind(executable, model, graph)
        expected = expected_of(self.fallback(model, {}), canary)
        return Built(executable=executable, seconds=1.0, expected=expected)

    def load(self, folder: Path, detail: Mapping[str, object]) -> Layers:
        assert (folder / "plan").is_file()
        return Layers()

    def bind(self, executable: Executable, model: Path, graph: GraphId) -> None:
        assert isinstance(executable, Layers)
        if self.replaced:
            raise ModelChanged("other weights")
        executable.model = onnx.load(str(model))

    def fallback(self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]]) -> Layers:
        return Layers(onnx.load(str(model)))

    def classify(self, error: BaseException) -> FailureKind:
        return FailureKind.TRANSIENT

    def tolerance(self) -> tuple[float, float]:
        return (1e-6, 1e-6)

    def lint(self) -> list[Finding]:
        return []


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path / "cache") as cache:
        yield cache


def saved(tmp_path: Path, seed: int) -> Path:
    return save(mlp(seed=seed), tmp_path / f"{seed}.onnx")


def layers(plan: Any) -> Layers:
    executable = plan.loaded.executable
    assert isinstance(executable, Layers)
    return executable


def test_models_that_differ_in_weights_share_a_plan(cache: Cache, tmp_path: Path) -> None:
    plans = Plans(cache, Outside())
    one, other = (plans.load(saved(tmp_path, seed)) for seed in (0, 1))
    assert (one.source, other.source) == (Source.COMPILED, Source.CACHE)
    assert one.loaded.key == other.loaded.key
    for seed, plan in enumerate((one, other)):
        np.testing.assert_allclose(plan.run({"x": X})["y"], mlp_answer(mlp(seed=seed), X), 1e-5)


def test_the_canary_of_other_weights_is_run_once_and_never_compared(
    cache: Cache, tmp_path: Path
) -> None:
    plans = Plans(cache, Outside())
    plans.load(saved(tmp_path, 0))
    runs = [layers(plans.load(saved(tmp_path, seed))).runs for seed in (1, 1, 2, 0)]
    assert runs == [1, 0, 1, 0]  # the maker of the plan has seen the canary of its own weights
    always = Plans(cache, Outside(), canary="always")
    assert [always.load(saved(tmp_path, seed)).source for seed in (0, 1)] == [Source.CACHE] * 2


def test_a_wrong_answer_with_the_canarys_own_weights_is_set_aside(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = Plans(cache, Outside(), canary="always")
    plans.load(saved(tmp_path, 0))
    right = Layers.run
    monkeypatch.setattr(Layers, "run", lambda self, x: {"y": right(self, x)["y"] + 1})
    assert plans.load(saved(tmp_path, 1)).source is Source.CACHE
    again = plans.load(saved(tmp_path, 0))
    assert (again.source, again.loaded.reason) == (Source.COMPILED, "canary")


def test_weights_that_changed_meanwhile_are_no_fault_of_the_plan(
    cache: Cache, tmp_path: Path
) -> None:
    backend = Outside()
    plans = Plans(cache, backend)
    plans.load(saved(tmp_path, 0))
    backend.replaced = True
    with pytest.raises(ModelChanged):
        plans.load(saved(tmp_path, 0))
    backend.replaced = False
    (found,) = plans.find(saved(tmp_path, 0))
    assert isinstance(found.found, Hit)


def test_weights_have_a_phase_of_their_own_in_the_report(cache: Cache, tmp_path: Path) -> None:
    plans = Plans(cache, Outside())
    plans.load(saved(tmp_path, 0))
    report = plans.load(saved(tmp_path, 0)).report
    assert "weights" in [each.name for each in report.phases]
