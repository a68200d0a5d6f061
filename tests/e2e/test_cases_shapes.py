"""Field cases: requests of every length, on real plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.support.cases import BACKENDS, Server, make_backend, mlp_answer, mlp_input
from tests.support.onnx_models import dynamic_batch, model, save, tensor

from trivet.cache import Cache
from trivet.errors import ShapeError, ShapeOutside
from trivet.plans.plans import Plans
from trivet.plans.shapes import Shapes

DYNAMIC = dynamic_batch(seed=15)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path / "c", strict=True) as opened:
        yield opened


def across_rows(kind: str) -> onnx.ModelProto:
    """A model of rows of three whose answer shows how many rows there were."""
    node = onnx.helper.make_node
    x = tensor("x", ["N", 3])
    if kind == "size":
        nodes = [node("Shape", ["x"], ["size"]), node("Cast", ["size"], ["y"], to=1)]
        return model(nodes, [x], [tensor("y", [2])])
    nodes = [node(kind, ["x"], ["y"], axes=[0], keepdims=0)]
    return model(nodes, [x], [tensor("y", [3])])


def stored(cache: Cache) -> int:
    return len(list(cache.entries("plan/1")))


@pytest.mark.parametrize("backend", BACKENDS)
def test_requests_are_padded_to_buckets_and_cut_back(
    backend: str, cache: Cache, tmp_path: Path
) -> None:
    path = save(DYNAMIC, tmp_path / "m.onnx")
    plan = Plans(cache, make_backend(backend)).load(path, Shapes("x=N{2,4,8}x16"))
    for batch in range(1, 9):
        x = mlp_input(batch)
        found = plan.run({"x": x})["y"]
        assert found.shape == (batch, 16)
        np.testing.assert_allclose(found, mlp_answer(DYNAMIC, x), rtol=1e-4, atol=1e-5)
    assert stored(cache) == 3, "eight batch sizes, three plans"


@pytest.mark.parametrize("backend", BACKENDS)
def test_outside_the_rules_is_refused_or_runs_uncompiled(
    backend: str, cache: Cache, tmp_path: Path
) -> None:
    path = save(DYNAMIC, tmp_path / "m.onnx")
    plans = Plans(cache, make_backend(backend))
    with pytest.raises(ShapeOutside, match="at most 4"):
        plans.load(path, Shapes("x=N{2,4}x16")).run({"x": mlp_input(5)})
    plan = plans.load(path, Shapes("x=N{2,4}x16", outside="fallback"))
    for batch in (5, 9, 3):
        x = mlp_input(batch)
        np.testing.assert_allclose(
            plan.run({"x": x})["y"], mlp_answer(DYNAMIC, x), rtol=1e-4, atol=1e-5
        )
    assert stored(cache) == 1, "what lies outside leaves no plan"


@pytest.mark.parametrize("backend", BACKENDS)
def test_48_lengths_on_a_free_axis_are_one_plan(backend: str, cache: Cache, tmp_path: Path) -> None:
    """Where others compile each length, or stop compiling after eight without a word."""
    path = save(DYNAMIC, tmp_path / "m.onnx")
    plan = Plans(cache, make_backend(backend)).load(path)
    for batch in range(1, 49):
        x = mlp_input(batch)
        np.testing.assert_allclose(
            plan.run({"x": x})["y"], mlp_answer(DYNAMIC, x), rtol=1e-4, atol=1e-5
        )
    assert stored(cache) == 1
    with Server(backend) as server:
        assert server.answer(tmp_path / "c", path, backend)["source"] == "cache"


def masked_mean() -> onnx.ModelProto:
    """``y`` (B) is the mean of ``x`` (B, S) where ``mask`` (B, S) is 1: padding must not count."""
    helper = onnx.helper
    nodes = [
        helper.make_node("Mul", ["x", "mask"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "axis"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["mask", "axis"], ["count"], keepdims=0),
        helper.make_node("Div", ["sum", "count"], ["y"]),
    ]
    return model(
        nodes,
        [tensor("x", ["B", "S"]), tensor("mask", ["B", "S"])],
        [tensor("y", ["B"])],
        {"axis": np.array([1], np.int64)},
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_padded_sequence_with_its_mask_gives_what_the_sequence_gives(
    backend: str, cache: Cache, tmp_path: Path
) -> None:
    path = save(masked_mean(), tmp_path / "m.onnx")
    rules = Shapes("x=B{1,4}xS{8,32}", "mask=BxS", pad={"x": 100.0}, mask="mask")
    plan = Plans(cache, make_backend(backend)).load(path, rules)
    random = np.random.default_rng(0)
    for batch, length in ((1, 5), (1, 8), (3, 9), (4, 32), (2, 1)):
        x = random.standard_normal((batch, length)).astype(np.float32)
        found = plan.run({"x": x})["y"]
        np.testing.assert_allclose(found, x.mean(axis=1), rtol=1e-4, atol=1e-5)
    assert stored(cache) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_bucket_made_ready_at_once_is_a_hit_in_the_next_process(
    backend: str, cache: Cache, tmp_path: Path
) -> None:
    path = save(DYNAMIC, tmp_path / "m.onnx")
    plan = Plans(cache, make_backend(backend)).load(path, Shapes("x=N{1,2,4}x16"))
    loaded = plan.prepare()
    assert [str(each.source) for each in loaded] == ["compiled"] * 3
    with Server(backend) as server:
        for batch in (1, 2, 4):
            rules = f"x=N{{{batch}}}x16"
            found = server.answer(tmp_path / "c", path, backend, rules=rules, free=batch)
            assert found["source"] == "cache", "a bucket is the same plan in other rules"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_exported_with_a_fixed_batch_of_results_returns_no_padding(
    backend: str, cache: Cache, tmp_path: Path
) -> None:
    exported = dynamic_batch()
    for output in exported.graph.output:
        output.type.tensor_type.shape.dim[0].dim_value = 1
    path = save(exported, tmp_path / "model.onnx")
    (name,) = [each.name for each in exported.graph.output]
    (source,) = [each.name for each in exported.graph.input]
    sizes = [each.dim_value for each in exported.graph.input[0].type.tensor_type.shape.dim[1:]]
    rule = f"{source}=N{{4}}x{'x'.join(map(str, sizes))}"
    images = np.zeros((3, *sizes), np.float32)
    with pytest.raises(ShapeError, match="inputs were padded"):
        Plans(cache, make_backend(backend)).load(path, Shapes(rule)).run({source: images})
    declared = Plans(cache, make_backend(backend)).load(path, Shapes(rule, cut={name: {0: "N"}}))
    assert len(declared.run({source: images})[name]) == 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax", "ReduceMin", "size"])
def test_a_model_that_computes_across_its_padding_is_refused(
    kind: str, backend: str, cache: Cache, tmp_path: Path
) -> None:
    path = save(across_rows(kind), tmp_path / "m.onnx")
    for _ in range(2):
        plan = Plans(cache, make_backend(backend)).open(path, Shapes("x=N{2,4}x3"))
        with pytest.raises(ShapeError, match="changes what the model answers"):
            plan.run({"x": np.ones((3, 3), np.float32)})
    plan = Plans(cache, make_backend(backend)).load(path, Shapes("x=4x3"))
    assert plan.run({"x": np.full((4, 3), 4.0, np.float32)})["y"][0] == 4.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_output_whose_fixed_size_is_the_bucket_by_chance_returns_no_padding(
    backend: str, cache: Cache, tmp_path: Path
) -> None:
    """The model was exported with results for four, and the bucket is four."""
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"])]
    exported = model(nodes, [tensor("x", ["N", 3])], [tensor("y", [4, 3])])
    path = save(exported, tmp_path / "m.onnx")
    plans = Plans(cache, make_backend(backend))
    with pytest.raises(ShapeError, match="'y' is 4x3 where the model gives 1x3"):
        plans.load(path, Shapes("x=N{4}x3"))
    plan = plans.load(path, Shapes("x=N{4}x3", cut={"y": {0: "N"}}))
    assert plan.run({"x": np.ones((2, 3), np.float32)})["y"].shape == (2, 3)


def test_the_check_of_padding_can_be_left_out(cache: Cache, tmp_path: Path) -> None:
    path = save(across_rows("ReduceMax"), tmp_path / "m.onnx")
    rules = Shapes("x=N{4}x3", check_padding=False)
    plan = Plans(cache, make_backend(BACKENDS[0])).load(path, rules)
    np.testing.assert_array_equal(plan.run({"x": np.ones((2, 3), np.float32)})["y"], [1, 1, 1])
