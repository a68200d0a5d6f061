"""Compiling, loading and running with OpenVINO: values, names, types, shapes, threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
from onnx import TensorProto, helper
from openvino import opset15 as ops
from tests.support.onnx_models import dynamic_batch, external_data, mlp, model, save, tensor

from trivet.errors import BackendError, CorruptEntry, ShapeError
from trivet.plans.backend import Built, Executable, FailureKind
from trivet.plans.backends.openvino import PLAN_FILE, OpenVino
from trivet.plans.model import GraphId, TensorInfo

X = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)


def graph(inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",)) -> GraphId:
    return GraphId(
        format="onnx",
        structure=b"s",
        weights=b"w",
        metadata=b"m",
        inputs=tuple(TensorInfo(name, "float32", None) for name in inputs),
        outputs=tuple(TensorInfo(name, "float32", None) for name in outputs),
        operators=(),
        sources=(),
    )


@pytest.fixture(scope="module")
def backend() -> OpenVino:
    return OpenVino(precision="f32")


@pytest.fixture
def mlp_file(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path / "mlp.onnx")


def compiled(backend: OpenVino, path: Path, folder: Path, shapes: dict[str, Any]) -> Built:
    folder.mkdir()
    return backend.compile(path, graph(), shapes, folder)


def one_operator(
    backend: OpenVino,
    folder: Path,
    node: str,
    dtype: int,
    out: int | None = None,
    **attributes: Any,
) -> Executable:
    nodes = [helper.make_node(node, ["x"], ["y"], **attributes)]
    proto = model(nodes, [tensor("x", ["N"], dtype)], [tensor("y", None, out or dtype)])  # type: ignore[arg-type]
    return backend.fallback(save(proto, folder / "one.onnx"), {})


def as_text(value: Any) -> str:
    """A property's value, whether this version of OpenVINO gives it as an object or as text."""
    text = str(getattr(value, "name", None) or value)
    return {"True": "YES", "False": "NO", "<Type: 'float32'>": "f32"}.get(text, text)


def by_hand(x: np.ndarray[Any, Any], proto: Any) -> np.ndarray[Any, Any]:
    from onnx import numpy_helper

    weights = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    for i in range(len(weights) // 2):
        x = np.maximum(x @ weights[f"w{i}"] + weights[f"b{i}"], 0)
    return x


def test_plan_fallback_and_numpy_agree(backend: OpenVino, mlp_file: Path, tmp_path: Path) -> None:
    plan = compiled(backend, mlp_file, tmp_path / "plan", {}).executable
    found = plan.run({"x": X})["y"]
    np.testing.assert_array_equal(found, backend.fallback(mlp_file, {}).run({"x": X})["y"])
    np.testing.assert_allclose(found, by_hand(X, mlp()), rtol=1e-4, atol=1e-5)


def test_a_plan_is_one_file_bound_to_its_instruction_set(
    backend: OpenVino, mlp_file: Path, tmp_path: Path
) -> None:
    built = compiled(backend, mlp_file, tmp_path / "plan", {})
    files = {path.name: path.stat().st_size for path in (tmp_path / "plan").iterdir()}
    assert files == {PLAN_FILE: built.detail["size"]}
    assert not built.portable


def test_a_loaded_plan_needs_neither_the_model_nor_the_name_of_its_folder(
    backend: OpenVino, mlp_file: Path, tmp_path: Path
) -> None:
    built = compiled(backend, mlp_file, tmp_path / "plan", {})
    expected = built.executable.run({"x": X})["y"]
    mlp_file.unlink()
    (tmp_path / "plan").rename(tmp_path / "elsewhere")
    np.testing.assert_array_equal(built.executable.run({"x": X})["y"], expected)
    again = OpenVino(precision="f32").load(tmp_path / "elsewhere", built.detail)
    np.testing.assert_array_equal(again.run({"x": X})["y"], expected)
    assert (again.inputs, again.outputs) == (built.executable.inputs, built.executable.outputs)


def test_external_weights_are_inside_the_plan(backend: OpenVino, tmp_path: Path) -> None:
    path = external_data(tmp_path / "model")
    built = compiled(backend, path, tmp_path / "plan", {})
    expected = built.executable.run({"x": X})["y"]
    (tmp_path / "model" / "weights.bin").unlink()
    loaded = backend.load(tmp_path / "plan", built.detail)
    np.testing.assert_array_equal(loaded.run({"x": X})["y"], expected)


def test_shapes_are_fixed_or_left_free_as_asked(backend: OpenVino, tmp_path: Path) -> None:
    path = save(dynamic_batch(), tmp_path / "m.onnx")
    fixed = compiled(backend, path, tmp_path / "fixed", {"x": (4, 16)}).executable
    free = compiled(backend, path, tmp_path / "free", {"x": ("N", 16)}).executable
    assert (fixed.inputs[0].shape, free.inputs[0].shape) == ((4, 16), (None, 16))
    np.testing.assert_allclose(
        free.run({"x": X[:3]})["y"], fixed.run({"x": X})["y"][:3], rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ShapeError, match=r"has shape \(4, 16\), got \(3, 16\)"):
        fixed.run({"x": X[:3]})


def test_a_shape_for_no_input_is_refused(backend: OpenVino, mlp_file: Path) -> None:
    with pytest.raises(ShapeError, match="no input 'z'"):
        backend.fallback(mlp_file, {"z": (1,)})


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, r"inputs \['x'\] are missing"),
        ({"x": X, "z": X}, "'z' is no input"),
        ({"x": X.astype(np.float64)}, "takes float32, got float64"),
        ({"x": X.astype(">f4")}, "takes float32, got >f4"),
        ({"x": X[0]}, r"got \(16,\)"),
    ],
    ids=["missing", "unknown", "dtype", "byte order", "rank"],
)
def test_wrong_inputs_are_named(
    backend: OpenVino, mlp_file: Path, inputs: dict[str, Any], text: str
) -> None:
    with pytest.raises(ShapeError, match=text):
        backend.fallback(mlp_file, {}).run(inputs)


def test_after_a_refused_call_the_next_one_is_right(backend: OpenVino, mlp_file: Path) -> None:
    executable = backend.fallback(mlp_file, {})
    expected = executable.run({"x": X})["y"]
    with pytest.raises(ShapeError):
        executable.run({"x": X[:2]})
    np.testing.assert_array_equal(executable.run({"x": X})["y"], expected)


def test_read_only_and_strided_inputs_are_taken(backend: OpenVino, mlp_file: Path) -> None:
    executable = backend.fallback(mlp_file, {})
    expected = executable.run({"x": X})["y"]
    wide = np.repeat(X, 2, axis=1)
    frozen = X.copy()
    frozen.setflags(write=False)
    np.testing.assert_array_equal(executable.run({"x": wide[:, ::2]})["y"], expected)
    np.testing.assert_array_equal(executable.run({"x": frozen})["y"], expected)


def test_outputs_are_the_callers_own(backend: OpenVino, mlp_file: Path) -> None:
    executable = backend.fallback(mlp_file, {})
    first = executable.run({"x": X})["y"]
    kept = first.copy()
    second = executable.run({"x": X + 1})["y"]
    np.testing.assert_array_equal(first, kept)
    second[:] = 0
    np.testing.assert_array_equal(executable.run({"x": X})["y"], kept)


def test_an_output_that_is_an_input_is_no_view_of_it(backend: OpenVino, tmp_path: Path) -> None:
    executable = one_operator(backend, tmp_path, "Identity", TensorProto.FLOAT)
    given = np.ones(3, np.float32)
    found = executable.run({"x": given})["y"]
    given[:] = 7
    np.testing.assert_array_equal(found, np.ones(3))


def test_scalars_empty_arrays_and_sizes_known_only_after_the_run(
    backend: OpenVino, tmp_path: Path
) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["y"]), helper.make_node("Neg", ["s"], ["t"])]
    inputs = [tensor("x", ["N"]), tensor("s", [])]
    proto = model(nodes, inputs, [tensor("y", None, TensorProto.INT64), tensor("t", None)])  # type: ignore[arg-type]
    executable = backend.fallback(save(proto, tmp_path / "m.onnx"), {})
    for values, expected in (([0, 5, 0, 6], [[1, 3]]), ([], np.zeros((1, 0))), ([0], [[]])):
        found = executable.run(
            {"x": np.array(values, np.float32), "s": np.array(2, dtype=np.float32)}
        )
        np.testing.assert_array_equal(found["y"], np.asarray(expected))
        assert found["y"].dtype == np.int64
        assert found["t"].shape == ()
        assert found["t"] == -2


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (TensorProto.FLOAT16, "float16"),
        (TensorProto.DOUBLE, "float64"),
        (TensorProto.INT8, "int8"),
        (TensorProto.UINT8, "uint8"),
        (TensorProto.INT64, "int64"),
        (TensorProto.BOOL, "bool"),
    ],
)
def test_element_types_are_numpys(backend: OpenVino, tmp_path: Path, code: int, name: str) -> None:
    executable = one_operator(backend, tmp_path, "Identity", code)
    given = np.array([1, 0, 1], name)
    found = executable.run({"x": given})["y"]
    assert (executable.inputs[0].dtype, found.dtype) == (name, np.dtype(name))
    np.testing.assert_array_equal(found, given)


@pytest.mark.parametrize("code", [TensorProto.BFLOAT16, TensorProto.INT4])
def test_types_that_would_come_out_in_disguise_are_refused(
    backend: OpenVino, tmp_path: Path, code: int
) -> None:
    with pytest.raises(BackendError, match="which NumPy does not have") as raised:
        one_operator(backend, tmp_path, "Cast", TensorProto.FLOAT, code, to=code)
    assert backend.classify(raised.value) is FailureKind.DETERMINISTIC


def test_forwarded_strings_which_abort_the_process_are_refused(
    backend: OpenVino, tmp_path: Path
) -> None:
    with pytest.raises(BackendError, match="aborts the process"):
        one_operator(backend, tmp_path, "Identity", TensorProto.STRING)


def test_strings_that_operators_pack_go_in_and_out(backend: OpenVino, tmp_path: Path) -> None:
    x = ops.parameter([-1], openvino.Type.string, name="x")
    parts = ops.string_tensor_unpack(x)
    y = ops.string_tensor_pack(*(parts.output(i) for i in range(3)))
    openvino.save_model(openvino.Model([ops.result(y, name="y")], [x]), tmp_path / "m.xml")
    built = compiled(backend, tmp_path / "m.xml", tmp_path / "plan", {})
    for words in (["one", "zwölf", ""], ["a" * 100]):
        found = next(iter(built.executable.run({"x": np.array(words)}).values()))
        assert found.dtype == object
        assert found.tolist() == words
    with pytest.raises(ShapeError, match="takes strings, got float64"):
        built.executable.run({"x": np.ones(2)})
    with pytest.raises(ShapeError, match="NUL"):
        built.executable.run({"x": np.array(["a\0"], dtype=object)})


def test_tensors_go_by_any_of_their_names_and_come_out_under_the_graphs(
    backend: OpenVino, tmp_path: Path
) -> None:
    x = ops.parameter([2], openvino.Type.f32, name="node")
    x.output(0).set_names({"b", "a"})
    y = ops.relu(x)
    y.output(0).set_names({"q", "p"})
    openvino.save_model(openvino.Model([ops.result(y)], [x]), tmp_path / "m.xml")
    (tmp_path / "plan").mkdir()
    plan = backend.compile(
        tmp_path / "m.xml", graph(["b"], ["q"]), {"a": (2,)}, tmp_path / "plan"
    ).executable
    assert ([i.name for i in plan.inputs], [o.name for o in plan.outputs]) == (["b"], ["q"])
    given = np.array([-1, 2], np.float32)
    for name in ("a", "b"):
        np.testing.assert_array_equal(plan.run({name: given})["q"], [0, 2])
    with pytest.raises(ShapeError, match="given under two names"):
        plan.run({"a": given, "b": given})


def test_variables_of_a_stateful_model_start_anew_with_every_call(
    backend: OpenVino, tmp_path: Path
) -> None:
    x = ops.parameter([1], openvino.Type.f32, name="x")
    start = ops.constant(np.zeros(1, np.float32))
    total = ops.add(ops.read_value(start, "v", openvino.Type.f32, openvino.PartialShape([1])), x)
    parts = [ops.result(total)], [ops.assign(total, "v")], [x]
    openvino.save_model(openvino.Model(*parts), tmp_path / "m.xml")
    executable = backend.fallback(tmp_path / "m.xml", {})
    one = {"x": np.ones(1, np.float32)}
    assert [next(iter(executable.run(one).values())).item() for _ in range(3)] == [1, 1, 1]


def test_concurrent_calls_get_their_own_results(
    backend: OpenVino, mlp_file: Path, tmp_path: Path
) -> None:
    plan = compiled(backend, mlp_file, tmp_path / "plan", {}).executable
    inputs = [X + i for i in range(8)]
    expected = [plan.run({"x": each})["y"] for each in inputs]
    together = threading.Barrier(len(inputs))
    wrong: list[int] = []

    def work(i: int) -> None:
        together.wait(30)
        for _ in range(20):
            if not np.array_equal(plan.run({"x": inputs[i]})["y"], expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_frameworks_own_object_outlives_the_plan_it_came_from(
    backend: OpenVino, mlp_file: Path, tmp_path: Path
) -> None:
    built = compiled(backend, mlp_file, tmp_path / "plan", {})
    expected = built.executable.run({"x": X})["y"]
    native = built.executable.native
    assert isinstance(native, openvino.CompiledModel)
    request = native.create_infer_request()
    del built, native
    np.testing.assert_array_equal(request.infer({"x": X})["y"], expected)


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ({"threads": 1}, "INFERENCE_NUM_THREADS", 1),
        ({"threads": 2, "streams": 2}, "NUM_STREAMS", 2),
        ({"hint": "throughput"}, "PERFORMANCE_HINT", "THROUGHPUT"),
        ({"precision": "f32"}, "INFERENCE_PRECISION_HINT", "f32"),
        ({"options": {"ENABLE_CPU_PINNING": False}}, "ENABLE_CPU_PINNING", False),
        ({"options": {"PERF_COUNT": True, "ENABLE_MMAP": False}}, "PERF_COUNT", "YES"),
    ],
    ids=lambda each: str(each) if isinstance(each, dict) else "",
)
def test_options_take_effect_on_a_plan_that_was_made_without_them(
    mlp_file: Path, tmp_path: Path, arguments: dict[str, Any], name: str, value: Any
) -> None:
    built = compiled(OpenVino(), mlp_file, tmp_path / "plan", {})
    loaded = OpenVino(**arguments).load(tmp_path / "plan", built.detail)
    assert as_text(loaded.native.get_property(name)) == as_text(value)
    np.testing.assert_allclose(loaded.run({"x": X})["y"], by_hand(X, mlp()), rtol=2e-2, atol=1e-2)


def test_a_truncated_plan_is_corrupt_whatever_openvino_thinks(
    backend: OpenVino, mlp_file: Path, tmp_path: Path
) -> None:
    built = compiled(backend, mlp_file, tmp_path / "plan", {})
    whole = (tmp_path / "plan" / PLAN_FILE).read_bytes()
    for kept in (0, 1, 60, len(whole) // 2, len(whole) - 1):
        folder = tmp_path / f"cut{kept}"
        folder.mkdir()
        (folder / PLAN_FILE).write_bytes(whole[:kept])
        with pytest.raises(CorruptEntry, match=f"has {kept} bytes"):
            backend.load(folder, built.detail)


def test_an_unsupported_operator_is_a_deterministic_failure(
    backend: OpenVino, tmp_path: Path
) -> None:
    proto = model(
        [helper.make_node("Mystery", ["x"], ["y"], domain="example.custom")],
        [tensor("x", [2])],
        [tensor("y", [2])],
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("example.custom", 1)],
    )
    with pytest.raises(RuntimeError, match="Mystery") as raised:
        backend.fallback(save(proto, tmp_path / "m.onnx"), {})
    assert backend.classify(raised.value) is FailureKind.DETERMINISTIC


def test_a_model_that_went_away_is_a_transient_failure(backend: OpenVino, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as raised:
        backend.fallback(tmp_path / "gone.onnx", {})
    assert backend.classify(raised.value) is FailureKind.TRANSIENT


def test_tolerance_follows_the_machines_default_once_openvino_is_loaded(tmp_path: Path) -> None:
    backend = OpenVino()
    backend.warm_import()
    default = openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT")
    exact = OpenVino(precision="f32").tolerance()
    assert (backend.tolerance() == exact) is (default == openvino.Type.f32)
