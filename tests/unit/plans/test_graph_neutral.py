"""What does not make two ONNX models different."""

from __future__ import annotations

import os
import shutil
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


def _rename_inner(proto: onnx.ModelProto) -> None:
    """Rename every value but inputs and outputs of the model, in all scopes."""
    graph = proto.graph
    fixed = {each.name for each in (*graph.input, *graph.output)}

    def new(name: str) -> str:
        return name if name in fixed or not name else f"renamed/{name[::-1]}"

    def rename(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.input[:] = [new(each) for each in node.input]
            node.output[:] = [new(each) for each in node.output]
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    rename(inner)
        for named in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
            named.name = new(named.name)
        for sparse in graph.sparse_initializer:
            sparse.values.name = new(sparse.values.name)
        for annotation in graph.quantization_annotation:
            annotation.tensor_name = new(annotation.tensor_name)
            for pair in annotation.quant_parameter_tensor_names:
                pair.value = new(pair.value)

    rename(graph)


def _rename_nodes(proto: onnx.ModelProto) -> None:
    for i, node in enumerate((*proto.graph.node, *proto.functions[0].node)):
        node.name = f"node_{i}"


def _rename_in_function(proto: onnx.ModelProto) -> None:
    function = proto.functions[0]
    function.input[:] = ["a", "b"]
    function.output[:] = ["d"]
    function.node[0].input[:] = ["a", "b"]
    function.node[0].output[:] = ["c"]
    function.node[1].input[:] = ["c"]
    function.node[1].output[:] = ["d"]


def _shuffle(proto: onnx.ModelProto) -> None:
    weights = list(proto.graph.initializer)[::-1]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(weights)


def _document(proto: onnx.ModelProto) -> None:
    graph = proto.graph
    for each in (graph, *graph.node, *graph.input, *graph.initializer, *proto.functions):
        each.doc_string = "documented"
        each.metadata_props.add(key="note", value="documented")
    graph.node[1].attribute[0].doc_string = "documented"
    graph.value_info[0].doc_string = "documented"


NEUTRAL: dict[str, Change] = {
    "node names": _rename_nodes,
    "names of inner values and weights": _rename_inner,
    "names inside a function": _rename_in_function,
    "order of the weights": _shuffle,
    "documentation and properties of parts": _document,
    "name of a tensor in an attribute": lambda m: setattr(
        next(a for a in m.graph.node[1].attribute if a.name == "a_tensor").t, "name", "other"
    ),
    "inner values noted in another order": lambda m: m.graph.value_info.insert(
        0, onnx_models.tensor("h", ["M", 4])
    ),
}

METADATA: dict[str, Change] = {
    "documentation": lambda m: setattr(m, "doc_string", "other"),
    "producer": lambda m: setattr(m, "producer_name", "other"),
    "producer version": lambda m: setattr(m, "producer_version", "2"),
    "domain": lambda m: setattr(m, "domain", "org.example"),
    "model version": lambda m: setattr(m, "model_version", 7),
    "properties": lambda m: m.metadata_props.add(key="author", value="me"),
    "graph name": lambda m: setattr(m.graph, "name", "other"),
}


def _identify(folder: Path, proto: onnx.ModelProto, name: str = "model.onnx") -> GraphId:
    return identify(onnx_models.save(proto, folder / name))


def _computes(graph: GraphId) -> tuple[object, ...]:
    return graph.structure, graph.weights, graph.inputs, graph.outputs, graph.operators


def _original(what: str) -> onnx.ModelProto:
    proto = onnx_models.every_kind()
    if what == "inner values noted in another order":
        proto.graph.value_info.append(onnx_models.tensor("h", ["M", 4]))
    return proto


@pytest.mark.parametrize("what", NEUTRAL)
def test_neutral_changes_leave_everything_the_same(what: str, tmp_path: Path) -> None:
    before = _identify(tmp_path, _original(what), "before.onnx")
    proto = onnx_models.every_kind()
    NEUTRAL[what](proto)
    assert proto != _original(what)
    after = _identify(tmp_path, proto, "after.onnx")
    assert _computes(after) == _computes(before)
    assert after.metadata == before.metadata


@pytest.mark.parametrize("what", METADATA)
def test_metadata_of_the_model_counts_only_as_metadata(what: str, tmp_path: Path) -> None:
    proto = onnx_models.every_kind()
    before = _identify(tmp_path, proto)
    METADATA[what](proto)
    after = _identify(tmp_path, proto)
    assert _computes(after) == _computes(before)
    assert after.metadata != before.metadata


def test_names_inside_branches_may_be_shared_or_not(tmp_path: Path) -> None:
    apart = _identify(tmp_path, onnx_models.with_if())
    alike = _identify(tmp_path, onnx_models.with_if(then_out="out", else_out="out"))
    assert _computes(apart) == _computes(alike)


def test_what_a_branch_captures_counts(tmp_path: Path) -> None:
    proto = onnx_models.with_if()
    before = _identify(tmp_path, proto)
    proto.graph.node[0].attribute[0].g.node[0].input[1] = "x"
    assert _identify(tmp_path, proto).structure != before.structure


def test_path_and_times_do_not_count(tmp_path: Path) -> None:
    here = onnx_models.save(onnx_models.conv_net(), tmp_path / "a" / "one.onnx")
    there = tmp_path / "b" / "c" / "two.ONNX"
    there.parent.mkdir(parents=True)
    shutil.copy(here, there)
    os.utime(there, (1, 1))
    one, two = identify(here), identify(there)
    assert _computes(one) == _computes(two)
    assert one.metadata == two.metadata
    assert one.sources != two.sources


def test_both_orders_of_the_sections_of_a_graph_are_one_model(tmp_path: Path) -> None:
    proto = onnx_models.mlp()
    plain = _identify(tmp_path, proto)
    weights = onnx.GraphProto()
    weights.initializer.extend(proto.graph.initializer)
    rest = onnx.GraphProto()
    rest.CopyFrom(proto.graph)
    del rest.initializer[:]
    graph = weights.SerializeToString() + rest.SerializeToString()
    proto.ClearField("graph")
    head = b"\x3a" + onnx_models.varint(len(graph))
    path = tmp_path / "weights_first.onnx"
    path.write_bytes(head + graph + proto.SerializeToString())
    onnx.checker.check_model(onnx.load(path))
    assert _computes(identify(path)) == _computes(plain)


def test_packed_and_unpacked_numbers_are_the_same(tmp_path: Path) -> None:
    """Writers of proto2 repeat the tag before every number, those of proto3 do not."""
    pads = [1, 300, 2, 70000]
    node = helper.make_node("Pad", ["x"], ["y"], pads=pads, floats=[1.5, -2.0])
    proto = onnx_models.model([node], [], [])
    plain = _identify(tmp_path, proto)
    packed = _packed(proto)
    assert onnx.load_from_string(packed).graph.node[0] == node
    assert packed != proto.SerializeToString(deterministic=True)
    path = tmp_path / "packed.onnx"
    path.write_bytes(packed)
    assert identify(path).structure == plain.structure


def _packed(proto: onnx.ModelProto) -> bytes:
    """The same model with the lists of its only node written packed."""
    node = proto.graph.node[0]
    data = b"".join(onnx_models.field(1, each.encode()) for each in node.input)
    data += b"".join(onnx_models.field(2, each.encode()) for each in node.output)
    data += onnx_models.field(4, node.op_type.encode())
    for each in node.attribute:
        body = onnx_models.field(1, each.name.encode())
        if each.ints:
            body += onnx_models.field(
                8, b"".join(onnx_models.varint(number) for number in each.ints)
            )
        else:
            body += onnx_models.field(7, np.array(each.floats, "<f4").tobytes())
        data += onnx_models.field(5, body + b"\xa0\x01" + onnx_models.varint(each.type))
    rest = onnx.ModelProto()
    rest.CopyFrom(proto)
    rest.ClearField("graph")
    return onnx_models.field(7, onnx_models.field(1, data)) + rest.SerializeToString()


TYPED: dict[str, tuple[int, list[float]]] = {
    "float32": (TensorProto.FLOAT, [1.5, -0.0, 3e38]),
    "float64": (TensorProto.DOUBLE, [1.5, -0.0, 1e300]),
    "int8": (TensorProto.INT8, [-128, -1, 127]),
    "int16": (TensorProto.INT16, [-32768, -1, 32767]),
    "int32": (TensorProto.INT32, [-(2**31), -1, 2**31 - 1]),
    "int64": (TensorProto.INT64, [-(2**63), -1, 2**62]),
    "uint8": (TensorProto.UINT8, [0, 128, 255]),
    "uint16": (TensorProto.UINT16, [0, 40000, 65535]),
    "uint32": (TensorProto.UINT32, [0, 2**31, 2**32 - 1]),
    "uint64": (TensorProto.UINT64, [0, 2**62, 2**64 - 1]),
    "bool": (TensorProto.BOOL, [0, 1, 1]),
    "float16": (TensorProto.FLOAT16, [1.5, -2.0, 0.0]),
    "bfloat16": (TensorProto.BFLOAT16, [1.5, -2.0, 0.0]),
    "float8": (TensorProto.FLOAT8E4M3FN, [1.5, -2.0, 0.0]),
    "int4": (TensorProto.INT4, [-8, 7, 3]),
    "uint4": (TensorProto.UINT4, [15, 7, 3]),
    "float4": (TensorProto.FLOAT4E2M1, [1.5, -2.0, 0.5]),
    "complex64": (TensorProto.COMPLEX64, [1.5, -2.0, 0.5]),
    "complex128": (TensorProto.COMPLEX128, [1.5, -2.0, 0.5]),
}


@pytest.mark.parametrize("name", TYPED)
def test_raw_and_typed_contents_are_the_same(name: str, tmp_path: Path) -> None:
    code, values = TYPED[name]
    typed = helper.make_tensor("w", code, [3], values)
    raw = numpy_helper.from_array(numpy_helper.to_array(typed), "w")
    assert raw.HasField("raw_data")
    assert not typed.HasField("raw_data")
    assert raw.data_type == code
    one, two, other = onnx_models.mlp(), onnx_models.mlp(), onnx_models.mlp()
    one.graph.initializer[0].CopyFrom(typed)
    two.graph.initializer[0].CopyFrom(raw)
    raw.raw_data = raw.raw_data[1:] + raw.raw_data[:1]
    other.graph.initializer[0].CopyFrom(raw)
    assert _computes(_identify(tmp_path, one)) == _computes(_identify(tmp_path, two))
    assert _identify(tmp_path, other).weights != _identify(tmp_path, two).weights


def test_long_typed_contents_are_the_same_as_raw(tmp_path: Path) -> None:
    """Longer than the pieces in which packed numbers are read, so pieces end inside numbers."""
    values = np.random.default_rng(0).integers(-(2**62), 2**62, 50_000)
    typed = helper.make_tensor("w", TensorProto.INT64, values.shape, values.tolist())
    one, two = onnx_models.mlp(), onnx_models.mlp()
    one.graph.initializer[0].CopyFrom(typed)
    two.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))
    assert _computes(_identify(tmp_path, one)) == _computes(_identify(tmp_path, two))


def test_numbers_that_their_type_cannot_hold_stay_apart(tmp_path: Path) -> None:
    found = set()
    for value in (44, 300):  # equal in their low eight bits
        proto = onnx_models.mlp()
        tensor = TensorProto(name="w0", data_type=TensorProto.UINT8, dims=[1], int32_data=[value])
        proto.graph.initializer[0].CopyFrom(tensor)
        found.add(_identify(tmp_path, proto).weights)
    assert len(found) == 2


def test_strings_keep_their_boundaries(tmp_path: Path) -> None:
    found = set()
    for strings in ([b"ab", b"c"], [b"a", b"bc"], [b"abc", b""]):
        proto = onnx_models.mlp()
        proto.graph.initializer[0].CopyFrom(helper.make_tensor("w0", 8, [2], strings))
        found.add(_identify(tmp_path, proto).weights)
    assert len(found) == 3


def test_contents_in_two_fields_at_once_are_like_neither(tmp_path: Path) -> None:
    found = set()
    for raw, floats in ((b"\0\0\x80?", []), (b"", [1.0]), (b"\0\0\x80?", [1.0])):
        proto = onnx_models.mlp()
        tensor = TensorProto(name="w0", data_type=TensorProto.FLOAT, dims=[1], float_data=floats)
        if raw:
            tensor.raw_data = raw
        proto.graph.initializer[0].CopyFrom(tensor)
        graph = _identify(tmp_path, proto)
        found.add((graph.structure, graph.weights))
    assert len(found) == 2  # raw alone and typed alone are equal
