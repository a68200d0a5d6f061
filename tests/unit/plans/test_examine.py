"""Examinations: nothing is taken on trust, and what can't be compared is said."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.support.cases import BACKENDS, make_backend
from tests.support.living import Living
from tests.support.onnx_models import dynamic_batch, mlp, model, save, tensor

from trivet.cache import ArtifactLease, Cache, Hit
from trivet.keys import Key
from trivet.plans import canary
from trivet.plans.examine import Against, Agreement, Examined, NotRun, Reference
from trivet.plans.model import GraphId, TensorInfo
from trivet.plans.plans import Plans
from trivet.plans.shapes import Shapes
from trivet.plans.uncompiled import NoAnswers


@pytest.fixture
def cache(tmp_path: Path) -> Any:
    with Cache.open(tmp_path / "c", strict=True) as opened:
        yield opened


def plans(cache: Cache, backend: Any = None) -> Plans:
    return Plans(
        cache, backend or make_backend("onnxruntime"), on_failure="refuse", canary="always"
    )


def only(found: Plans, path: Path, reference: Reference | None = None) -> Examined:
    examination = found.examination(path)
    (variant,) = examination.variants()
    return examination.examine(variant, reference)


def result(found: Examined, against: Against) -> tuple[Agreement, str]:
    (check,) = (each for each in found.checks if each.against is against)
    return check.result, check.detail


def plant(cache: Cache, key: Key, other: Key) -> None:
    """Keep what is stored under ``other``, its canary included, under ``key``."""
    found = cache.get_files(other)
    assert isinstance(found, Hit)
    folder = found.value.verify()
    cache.forget(key)
    lease = cache.acquire_files(key)
    assert isinstance(lease, ArtifactLease)
    with lease:
        shutil.copytree(folder, lease.staging, dirs_exist_ok=True)
        lease.commit(cost=1.0, detail=found.value.descriptor.detail)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_of_another_model_is_found_out_and_forgotten(
    backend: str, cache: Cache, tmp_path: Path
) -> None:
    """Its canary is right: it was made with it."""
    one, other = save(mlp(seed=1), tmp_path / "1.onnx"), save(mlp(seed=2), tmp_path / "2.onnx")
    tested = plans(cache, make_backend(backend))
    keys = [tested.load(each).loaded.key for each in (one, other)]
    plant(cache, keys[0], keys[1])
    assert str(tested.load(one).source) == "cache", "a load takes it for what it says it is"
    found = only(tested, one)
    assert result(found, Against.CANARY)[0] is Agreement.SAME
    wrong = (Agreement.DIFFERS, "output 'y' has other values")
    assert result(found, Against.UNCOMPILED) == wrong
    assert not isinstance(cache.get_files(keys[0]), Hit)
    assert not only(tested, one).wrong


def different_every_time(path: Path) -> Path:
    node = onnx.helper.make_node("RandomNormalLike", ["x"], ["r"])
    add = onnx.helper.make_node("Add", ["x", "r"], ["y"])
    return save(model([node, add], [tensor("x", [4])], [tensor("y", [4])]), path)


def test_a_model_that_is_different_every_time_is_held_against_nothing(
    cache: Cache, tmp_path: Path
) -> None:
    path = different_every_time(tmp_path / "r.onnx")
    for source in ("compiled", "cache"):
        found = only(plans(cache), path)
        assert str(found.source) == source
        assert result(found, Against.UNCOMPILED) == (
            Agreement.UNKNOWN,
            "the plan gives another result every time",
        )
        assert found.varies
        assert not found.wrong
        told = result(found, Against.CANARY)[0]
        assert told is Agreement.UNKNOWN, "another process gives another"
    steady = only(plans(cache), save(mlp(), tmp_path / "m.onnx"))
    assert not steady.varies


def test_other_shapes_are_no_matter_of_chance(cache: Cache, tmp_path: Path) -> None:
    class Longer(Living):
        def fallback(self, *arguments: Any) -> Any:
            return _Doubled(super().fallback(*arguments))

    backend = Longer(make_backend("onnxruntime"))
    found = only(plans(cache, backend), different_every_time(tmp_path / "r.onnx"))
    told = "output 'y' is 4 where the model gives 8"
    assert result(found, Against.UNCOMPILED) == (Agreement.DIFFERS, told)


class _Doubled:
    def __init__(self, executable: Any) -> None:
        self._executable = executable
        self.inputs, self.outputs = executable.inputs, executable.outputs

    def run(self, inputs: Any) -> Any:
        found = self._executable.run(inputs)
        return {name: np.concatenate([each, each]) for name, each in found.items()}


def test_a_model_and_its_plans_are_never_in_memory_together(cache: Cache, tmp_path: Path) -> None:
    path = save(dynamic_batch(), tmp_path / "m.onnx")
    for again in ("compile", "load"):
        backend = Living(make_backend("onnxruntime"))
        examination = plans(cache, backend).examination(path, Shapes("x=N{1,4}x16"))
        for variant in examination.variants():
            found = examination.examine(variant)
            assert result(found, Against.UNCOMPILED)[0] is Agreement.SAME
        assert backend.log.count(again) == 2
        assert backend.most == 1


def test_a_model_that_does_not_load_uncompiled_is_told_after_its_plan(
    cache: Cache, tmp_path: Path
) -> None:
    path = save(mlp(), tmp_path / "m.onnx")

    class OnlyCompiles(Living):
        def fallback(self, *arguments: Any) -> Any:
            raise RuntimeError("not without a plan")

    with pytest.raises(NoAnswers, match="not without a plan"):
        only(plans(cache, OnlyCompiles(make_backend("onnxruntime"))), path)
    assert plans(cache).load(path).source == "cache"


class Broken:
    """A backend whose plans raise whenever they are run."""

    def __init__(self) -> None:
        self._backend = make_backend("onnxruntime")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def load(self, *arguments: Any) -> Any:
        return _Raising(self._backend.load(*arguments))


class _Raising:
    def __init__(self, executable: Any) -> None:
        self.inputs: tuple[TensorInfo, ...] = executable.inputs

    def run(self, inputs: Any) -> Any:
        raise RuntimeError("not today")


def test_a_plan_that_fails_where_the_model_runs(cache: Cache, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    plans(cache).load(path)
    tested = Plans(cache, Broken(), on_failure="refuse", canary="never")  # type: ignore[arg-type]
    found = only(tested, path)
    wrong = (Agreement.DIFFERS, "the plan fails where the model runs")
    assert result(found, Against.UNCOMPILED) == wrong


def test_what_nothing_could_run_is_no_result(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    x = np.ones((4, 16), np.float32)
    right = plans(cache).load(path).run({"x": x})
    monkeypatch.setattr(canary, "canary_inputs", lambda *_: None)
    with pytest.raises(NotRun, match="never run"):
        only(plans(cache), path)
    found = only(plans(cache), path, Reference(inputs={"x": x}, outputs=right))
    assert result(found, Against.REFERENCE)[0] is Agreement.SAME


def test_answers_that_are_no_numbers_are_no_result(cache: Cache, tmp_path: Path) -> None:
    """NaN agrees with NaN, so the plan of any other such model would pass."""
    nodes = [
        onnx.helper.make_node("Sub", ["x", "two"], ["below"]),
        onnx.helper.make_node("Sqrt", ["below"], ["y"]),
    ]
    two = {"two": np.array([2.0], np.float32)}
    path = save(model(nodes, [tensor("x", [4])], [tensor("y", [4])], two), tmp_path / "n.onnx")
    with pytest.raises(NotRun, match="no answer was tested"):
        only(plans(cache), path)
    x = np.full(4, 6.0, np.float32)
    right = Reference(inputs={"x": x}, outputs={"y": np.full(4, 2.0, np.float32)})
    assert result(only(plans(cache), path, right), Against.REFERENCE)[0] is Agreement.SAME


LEAST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize("fill", [(-1e9,), (LEAST,), (-1e4,), (-1e4, -2e4), (-1e9, LEAST)])
@pytest.mark.parametrize("added", [False, True])
def test_what_a_mask_puts_in_does_not_hide_a_wrong_answer(
    added: bool, fill: tuple[float, ...], cache: Cache, tmp_path: Path
) -> None:
    """Neither where it replaces a logit nor where it is added to one."""

    def masked(seed: int) -> Path:
        proto = mlp(seed=seed)
        proto.graph.node[-1].output[0] = "logits"
        forbidden = np.arange(16) % 5 == 0
        filled = np.where(forbidden, np.resize(np.array(fill, np.float32), 16), np.float32(0))
        for name, value in (("m", forbidden), ("f", filled)):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        kind, inputs = ("Add", ["logits", "f"]) if added else ("Where", ["m", "f", "logits"])
        proto.graph.node.append(onnx.helper.make_node(kind, inputs, ["y"]))
        return save(proto, tmp_path / f"{seed}.onnx")

    one, other = masked(1), masked(2)
    tested = plans(cache)
    keys = [tested.load(each).loaded.key for each in (one, other)]
    assert not only(tested, one).wrong
    plant(cache, keys[0], keys[1])
    wrong = (Agreement.DIFFERS, "output 'y' has other values")
    assert result(only(tested, one), Against.UNCOMPILED) == wrong


def test_a_reference_is_held_against_the_variant_that_its_request_runs_in(
    cache: Cache, tmp_path: Path
) -> None:
    path = save(dynamic_batch(), tmp_path / "m.onnx")
    tested = plans(cache)
    x = np.ones((3, 16), np.float32)
    right = tested.load(path).run({"x": x})
    examination = tested.examination(path, Shapes("x=N{2,4}x16"))
    reference = Reference(inputs={"x": x}, outputs=right)
    found = [examination.examine(each, reference) for each in examination.variants()]
    compared = [[check.against for check in each.checks] for each in found]
    assert [Against.REFERENCE in each for each in compared] == [False, True]
    wrong = Reference(inputs={"x": x}, outputs={"z": right["y"]})
    told = examination.examine(examination.variants()[1], wrong)
    assert result(told, Against.REFERENCE) == (Agreement.DIFFERS, "output 'z' is missing")


class Versioned:
    """A backend of some version, whose plans answer with a shift."""

    def __init__(self, version: str, shift: float = 0.0) -> None:
        self._backend = make_backend("onnxruntime")
        self._version = version
        self._shift = shift

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def facts(self, memo: Any = None) -> Any:
        import msgspec

        return msgspec.structs.replace(self._backend.facts(memo), version=self._version)

    def load(self, *arguments: Any) -> Any:
        return _Shifted(self._backend.load(*arguments), self._shift)

    def fallback(self, *arguments: Any) -> Any:
        return _Shifted(self._backend.fallback(*arguments), self._shift)

    def compile(
        self, model: Path, graph: GraphId, shapes: Any, staging: Path, inputs: Any = None
    ) -> Any:
        import msgspec

        built = self._backend.compile(model, graph, shapes, staging, inputs)
        assert built.expected is not None
        return msgspec.structs.replace(
            built,
            executable=_Shifted(built.executable, self._shift),
            expected={name: each + self._shift for name, each in built.expected.items()},
        )


class _Shifted:
    def __init__(self, executable: Any, shift: float) -> None:
        self._executable = executable
        self._shift = shift
        self.inputs, self.outputs = executable.inputs, executable.outputs

    def run(self, inputs: Any) -> Any:
        return {name: each + self._shift for name, each in self._executable.run(inputs).items()}


def test_an_upgrade_that_computes_otherwise_with_and_without_a_plan(
    cache: Cache, tmp_path: Path
) -> None:
    path = save(mlp(), tmp_path / "m.onnx")

    def examine(version: str, shift: float = 0.0) -> Examined:
        return only(plans(cache, Versioned(version, shift)), path)

    first = examine("1.0")
    assert [each.against for each in first.checks] == [Against.CANARY, Against.UNCOMPILED]
    same = examine("1.1")
    assert result(same, Against.PREVIOUS) == (Agreement.SAME, "1.0")
    shifted = examine("2.0", shift=1.0)
    assert result(shifted, Against.UNCOMPILED)[0] is Agreement.SAME
    told = (Agreement.DIFFERS, "output 'y' has other values than the plan by 1.1")
    assert result(shifted, Against.PREVIOUS) == told
    back = examine("1.0")
    assert str(back.source) == "cache"
    assert not back.wrong, "what was made later says nothing about it"


def test_a_plan_with_other_options_is_no_earlier_build(cache: Cache, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    only(plans(cache, make_backend("onnxruntime", level="basic")), path)
    found = only(plans(cache), path)
    assert Against.PREVIOUS not in {each.against for each in found.checks}


def test_no_earlier_answer_is_used_that_is_not_whole(cache: Cache, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    only(plans(cache, Versioned("1.0")), path)
    (kept,) = (tmp_path / "c").glob("artifacts/*/*/files/canary")
    raw = bytearray(kept.read_bytes())
    raw[-1] ^= 1
    kept.write_bytes(raw)
    found = only(plans(cache, Versioned("1.1")), path)
    assert Against.PREVIOUS not in {each.against for each in found.checks}
