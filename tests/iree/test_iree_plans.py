"""Plans of IREE, kept and used as a serving process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tests.support.damage import expect_flips_found, flip_bit
from tests.support.onnx_models import (
    conv_net,
    dynamic_batch,
    external_data,
    mlp,
    model,
    save,
    tensor,
    with_if,
)

from trivet import Cache
from trivet.errors import BackendError, ShapeError
from trivet.plans import OnFailure, Plan, PlanFailed, Plans, Shapes, Source
from trivet.plans.backends import Iree
from trivet.plans.backends.iree import PLAN_FILE
from trivet.plans.graph import identify
from trivet.testing.crash import run_forked


def expected(proto: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    return ReferenceEvaluator(proto).run(None, inputs)


def compile_and_run(proto: onnx.ModelProto, folder: Path, **inputs: Any) -> dict[str, Any]:
    path = save(proto, folder / "model.onnx")
    (folder / "plan").mkdir()
    built = Iree().compile(path, identify(path), {}, folder / "plan")
    return built.executable.run({name: np.asarray(each) for name, each in inputs.items()})


@pytest.mark.parametrize(
    ("dtype", "operator"),
    [
        ("FLOAT", "Add"),
        ("DOUBLE", "Add"),
        ("FLOAT16", "Add"),
        ("INT8", "Add"),
        ("UINT8", "Add"),
        ("INT32", "Mul"),
        ("UINT32", "Add"),
        ("INT64", "Mul"),
        ("BOOL", "And"),
    ],
)
def test_types_come_out_as_the_models(tmp_path: Path, dtype: str, operator: str) -> None:
    code = getattr(TensorProto, dtype)
    proto = model(
        [helper.make_node(operator, ["x", "s"], ["y"])],
        [tensor("x", [2, 2], code), tensor("s", [], code)],
        [tensor("y", [2, 2], code)],
    )
    numpy_type = helper.tensor_dtype_to_np_dtype(code)
    x = np.array([[1, 0], [3, 100]]).astype(numpy_type)
    s = np.array(1, numpy_type)
    found = compile_and_run(proto, tmp_path, x=x, s=s)["y"]
    (wanted,) = expected(proto, {"x": x, "s": s})
    assert found.dtype == numpy_type
    np.testing.assert_array_equal(found, wanted)


def test_large_and_small_numbers_keep_64_bits(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [tensor("x", [1], TensorProto.DOUBLE)],
        [tensor("y", [1], TensorProto.DOUBLE)],
    )
    x = np.array([1.0 + 2**-40])
    assert compile_and_run(proto, tmp_path, x=x)["y"].tolist() == (x + x).tolist()


def test_control_flow_and_scalars(tmp_path: Path) -> None:
    proto = with_if()
    x = np.full(4, 2, np.float32)
    found = compile_and_run(proto, tmp_path, c=np.array(False), x=x)
    np.testing.assert_array_equal(found["y"], expected(proto, {"c": np.array(False), "x": x})[0])


@pytest.mark.parametrize("dtype", [TensorProto.BFLOAT16, TensorProto.STRING, TensorProto.COMPLEX64])
def test_types_that_numpy_or_iree_lack_are_refused(tmp_path: Path, dtype: int) -> None:
    proto = model(
        [helper.make_node("Identity", ["x"], ["y"])],
        [tensor("x", [2], dtype)],
        [tensor("y", [2], dtype)],
    )
    with pytest.raises(BackendError, match="element type"):
        compile_and_run(proto, tmp_path, x=np.zeros(2))


def test_one_plan_with_a_free_axis_serves_all_sizes(tmp_path: Path) -> None:
    proto = dynamic_batch()
    plan = Plans(Cache.open(tmp_path / "cache"), Iree()).load(save(proto, tmp_path / "m.onnx"))
    for size in (1, 3, 7):
        x = np.random.default_rng(size).standard_normal((size, 16), np.float32)
        np.testing.assert_allclose(
            plan.run({"x": x})["y"], expected(proto, {"x": x})[0], rtol=1e-4, atol=1e-5
        )
    assert plan.source is Source.COMPILED


def test_sizes_from_rules_are_fixed_in_the_plan(tmp_path: Path) -> None:
    proto = dynamic_batch()
    plans = Plans(Cache.open(tmp_path / "cache"), Iree())
    plan = plans.load(save(proto, tmp_path / "m.onnx"), Shapes("x=N{2,4}x16"))
    assert [each.source for each in plan.prepare()] == ["compiled", "compiled"]
    x = np.random.default_rng(0).standard_normal((3, 16), np.float32)
    np.testing.assert_allclose(
        plan.run({"x": x})["y"], expected(proto, {"x": x})[0], rtol=1e-4, atol=1e-5
    )
    assert [loaded.executable.inputs[0].shape for loaded in plan.prepare()] == [(2, 16), (4, 16)]


def test_one_symbol_has_one_size(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        [tensor("a", ["N", 2]), tensor("b", ["N", 2])],
        [tensor("y", ["N", 2])],
    )
    a, b = np.ones((3, 2), np.float32), np.ones((2, 2), np.float32)
    assert compile_and_run(proto, tmp_path, a=a, b=a)["y"].tolist() == (a + a).tolist()
    executable = Iree().fallback(tmp_path / "model.onnx", {})
    with pytest.raises(ShapeError, match="'b' has shape"):
        executable.run({"a": a, "b": b})
    with pytest.raises(ShapeError, match="can't be 3"):
        Iree().fallback(tmp_path / "model.onnx", {"a": (2, 2), "b": (3, 2)})
    with pytest.raises(ShapeError, match="can't be 5"):
        Iree().fallback(tmp_path / "model.onnx", {"a": (2, 5)})


def test_weights_in_another_file(tmp_path: Path) -> None:
    proto = mlp(64)
    path = external_data(tmp_path / "model", proto)
    x = np.random.default_rng(0).standard_normal((4, 64), np.float32)
    found = Plans(Cache.open(tmp_path / "cache"), Iree()).load(path).run({"x": x})
    np.testing.assert_allclose(found["y"], expected(proto, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_an_operator_that_iree_lacks_is_recorded_and_not_tried_again(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("NoSuchOperator", ["x"], ["y"])], [tensor("x", [2])], [tensor("y", [2])]
    )
    path = save(proto, tmp_path / "m.onnx")
    cache = Cache.open(tmp_path / "cache")
    plans = Plans(cache, Iree(), on_failure=OnFailure.REFUSE)
    with pytest.raises(PlanFailed, match="NoSuchOperator"):
        plans.load(path)
    with pytest.raises(PlanFailed, match="NoSuchOperator") as again:
        plans.load(path)
    assert again.value.__cause__ is None  # from the record


def test_after_a_failure_the_fallback_says_what_the_compiler_said(tmp_path: Path) -> None:
    """IREE runs nothing uncompiled, so there is nothing to fall back to."""
    proto = model(
        [helper.make_node("NoSuchOperator", ["x"], ["y"])], [tensor("x", [2])], [tensor("y", [2])]
    )
    plans = Plans(Cache.open(tmp_path / "cache"), Iree())
    with pytest.raises(BackendError, match="NoSuchOperator"):
        plans.load(save(proto, tmp_path / "m.onnx"))


def test_a_linker_from_the_environment_keeps_plans_from_being_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IREE_LLVM_EMBEDDED_LINKER_PATH", "/usr/bin/true")
    with pytest.raises(BackendError, match="IREE_LLVM_EMBEDDED_LINKER_PATH is set"):
        compile_and_run(mlp(), tmp_path, x=np.zeros((4, 16), np.float32))


def test_a_portable_plan_is_for_generic_code_alone(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    for cpu, portable in (("generic", True), ("host", False)):
        folder = tmp_path / cpu
        folder.mkdir()
        assert Iree(cpu=cpu).compile(path, identify(path), {}, folder).portable is portable


# -- processes and damage ----------------------------------------------------------------------

LOAD = """
    import json, sys
    import numpy as np
    from trivet import Cache
    from trivet.plans import Plans
    from trivet.plans.backends import Iree
    plan = Plans(Cache.open(sys.argv[2]), Iree(), on_failure="refuse").load(sys.argv[1])
    found = plan.run({"x": np.ones((4, 16), np.float32)})
    print(json.dumps([plan.source, plan.loaded.reason, found["y"].tolist()]))
"""


def start(path: Path, cache: Path) -> tuple[str, str, Any]:
    """What a new process gets; it must end well although it still holds plan and outputs."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LOAD), str(path), str(cache)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    source, reason, found = json.loads(done.stdout.splitlines()[-1])
    return source, reason, found


def test_another_process_finds_the_plan_also_in_a_moved_folder(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    source, _, first = start(path, tmp_path / "cache")
    assert source == "compiled"
    assert start(path, tmp_path / "cache") == ("cache", "", first)
    (tmp_path / "cache").rename(tmp_path / "moved")
    assert start(path, tmp_path / "moved") == ("cache", "", first)


def plan_file(cache: Path) -> Path:
    (found,) = cache.rglob(PLAN_FILE)
    return found


def test_a_flipped_bit_anywhere_is_found_before_iree_sees_it(tmp_path: Path) -> None:
    """IREE would run 41 of 63 such files, and crash in 4."""
    path = save(conv_net(size=8), tmp_path / "m.onnx")
    plans = Plans(Cache.open(tmp_path / "cache"), Iree())
    plans.load(path)
    file = plan_file(tmp_path / "cache")
    expect_flips_found(plans, path, file)


def test_a_damaged_plan_is_made_again(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    _, _, first = start(path, tmp_path / "cache")
    flip_bit(plan_file(tmp_path / "cache"), 5000)
    assert start(path, tmp_path / "cache") == ("compiled", "corrupt", first)
    assert start(path, tmp_path / "cache") == ("cache", "", first)


@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_a_forked_process_is_never_kept_waiting(device: str, tmp_path: Path) -> None:
    """Threads of the device are the parent's alone."""
    path = save(mlp(), tmp_path / "m.onnx")

    def load() -> Plan:
        return Plans(Cache.open(tmp_path / "cache"), Iree(device=device)).load(path)

    plan = load()
    inputs = {"x": np.ones((4, 16), np.float32)}
    (expected,) = plan.run(inputs).values()

    def use() -> None:
        for of_child in (lambda: plan, load):
            if device == "local-task":
                with pytest.raises(OSError, match="was forked"):
                    of_child().run(inputs)
            else:
                (found,) = of_child().run(inputs).values()
                assert np.allclose(found, expected)

    assert run_forked(use) == 0
    assert load().source is Source.CACHE
