"""What makes two ONNX models different, each change alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.support import onnx_models

from trivet.plans.graph import identify
from trivet.plans.model import GraphId

Change = Callable[[onnx.ModelProto], object]


def _custom(proto: onnx.ModelProto) -> onnx.NodeProto:
    return proto.graph.node[1]


def _attribute(proto: onnx.ModelProto, name: str) -> onnx.AttributeProto:
    return next(each for each in _custom(proto).attribute if each.name == name)


def _replace(repeated: object, items: list[object]) -> None:
    del repeated[:]  # type: ignore[attr-defined]
    repeated.extend(items)  # type: ignore[attr-defined]


def _swap(repeated: object) -> None:
    _replace(repeated, list(repeated)[::-1])  # type: ignore[call-overload]


def _unknown(message: object) -> None:
    # Field 999, a varint.
    message.MergeFromString(b"\xb8\x3e\x01")  # type: ignore[attr-defined]


STRUCTURE: dict[str, Change] = {
    "ir version": lambda m: setattr(m, "ir_version", 9),
    "opset version": lambda m: setattr(m.opset_import[0], "version", 18),
    "opset domain": lambda m: setattr(m.opset_import[1], "domain", "other"),
    "opset added": lambda m: m.opset_import.add(domain="third", version=1),
    "input name": lambda m: setattr(m.graph.input[1], "name", "renamed"),
    "input order": lambda m: _swap(m.graph.input),
    "input type": lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 6),
    "input size": lambda m: setattr(m.graph.input[1].type.tensor_type.shape.dim[0], "dim_value", 5),
    "input symbol": lambda m: setattr(
        m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "K"
    ),
    "input denotation": lambda m: setattr(m.graph.input[0].type, "denotation", "IMAGE"),
    "input of unknown shape": lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"),
    "output order": lambda m: _swap(m.graph.output),
    "output type": lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", 10),
    "output symbol": lambda m: setattr(
        m.graph.output[1].type.tensor_type.shape.dim[0], "dim_param", "K"
    ),
    "output dropped": lambda m: m.graph.output.pop(),
    "operator type": lambda m: setattr(_custom(m), "op_type", "Other"),
    "operator domain": lambda m: setattr(_custom(m), "domain", "other"),
    "operator overload": lambda m: setattr(_custom(m), "overload", "fast"),
    "node order": lambda m: _swap(m.graph.node),
    "node added": lambda m: m.graph.node.append(helper.make_node("Relu", ["h"], ["z"])),
    "node inputs swapped": lambda m: _swap(m.graph.node[0].input),
    "optional input given": lambda m: _custom(m).input.__setitem__(1, "g"),
    "node reads another value": lambda m: m.graph.node[2].input.__setitem__(0, "g"),
    "node output added": lambda m: _custom(m).output.append("h2"),
    "node device": lambda m: m.graph.node[0].device_configurations.add(pipeline_stage=1),
    "type of an inner value": lambda m: setattr(
        m.graph.value_info[0].type.tensor_type, "elem_type", 10
    ),
    "attribute name": lambda m: setattr(_custom(m).attribute[0], "name", "renamed"),
    "attribute type": lambda m: setattr(_attribute(m, "a_int"), "type", 1),
    "attribute dropped": lambda m: _custom(m).attribute.pop(),
    "attribute order": lambda m: _swap(_custom(m).attribute),
    "float": lambda m: setattr(_attribute(m, "a_float"), "f", 1.25),
    "floats": lambda m: _attribute(m, "a_floats").floats.__setitem__(1, 2.5),
    "floats shorter": lambda m: _attribute(m, "a_floats").floats.pop(),
    "int": lambda m: setattr(_attribute(m, "a_int"), "i", -3),
    "ints": lambda m: _attribute(m, "a_ints").ints.__setitem__(2, -6),
    "ints swapped": lambda m: _swap(_attribute(m, "a_ints").ints),
    "string": lambda m: setattr(_attribute(m, "a_string"), "s", b"texts"),
    "strings": lambda m: _attribute(m, "a_strings").strings.__setitem__(0, b"on"),
    "strings joined": lambda m: _replace(_attribute(m, "a_strings").strings, [b"onetwo"]),
    "tensor shape": lambda m: _replace(_attribute(m, "a_tensor").t.dims, [2, 1]),
    "tensor type": lambda m: setattr(_attribute(m, "a_tensor").t, "data_type", 16),
    "tensors": lambda m: _attribute(m, "a_tensors").tensors[0].int32_data.__setitem__(0, 9),
    "graph": lambda m: setattr(_attribute(m, "a_graph").g.node[0], "op_type", "Tanh"),
    "graph captures": lambda m: _attribute(m, "a_graph").g.node[0].input.__setitem__(0, "g"),
    "graphs": lambda m: setattr(_attribute(m, "a_graphs").graphs[0].node[0], "op_type", "Tanh"),
    "sparse shape": lambda m: _attribute(m, "a_sparse").sparse_tensor.dims.__setitem__(0, 9),
    "sparse indices": lambda m: _attribute(
        m, "a_sparse"
    ).sparse_tensor.indices.int64_data.__setitem__(0, 2),
    "sparse tensors": lambda m: _attribute(m, "a_sparses").sparse_tensors[0].dims.__setitem__(0, 9),
    "type": lambda m: setattr(_attribute(m, "a_type").tp.tensor_type, "elem_type", 10),
    "types": lambda m: setattr(_attribute(m, "a_types").type_protos[0].tensor_type, "elem_type", 2),
    "weight type": lambda m: setattr(m.graph.initializer[0], "data_type", 6),
    "weight shape": lambda m: _replace(m.graph.initializer[0].dims, [4, 100]),
    "weight segment": lambda m: setattr(m.graph.initializer[0].segment, "begin", 1),
    "unused weight dropped": lambda m: m.graph.initializer.pop(),
    "name of an optional input": lambda m: (
        setattr(m.graph.input[1], "name", "o"),
        setattr(m.graph.initializer[1], "name", "o"),
        _custom(m).input.__setitem__(2, "o"),
        setattr(m.graph.quantization_annotation[0].quant_parameter_tensor_names[0], "value", "o"),
    ),
    "optional input made a constant": lambda m: m.graph.input.pop(),
    "quantised value": lambda m: setattr(m.graph.quantization_annotation[0], "tensor_name", "h"),
    "quantisation role": lambda m: setattr(
        m.graph.quantization_annotation[0].quant_parameter_tensor_names[0], "key", "ZERO"
    ),
    "quantisation parameter": lambda m: setattr(
        m.graph.quantization_annotation[0].quant_parameter_tensor_names[0], "value", "w"
    ),
    "function name": lambda m: setattr(m.functions[0], "name", "Thrice"),
    "function domain": lambda m: setattr(m.functions[0], "domain", "other"),
    "function overload": lambda m: setattr(m.functions[0], "overload", "fast"),
    "function inputs": lambda m: _swap(m.functions[0].input),
    "function output": lambda m: m.functions[0].output.__setitem__(0, "s"),
    "function attribute": lambda m: m.functions[0].attribute.__setitem__(0, "gamma"),
    "function default": lambda m: setattr(m.functions[0].attribute_proto[0], "f", 3.0),
    "function node": lambda m: setattr(m.functions[0].node[0], "op_type", "Sub"),
    "function opset": lambda m: setattr(m.functions[0].opset_import[0], "version", 18),
    "function's reference to an attribute": lambda m: setattr(
        m.functions[0].node[1].attribute[0], "ref_attr_name", "gamma"
    ),
    "function dropped": lambda m: m.functions.pop(),
    "training": lambda m: m.training_info.add().algorithm.node.add(op_type="Adam"),
    "device configuration": lambda m: m.configuration.add(name="two", num_devices=2),
    "unknown field of the model": _unknown,
    "unknown field of the graph": lambda m: _unknown(m.graph),
    "unknown field of a node": lambda m: _unknown(m.graph.node[0]),
    "unknown field of an attribute": lambda m: _unknown(_custom(m).attribute[0]),
    "unknown field of an input": lambda m: _unknown(m.graph.input[0]),
    "unknown field of a type": lambda m: _unknown(m.graph.input[0].type),
    "unknown field of an inner value": lambda m: _unknown(m.graph.value_info[0]),
    "unknown field of a tensor": lambda m: _unknown(m.graph.initializer[0]),
    "unknown field of a sparse tensor": lambda m: _unknown(m.graph.sparse_initializer[0]),
    "unknown field of an opset": lambda m: _unknown(m.opset_import[0]),
    "unknown field of a function": lambda m: _unknown(m.functions[0]),
    "unknown field of an annotation": lambda m: _unknown(m.graph.quantization_annotation[0]),
}

WEIGHTS: dict[str, Change] = {
    "one element": lambda m: _element(m.graph.initializer[0], 7, 1e9),
    "sign of a zero": lambda m: _element(m.graph.initializer[0], 0, -0.0),
    "default of an optional input": lambda m: _element(m.graph.initializer[1], 0, 2.0),
    "unused weight": lambda m: _element(m.graph.initializer[2], 0, 2.0),
    "sparse weight": lambda m: m.graph.sparse_initializer[0].values.float_data.__setitem__(0, 5.0),
    "tensor of an attribute": lambda m: _attribute(m, "a_tensor").t.float_data.__setitem__(0, 5.0),
    "sparse tensor of an attribute": lambda m: _attribute(
        m, "a_sparse"
    ).sparse_tensor.values.float_data.__setitem__(0, 5.0),
}


def _element(tensor: onnx.TensorProto, index: int, value: float) -> None:
    array = numpy_helper.to_array(tensor).copy()
    array.flat[index] = value
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _identify(folder: Path, proto: onnx.ModelProto) -> GraphId:
    return identify(onnx_models.save(proto, folder / "model.onnx"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> GraphId:
    return _identify(tmp_path_factory.mktemp("original"), onnx_models.every_kind())


@pytest.mark.parametrize("what", STRUCTURE)
def test_every_change_to_the_structure_counts(what: str, original: GraphId, tmp_path: Path) -> None:
    proto = onnx_models.every_kind()
    STRUCTURE[what](proto)
    assert _identify(tmp_path, proto).structure != original.structure


@pytest.mark.parametrize("what", WEIGHTS)
def test_weights_count_apart_from_structure(what: str, original: GraphId, tmp_path: Path) -> None:
    proto = onnx_models.every_kind()
    WEIGHTS[what](proto)
    changed = _identify(tmp_path, proto)
    assert changed.weights != original.weights
    assert changed.structure == original.structure


def test_all_changes_differ_from_each_other(tmp_path: Path) -> None:
    found: dict[tuple[bytes, bytes], str] = {}
    for what, change in {**STRUCTURE, **WEIGHTS}.items():
        proto = onnx_models.every_kind()
        change(proto)
        graph = _identify(tmp_path, proto)
        other = found.setdefault((graph.structure, graph.weights), what)
        assert other == what


def test_two_fine_tunes_share_their_structure(tmp_path: Path) -> None:
    one = _identify(tmp_path, onnx_models.conv_net(seed=1))
    two = _identify(tmp_path, onnx_models.conv_net(seed=2))
    assert one.structure == two.structure
    assert one.weights != two.weights


def test_swapping_the_contents_of_two_weights_counts(tmp_path: Path) -> None:
    proto = onnx_models.mlp()
    before = _identify(tmp_path, proto)
    first, second = proto.graph.initializer[0], proto.graph.initializer[2]
    first.raw_data, second.raw_data = second.raw_data, first.raw_data
    after = _identify(tmp_path, proto)
    assert after.weights != before.weights


def test_swapping_the_names_of_two_weights_counts(tmp_path: Path) -> None:
    proto = onnx_models.mlp()
    before = _identify(tmp_path, proto)
    first, second = proto.graph.initializer[0], proto.graph.initializer[2]
    first.name, second.name = second.name, first.name
    assert _identify(tmp_path, proto).weights != before.weights


def test_two_random_nodes_are_not_one_that_is_shared(tmp_path: Path) -> None:
    def build(second: str) -> onnx.ModelProto:
        nodes = [
            helper.make_node("RandomNormal", [], ["a"], shape=[4]),
            helper.make_node("RandomNormal", [], ["b"], shape=[4]),
            helper.make_node("Sub", ["a", second], ["y"]),
        ]
        return onnx_models.model(nodes, [], [onnx_models.tensor("y", [4])])

    assert _identify(tmp_path, build("a")).structure != _identify(tmp_path, build("b")).structure


def test_a_weight_used_twice_is_not_two_equal_weights(tmp_path: Path) -> None:
    shared, copied = onnx_models.mlp(), onnx_models.mlp()
    for proto in (shared, copied):
        proto.graph.initializer[2].raw_data = proto.graph.initializer[0].raw_data
    shared.graph.node[2].input[1] = "w0"
    del shared.graph.initializer[2]
    assert _identify(tmp_path, shared).structure != _identify(tmp_path, copied).structure


def test_a_small_shape_constant_counts_in_the_structure(tmp_path: Path) -> None:
    def build(shape: list[int]) -> onnx.ModelProto:
        return onnx_models.model(
            [helper.make_node("Reshape", ["x", "s"], ["y"])],
            [onnx_models.tensor("x", [4])],
            [onnx_models.tensor("y", [None, None])],
            {"s": np.array(shape, np.int64)},
        )

    assert (
        _identify(tmp_path, build([2, 2])).structure != _identify(tmp_path, build([4, 1])).structure
    )


def test_a_large_constant_node_counts_as_weights(tmp_path: Path) -> None:
    def build(fill: float) -> onnx.ModelProto:
        value = numpy_helper.from_array(np.full(1000, fill, np.float32))
        nodes = [
            helper.make_node("Constant", [], ["c"], value=value),
            helper.make_node("Add", ["x", "c"], ["y"]),
        ]
        wide = [onnx_models.tensor("x", [1000])], [onnx_models.tensor("y", [1000])]
        return onnx_models.model(nodes, *wide)

    one, two = _identify(tmp_path, build(1.0)), _identify(tmp_path, build(2.0))
    assert one.structure == two.structure
    assert one.weights != two.weights


@pytest.mark.parametrize("opaque", [False, True])
def test_names_count_once_something_unknown_might_refer_to_them(
    opaque: bool, tmp_path: Path
) -> None:
    def build(first: str, second: str) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Relu", ["x"], [first]),
            helper.make_node("Tanh", [first], [second]),
            helper.make_node("Neg", [second], ["y"]),
        ]
        wide = [onnx_models.tensor("x", [4])], [onnx_models.tensor("y", [4])]
        proto = onnx_models.model(nodes, *wide)
        if opaque:  # a sharding that names a value: the same bytes, another value
            device = proto.graph.node[0].device_configurations.add()
            device.sharding_spec.add(tensor_name="a")
        return proto

    one, two = _identify(tmp_path, build("a", "b")), _identify(tmp_path, build("b", "a"))
    assert (one.structure != two.structure) is opaque


def test_inputs_outputs_and_operators_are_listed(original: GraphId) -> None:
    assert [each.name for each in original.inputs] == ["x"]
    assert original.inputs[0].dtype == "int64"
    assert original.inputs[0].shape == ("N",)
    assert [each.shape for each in original.outputs] == [(None, 4), ("M", 4)]
    assert original.operators == (
        "ai.onnx::Add",
        "ai.onnx::Gather",
        "ai.onnx::Relu",
        "my.functions::Twice",
        "my.ops::Custom",
        "my.ops::Scale",
    )


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (TensorProto.FLOAT16, "float16"),
        (TensorProto.BFLOAT16, "bfloat16"),
        (TensorProto.DOUBLE, "float64"),
        (TensorProto.STRING, "string"),
        (TensorProto.BOOL, "bool"),
        (TensorProto.FLOAT8E4M3FN, "float8_e4m3fn"),
        (TensorProto.FLOAT8E5M2FNUZ, "float8_e5m2fnuz"),
        (TensorProto.INT4, "int4"),
        (TensorProto.UINT4, "uint4"),
        (TensorProto.FLOAT4E2M1, "float4_e2m1fn"),
        (99, "onnx-99"),
    ],
)
def test_element_types_have_names(code: int, name: str, tmp_path: Path) -> None:
    proto = onnx_models.mlp()
    proto.graph.input[0].type.tensor_type.elem_type = code
    graph = _identify(tmp_path, proto)
    assert graph.inputs[0].dtype == name
    assert graph.inputs[0].shape == (4, 16)


def test_values_that_are_no_tensors_are_named_by_their_kind(tmp_path: Path) -> None:
    proto = onnx_models.mlp()
    float_type = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(float_type))
    proto.graph.output[0].type.CopyFrom(helper.make_optional_type_proto(float_type))
    graph = _identify(tmp_path, proto)
    assert (graph.inputs[0].dtype, graph.inputs[0].shape) == ("sequence", None)
    assert (graph.outputs[0].dtype, graph.outputs[0].shape) == ("optional", None)
