"""Damaged models: an identity or a `ModelError`, never anything else, and never a wrong one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import onnx_models

from trivet.errors import ModelError
from trivet.plans.graph import identify
from trivet.plans.model import GraphId

EVERY_KIND = onnx_models.every_kind().SerializeToString(deterministic=True)
XML = b"""<net name="n" version="11"><layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="?,3" element_type="f32"/>
<output><port id="0" precision="FP32" names="x"><dim>-1</dim><dim>3</dim></port></output></layer>
<layer id="1" name="c" type="Const" version="opset1">
<data element_type="f32" shape="3" offset="4" size="12"/></layer>
<layer id="2" name="y" type="Result" version="opset1"/></layers>
<edges><edge from-layer="0" from-port="0" to-layer="2" to-port="0"/></edges><rt_info/></net>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "model.bin").write_bytes(bytes(32))
    return folder


def _try(folder: Path, data: bytes, name: str = "model.onnx") -> GraphId | None:
    path = folder / name
    path.write_bytes(data)
    started = time.monotonic()
    graph, message = None, name
    try:
        graph = identify(path)
    except ModelError as error:
        message = error.message
    assert name in message
    assert time.monotonic() - started < 20
    return graph


def _all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for each in (attribute.g, *attribute.graphs):
                yield from _all_graphs(each)


def _clear_documents(message: Any) -> None:
    for descriptor, value in message.ListFields():
        if descriptor.name in ("doc_string", "metadata_props"):
            message.ClearField(descriptor.name)
        elif descriptor.message_type is not None:
            repeated = hasattr(value, "__len__")
            for each in value if repeated else [value]:
                _clear_documents(each)


class _Renamer:
    """Names in the order in which they are met become numbers; some are kept."""

    def __init__(self, fixed: set[str]) -> None:
        self._fixed = fixed
        self._renamed: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        if not name or name in self._fixed:
            return name
        return self._renamed.setdefault(name, f"#{len(self._renamed)}")

    def nodes(self, nodes: Any) -> None:
        for node in nodes:
            node.ClearField("name")
            node.input[:] = [self(each) for each in node.input]
            node.output[:] = [self(each) for each in node.output]
            for attribute in node.attribute:
                for tensor in (attribute.t, *attribute.tensors):
                    tensor.ClearField("name")
                for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                    sparse.values.ClearField("name")
                    sparse.indices.ClearField("name")

    def graph(self, graph: onnx.GraphProto) -> None:
        graph.ClearField("name")
        self.nodes(graph.node)
        for each in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
            each.name = self(each.name or "unused")  # a weight that nothing uses needs no name
        for sparse in graph.sparse_initializer:
            sparse.values.name = self(sparse.values.name)
            sparse.indices.ClearField("name")
        for annotation in graph.quantization_annotation:
            annotation.tensor_name = self(annotation.tensor_name)
            for pair in annotation.quant_parameter_tensor_names:
                pair.value = self(pair.value)


def _normal(data: bytes) -> bytes:
    """A model without what does not count: a second, independent reading of the rules."""
    proto = onnx.load_from_string(data)
    _clear_documents(proto)
    for field in ("producer_name", "producer_version", "domain", "model_version"):
        proto.ClearField(field)
    rename = _Renamer({each.name for each in (*proto.graph.input, *proto.graph.output)})
    for graph in _all_graphs(proto.graph):
        rename.graph(graph)
    for function in proto.functions:
        rename = _Renamer(set())
        function.input[:] = [rename(each) for each in function.input]
        rename.nodes(function.node)
        function.output[:] = [rename(each) for each in function.output]
    return bytes(proto.SerializeToString(deterministic=True))


def test_every_flipped_bit_changes_the_identity_or_nothing_that_counts(folder: Path) -> None:
    """Each byte of a model with every kind of field, one bit of it at a time."""
    original = _try(folder, EVERY_KIND)
    assert original is not None
    normal = _normal(EVERY_KIND)
    same = refused = 0
    for i in range(len(EVERY_KIND)):
        damaged = bytearray(EVERY_KIND)
        damaged[i] ^= 1 << (i * 7 % 8)
        graph = _try(folder, bytes(damaged))
        if graph is None:
            refused += 1
        elif (graph.structure, graph.weights) == (original.structure, original.weights):
            same += 1
            try:
                assert _normal(bytes(damaged)) == normal
            except DecodeError:
                continue  # text that is no longer UTF-8: no runtime will load it
    assert same > 10
    assert refused > 100


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_onnx_gives_an_identity_or_a_model_error(folder: Path, data: st.DataObject) -> None:
    damaged = bytearray(EVERY_KIND)
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(damaged)))
        end = start + data.draw(st.integers(0, 20))
        damaged[start:end] = data.draw(st.binary(max_size=20))
    _try(folder, bytes(damaged))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_give_an_identity_or_a_model_error(folder: Path, data: bytes) -> None:
    _try(folder, data)
    _try(folder, onnx_models.field(7, data))
    _try(folder, onnx_models.field(7, onnx_models.field(1, data)))
    _try(folder, onnx_models.field(7, onnx_models.field(5, data)))
    _try(folder, onnx_models.field(7, onnx_models.field(1, onnx_models.field(5, data))))


def test_a_truncation_is_a_model_error_or_lacks_a_whole_field(folder: Path) -> None:
    original = _try(folder, EVERY_KIND)
    assert original is not None
    for end in range(0, len(EVERY_KIND), 5):
        graph = _try(folder, EVERY_KIND[:end])
        if graph is not None:
            assert graph.structure != original.structure


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_ir_gives_an_identity_or_a_model_error(folder: Path, data: st.DataObject) -> None:
    damaged = bytearray(XML)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(damaged)))
        end = start + data.draw(st.integers(0, 8))
        damaged[start:end] = data.draw(st.one_of(st.binary(max_size=8), st.sampled_from(WORDS)))
    _try(folder, bytes(damaged), "model.xml")


WORDS = [b"<layer>", b"</layer>", b"<edges>", b"<port>", b'offset="1"', b'size="9"', b"&lt;", b"<!"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a graph of nearly 2**63 bytes
        b"\x3a" + b"\xff" * 10 + b"\x01",  # a length of more than 64 bits
        b"\x3a" + b"\x80" * 1000,
        b"\x00\x00",  # field number 0
        b"\x3b\x3c",  # a group
        b"\x3f",  # wire type 7
        b"\xff" * 12,
        b"\x09\x01",  # eight bytes announced, one there
        b"\x0d\x01",
        onnx_models.field(7, onnx_models.field(5, b"\x08" + b"\xff" * 9 + b"\x01")),
    ],
)
def test_hostile_lengths_are_refused_or_harmless(data: bytes, folder: Path) -> None:
    _try(folder, data)


def test_a_shape_of_astronomic_size_allocates_nothing(folder: Path) -> None:
    proto = onnx_models.mlp()
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.dims[:] = [2**40, 2**40]
    weight.data_location = 1
    weight.external_data.add(key="location", value="model.bin")
    assert _try(folder, proto.SerializeToString()) is None
    weight.dims[:] = [2**30]
    assert _try(folder, proto.SerializeToString()) is None


def test_millions_of_tiny_fields_are_read_or_refused(folder: Path) -> None:
    """In one node, one tensor, one attribute: no list of them is kept."""
    many = onnx_models.field(1, b"") * 1_100_000
    assert _try(folder, onnx_models.field(7, onnx_models.field(1, many))) is None
    dims = b"\x08\x01" * 500_000
    assert _try(folder, onnx_models.field(7, onnx_models.field(5, dims))) is None
    ints = b"\x40\x01" * 500_000
    node = onnx_models.field(5, onnx_models.field(1, b"a") + ints)
    assert _try(folder, onnx_models.field(7, onnx_models.field(1, node))) is not None


def test_random_mutations_of_a_real_network(folder: Path) -> None:
    data = onnx_models.with_if().SerializeToString(deterministic=True)
    source = random.Random(1)
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(source.randint(1, 4)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        _try(folder, bytes(damaged))
