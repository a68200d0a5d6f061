"""What ONNX Runtime plans are made of: weights, shapes, dependence on the CPU, odd models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.support.onnx_models import conv_net, external_data, mlp, model, save, tensor, with_if

from trivet.errors import BackendError, ShapeError
from trivet.plans.backend import Built
from trivet.plans.backends import OnnxRuntime
from trivet.plans.backends.onnxruntime_plan import scan
from trivet.plans.graph import identify
from trivet.plans.model import Dimension

RANDOM = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape, np.float32)


def compiled(
    source: Path,
    folder: Path,
    shapes: dict[str, tuple[Dimension, ...]] | None = None,
    **options: Any,
) -> Built:
    folder.mkdir()
    return OnnxRuntime(**options).compile(source, identify(source), shapes or {}, folder)


def assert_same(built: Built, source: Path, inputs: dict[str, Any]) -> None:
    expected = OnnxRuntime().fallback(source, {}).run(inputs)
    for name, found in built.executable.run(inputs).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6)


# -- weights ---------------------------------------------------------------------------------------


def test_weights_lie_in_a_file_of_their_own_that_is_mapped(tmp_path: Path) -> None:
    built = compiled(save(mlp(128), tmp_path / "model.onnx"), tmp_path / "plan")
    assert {path.name for path in (tmp_path / "plan").iterdir()} == {"model.onnx", "weights.bin"}
    assert (tmp_path / "plan" / "weights.bin").stat().st_size >= 2 * 128 * 128 * 4
    assert (tmp_path / "plan" / "model.onnx").stat().st_size < 8192
    assert built.executable.outputs[0].shape == (4, 128)
    # Without packing, nothing lets go of the mapping after loading.
    unpacked = OnnxRuntime(options={"session.disable_prepacking": "1"})
    loaded = unpacked.load(tmp_path / "plan", {})
    assert str(tmp_path / "plan" / "weights.bin") in Path("/proc/self/maps").read_text()
    assert set(loaded.run({"x": floats(4, 128)})) == {"y"}


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    source = save(mlp(128), tmp_path / "model.onnx")
    for name in ("one", "two"):
        compiled(source, tmp_path / name)
    for name in ("model.onnx", "weights.bin"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("width", [8, 128], ids=["small weights", "large weights"])
def test_external_weights_in_another_folder_become_part_of_the_plan(
    width: int, tmp_path: Path
) -> None:
    (tmp_path / "model" / "deep").mkdir(parents=True)
    source = external_data(tmp_path / "model", mlp(width), location="deep/weights.bin")
    inputs = {"x": floats(4, width)}
    expected = OnnxRuntime().fallback(source, {}).run(inputs)["y"]
    built = compiled(source, tmp_path / "plan")
    source.unlink()
    (tmp_path / "model" / "deep" / "weights.bin").unlink()
    assert scan(tmp_path / "plan" / "model.onnx").locations <= {"weights.bin"}
    loaded = OnnxRuntime().load(tmp_path / "plan", built.detail)
    np.testing.assert_allclose(loaded.run(inputs)["y"], expected, rtol=1e-5, atol=1e-6)


def test_weights_inside_branches_become_part_of_the_plan(tmp_path: Path) -> None:
    weight = helper.make_tensor(
        "inner", TensorProto.FLOAT, [64, 64], floats(64, 64).tobytes(), True
    )
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["x", "inner"], [out])], op, [], [tensor(out, [64, 64])], [weight]
        )
        for op, out in (("MatMul", "a"), ("Add", "b"))
    ]
    proto = model(
        [helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        [tensor("c", [], TensorProto.BOOL), tensor("x", [64, 64])],
        [tensor("y", [64, 64])],
    )
    source = save(proto, tmp_path / "model.onnx")
    built = compiled(source, tmp_path / "plan")
    (tmp_path / "plan").rename(tmp_path / "moved")
    built = Built(
        executable=OnnxRuntime().load(tmp_path / "moved", built.detail), detail=built.detail
    )
    for condition in (True, False):
        assert_same(built, source, {"c": np.array(condition), "x": floats(64, 64)})


def test_paths_that_are_not_ascii(tmp_path: Path) -> None:
    folder = tmp_path / "模型 é"
    source = save(mlp(64), folder / "mödel ☂.onnx")
    built = compiled(source, folder / "plân")
    assert_same(built, source, {"x": floats(4, 64)})


def test_a_plan_holds_no_files_but_its_own(tmp_path: Path) -> None:
    source = save(mlp(64), tmp_path / "model.onnx")
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "left over").write_bytes(b"from somewhere")
    OnnxRuntime().compile(source, identify(source), {}, tmp_path / "plan")
    assert {path.name for path in (tmp_path / "plan").iterdir()} == {"model.onnx", "weights.bin"}


# -- shapes ----------------------------------------------------------------------------------------


def two_inputs(path: Path) -> Path:
    proto = model(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        [tensor("a", ["N", None]), tensor("b", ["N", 4])],
        [tensor("y", ["N", 4])],
    )
    return save(proto, path)


def test_a_size_for_a_symbol_fixes_it_everywhere(tmp_path: Path) -> None:
    built = compiled(two_inputs(tmp_path / "m.onnx"), tmp_path / "plan", {"a": (3, 4)})
    # The second axis of "a" has no name, so it stays free.
    assert [each.shape for each in built.executable.inputs] == [(3, None), (3, 4)]
    with pytest.raises(ShapeError, match=r"'b' has shape \[3, 4\], got \[2, 4\]"):
        built.executable.run({"a": floats(3, 4), "b": floats(2, 4)})


@pytest.mark.parametrize(
    "shapes",
    [
        {"a": (3, 4), "b": (2, 4)},  # one symbol, two sizes
        {"b": (3, 5)},  # the model says 4
        {"b": (3,)},
        {"c": (3, 4)},
    ],
    ids=str,
)
def test_sizes_that_contradict_the_model_are_a_shape_error(
    shapes: dict[str, tuple[Dimension, ...]], tmp_path: Path
) -> None:
    with pytest.raises(ShapeError):
        compiled(two_inputs(tmp_path / "m.onnx"), tmp_path / "plan", shapes)


def test_without_shapes_free_axes_stay_free(tmp_path: Path) -> None:
    source = two_inputs(tmp_path / "m.onnx")
    built = compiled(source, tmp_path / "plan")
    for rows in (1, 5, 0):
        assert_same(built, source, {"a": floats(rows, 4), "b": floats(rows, 4)})


# -- dependence on the CPU -------------------------------------------------------------------------


def low_precision(path: Path) -> Path:
    half, single = TensorProto.FLOAT16, TensorProto.FLOAT
    proto = model(
        [
            helper.make_node("Cast", ["x"], ["h"], to=half),
            helper.make_node("MatMul", ["h", "w"], ["g"]),
            helper.make_node("Cast", ["g"], ["y"], to=single),
        ],
        [tensor("x", [2, 8])],
        [tensor("y", [2, 8])],
        {"w": floats(8, 8).astype(np.float16)},
    )
    return save(proto, path)


def quantised(path: Path) -> Path:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    weights = {"w": np.arange(64, dtype=np.uint8).reshape(8, 8)}
    return save(model(nodes, [tensor("x", [2, 8])], [tensor("y", [2, 8])], weights), path)


def convolutions(path: Path) -> Path:
    return save(conv_net(), path)


def dense(path: Path) -> Path:
    return save(mlp(64), path)


@pytest.mark.parametrize(
    ("build", "options", "reason"),
    [
        (dense, {}, ""),
        (dense, {"level": "extended"}, ""),
        (dense, {"disabled_optimizers": ["GemmActivationFusion"]}, ""),
        (dense, {"options": {"session.intra_op.allow_spinning": "0"}}, ""),
        (dense, {"options": {"session.x64quantprecision": "1"}}, "options"),
        (convolutions, {}, "blocks"),
        (convolutions, {"level": "extended"}, ""),
        (convolutions, {"disabled_optimizers": ["NchwcTransformer"]}, "layout"),
        (low_precision, {"level": "extended"}, "element types"),
        (quantised, {"level": "extended"}, "quantised"),
    ],
)
def test_a_plan_is_portable_only_when_nothing_in_it_was_decided_by_the_cpu(
    build: Any, options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    built = compiled(build(tmp_path / "model.onnx"), tmp_path / "plan", **options)
    assert built.portable is (reason == "")
    assert reason in str(built.detail["bound"])
    assert ("instruction_set" in built.detail) is not built.portable
    assert ("nchwc_block" in built.detail) is not built.portable


def test_a_plan_with_reordered_weights_names_its_domain(tmp_path: Path) -> None:
    compiled(convolutions(tmp_path / "model.onnx"), tmp_path / "plan")
    domains = {domain for domain, _ in scan(tmp_path / "plan" / "model.onnx").operators}
    assert "com.microsoft.nchwc" in domains


# -- odd models ------------------------------------------------------------------------------------


def test_inputs_without_axes_are_told_from_inputs_of_unknown_rank(tmp_path: Path) -> None:
    source = save(with_if(), tmp_path / "model.onnx")
    built = compiled(source, tmp_path / "plan")
    assert {each.name: each.shape for each in built.executable.inputs} == {"c": (), "x": (4,)}
    with pytest.raises(ShapeError, match=r"'c' has shape \[\], got \[1\]"):
        built.executable.run({"c": np.array([True]), "x": floats(4)})
    assert OnnxRuntime().fallback(source, {}).inputs[0].shape is None
    assert_same(built, source, {"c": np.array(True), "x": floats(4)})


def test_strings_go_in_and_out(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("Identity", ["x"], ["y"])],
        [tensor("x", ["N"], TensorProto.STRING)],
        [tensor("y", ["N"], TensorProto.STRING)],
    )
    built = compiled(save(proto, tmp_path / "model.onnx"), tmp_path / "plan")
    for given in (np.array(["a", "ü"], object), np.array(["a", "ü"])):
        assert built.executable.run({"x": given})["y"].tolist() == ["a", "ü"]


def test_a_default_that_callers_may_replace_is_an_input_that_may_be_left_out(
    tmp_path: Path,
) -> None:
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [tensor("x", [4]), tensor("w", [4])],
        [tensor("y", [4])],
        {"w": np.ones(4, np.float32)},
    )
    source = save(proto, tmp_path / "model.onnx")
    built = compiled(source, tmp_path / "plan")
    x = np.zeros(4, np.float32)
    assert built.executable.run({"x": x})["y"].tolist() == [1, 1, 1, 1]
    assert built.executable.run({"x": x, "w": x + 5})["y"].tolist() == [5, 5, 5, 5]


def test_a_model_that_draws_random_numbers_still_does(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("RandomNormal", [], ["y"], shape=[64])], [], [tensor("y", [64])]
    )
    built = compiled(save(proto, tmp_path / "model.onnx"), tmp_path / "plan")
    assert not np.array_equal(built.executable.run({})["y"], built.executable.run({})["y"])


def test_outputs_that_are_sequences_come_back_as_lists(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("SplitToSequence", ["x"], ["y"], axis=0, keepdims=0)],
        [tensor("x", [2, 3])],
        [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)],
    )
    source = save(proto, tmp_path / "model.onnx")
    x = floats(2, 3)
    found = OnnxRuntime().fallback(source, {}).run({"x": x})["y"]
    assert [each.tolist() for each in found] == x.tolist()
    with pytest.raises(BackendError, match="'y' is a sequence"):
        compiled(source, tmp_path / "plan")


def test_an_output_that_is_an_input_is_a_copy(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("Identity", ["x"], ["y"])], [tensor("x", [4])], [tensor("y", [4])]
    )
    built = compiled(save(proto, tmp_path / "model.onnx"), tmp_path / "plan")
    x = np.ones(4, np.float32)
    built.executable.run({"x": x})["y"][:] = 9
    assert x.tolist() == [1, 1, 1, 1]


def test_an_output_that_is_a_constant_is_a_copy(tmp_path: Path) -> None:
    value = np.arange(1024, dtype=np.float32)
    proto = model(
        [helper.make_node("Identity", ["w"], ["y"]), helper.make_node("Add", ["x", "w"], ["z"])],
        [tensor("x", [1024])],
        [tensor("y", [1024]), tensor("z", [1024])],
        {"w": value},
    )
    built = compiled(save(proto, tmp_path / "model.onnx"), tmp_path / "plan")
    x = np.zeros(1024, np.float32)
    built.executable.run({"x": x})["y"][:] = 0
    again = built.executable.run({"x": x})
    np.testing.assert_array_equal(again["y"], value)
    np.testing.assert_array_equal(again["z"], value)
